'use strict';
// The driver of RocketMQ 5's Node client: `driver.js produce|simple|push --name value ...`, events as JSON lines on stdout.
// The options are those of java5/Grpc*.java. A consumer ends when its stdin does.

const fs = require('fs');
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const ANSWER_TIMEOUT_MS = 15000; // where much else runs, the client's 3 s are not enough for a first answer
const AWAIT_MS = 5000;
const BATCH = 4;

const [ role, ...argv ] = process.argv.slice(2);
const given = {};
for (let i = 0; i < argv.length; i += 2) given[argv[i].slice(2)] = argv[i + 1];

const number = (name, otherwise) => (name in given ? Number(given[name]) : otherwise);
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

/** One event as one line; it is written before this returns. */
function emit(event, fields = {}) {
  const line = { event, ...fields, wall_ms: Date.now() };
  fs.writeSync(1, JSON.stringify(line) + '\n');
}

/** What the client tells of its work goes to stderr, where only a person reads it. */
const logger = {
  debug() {},
  info() {},
  warn: (...words) => console.error('warning:', ...words),
  error: (...words) => console.error('error:', ...words),
};

/** What every client is made with: plain text without --tls true; without --access-key it signs nothing. */
function configuration() {
  const sslEnabled = given.tls === 'true';
  const options = { endpoints: given.endpoints, namespace: '', requestTimeout: ANSWER_TIMEOUT_MS, sslEnabled, logger };
  if ('access-key' in given) {
    options.sessionCredentials = { accessKey: given['access-key'], accessSecret: given['secret-key'] };
  }
  return options;
}

function keyOf(seq) {
  const keys = number('keys', 0);
  return keys === 0 ? undefined : `key-${seq % keys}`;
}

function message(seq) {
  const made = { topic: given.topic, body: Buffer.from(String(seq)), properties: new Map([[ 'seq', String(seq) ]]) };
  if (keyOf(seq) !== undefined) made.messageGroup = keyOf(seq);
  if ('delay-ms' in given) made.deliveryTimestamp = new Date(Date.now() + number('delay-ms'));
  return made;
}

/** --messages of them, --keys in turn as message groups (0: none), --first number; --delay-ms until they are delivered,
 * of which --recall takes the first one back. With --transactions each is sent in one: by its number modulo 3 it is
 * committed (0), rolled back (1), or left to the broker's question (2), answered with a commit until stdin ends. */
async function produce() {
  const producer = new Producer({ ...configuration(), topics: [ given.topic ], checker: { check: answer } });
  await producer.startup();
  const transactions = given.transactions === 'true';
  const first = number('first', 0);
  for (let seq = first; seq < first + number('messages', 1); seq++) {
    const transaction = transactions ? producer.beginTransaction() : undefined;
    const receipt = await producer.send(message(seq), transaction);
    emit('sent', { topic: given.topic, seq, key: keyOf(seq) ?? null, msgId: receipt.messageId });
    if (transactions && seq % 3 === 0) await transaction.commit();
    if (transactions && seq % 3 === 1) await transaction.rollback();
    if (seq === first && given.recall === 'true') {
      const recalled = await producer.recallMessage(given.topic, receipt.recallHandle);
      emit('recalled', { seq, msgId: recalled.messageId });
    }
  }
  if (transactions) return producer;
  await producer.shutdown();
  return null;
}

async function answer(view) {
  emit('asked', { seq: Number(view.properties.get('seq')) });
  return TransactionResolution.COMMIT;
}

/** Handle a message as --hang-at and --fail say; it is said before it is acknowledged. */
async function handle(view) {
  const seq = Number(view.properties.get('seq'));
  if (seq === number('hang-at', -1)) {
    emit('hangs', { seq });
    await new Promise(() => {});
  }
  const status = seq === number('fail', -1) ? 'FAILURE' : 'SUCCESS';
  emit('handled', {
    topic: view.topic,
    msgId: view.messageId,
    key: view.messageGroup || null,
    tags: view.tag || null,
    seq,
    body: view.body.toString(),
    attempt: view.deliveryAttempt,
    status,
  });
  return ConsumeResult[status];
}

function subscribed() {
  return { ...configuration(), consumerGroup: given.group, subscriptions: new Map([[ given.topic, '*' ]]) };
}

/** --invisible-s. */
async function simple() {
  const consumer = new SimpleConsumer({ ...subscribed(), awaitDuration: AWAIT_MS });
  await consumer.startup();
  receive(consumer);
  return consumer;
}

async function receive(consumer) {
  while (consumer.isRunning()) {
    try {
      for (const view of await consumer.receive(BATCH, number('invisible-s', 15) * 1000)) {
        await handle(view);
        await consumer.ack(view);
        emit('acked', { msgId: view.messageId });
      }
    } catch (error) {
      emit('failed', { error: String(error) });
      await sleep(1000);
    }
  }
}

async function push() {
  const consumer = new PushConsumer({ ...subscribed(), messageListener: { consume: handle } });
  await consumer.startup();
  return consumer;
}

async function main() {
  const running = await { produce, simple, push }[role]();
  emit(running === null ? 'done' : 'ready');
  if (running === null) process.exit(0);
  const end = async () => {
    await running.shutdown();
    emit('closed');
    process.exit(0);
  };
  process.once('SIGTERM', end);
  process.stdin.once('end', end).resume();
}

main().catch(error => {
  console.error(error);
  emit('failed', { error: `${error} ${error.cause ?? ''}` });
  process.exit(1);
});
