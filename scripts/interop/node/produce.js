'use strict';
// A producer of ali-ons: --messages, keys in turn (--keys of them), --sharded true for the library's own choice of a queue by
// key, --body-bytes, --tags a,b in turn, --delay-level.

const { Message, Producer } = require('ali-ons');
const { bodyFields, clientOptions, emit, parseArguments } = require('./driver');

const given = parseArguments({
  messages: 10, first: 0, keys: 1, sharded: 'false', tags: '', 'body-bytes': 0, 'delay-level': 0,
});

/** Message number seq: its body is the number, filled up to --body-bytes with text that compresses. */
function message(seq, key) {
  const filling = ' in order';
  const body = seq + filling.repeat(Math.floor(given['body-bytes'] / filling.length));
  const made = given.tags
    ? new Message(given.topic, given.tags.split(',')[seq % given.tags.split(',').length], body)
    : new Message(given.topic, body);
  made.keys = [ key ];
  made.properties.seq = String(seq);
  if (given.sharded === 'true') made.shardingKey = key;
  if (given['delay-level']) made.delayTimeLevel = given['delay-level'];
  return made;
}

async function main() {
  const producer = new Producer({ producerGroup: given.group, ...clientOptions(given) });
  producer.on('error', error => console.error(error));
  await producer.ready();
  for (let seq = given.first; seq < given.first + given.messages; seq++) {
    const key = `key-${seq % given.keys}`;
    const sent = message(seq, key);
    const content = bodyFields(sent.body);
    const result = await producer.send(sent);
    emit('sent', {
      story: given.story,
      topic: given.topic,
      status: result.sendStatus,
      msgId: result.msgId,
      queueId: Number(result.messageQueue.queueId),
      queueOffset: Number(result.queueOffset),
      key,
      tags: sent.tags,
      seq,
      ...content,
    });
  }
  await producer.close();
  emit('done', { story: given.story });
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  emit('failed', { story: given.story, error: String(error) });
  process.exit(1);
});
