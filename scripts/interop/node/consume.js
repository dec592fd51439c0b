'use strict';
// A push consumer of ali-ons: --expression, --answers 3=THROW*2,5=RETRY (seq, answer, attempts), --max-reconsume-times, --broadcast true.

const { Consumer } = require('ali-ons');
const { bodyFields, clientOptions, closeAtTheEnd, emit, parseArguments } = require('./driver');

const given = parseArguments({
  expression: '*', answers: '', 'max-reconsume-times': 16, from: 'CONSUME_FROM_FIRST_OFFSET', broadcast: 'false',
});
const special = new Map();
for (const entry of given.answers.split(',').filter(Boolean)) {
  const [ seq, answer, attempts ] = entry.split(/[=*]/);
  special.set(Number(seq), { answer, left: Number(attempts || 1) });
}

function answerTo(seq) {
  const found = special.get(seq);
  return found && found.left-- > 0 ? found.answer : 'SUCCESS';
}

async function main() {
  const consumer = new Consumer({
    consumerGroup: given.group,
    consumeFromWhere: given.from,
    isBroadcast: given.broadcast === 'true',
    maxReconsumeTimes: given['max-reconsume-times'],
    ...clientOptions(given),
  });
  consumer.on('error', error => console.error(error.message));
  consumer.subscribe(given.topic, given.expression, async message => {
    const seq = message.properties.seq === undefined ? null : Number(message.properties.seq);
    const status = answerTo(seq);
    emit('handled', {
      story: given.story,
      topic: message.topic,
      queueId: message.queueId,
      queueOffset: Number(message.queueOffset),
      msgId: message.msgId,
      originMessageId: message.originMessageId,
      reconsumeTimes: message.reconsumeTimes,
      key: message.keys,
      tags: message.tags,
      seq,
      ...bodyFields(message.body),
      status,
    });
    if (status === 'THROW') throw new Error('the listener was told to fail');
    return status === 'RETRY' ? Consumer.ACTION_RETRY : undefined;
  });
  await consumer.ready();
  closeAtTheEnd(() => consumer.close());
  emit('ready', { story: given.story });
}

main().catch(error => {
  console.error(error);
  emit('failed', { story: given.story, error: String(error) });
  process.exit(1);
});
