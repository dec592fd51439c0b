// A test of a service with RocketMQ 5's rocketmq-client-nodejs. It starts `lockstep-broker` as a process, without a
// container; it ends with the test.

const assert = require('node:assert');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const { connect } = require('node:net');
const { createInterface } = require('node:readline');
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

async function main() {
  const options = '--port 0 --name-server-port 0 --grpc-port 0 --control-port 0 --end-with-stdin --log-level warning';
  const broker = spawn('lockstep-broker', options.split(' '), { stdio: [ 'pipe', 'pipe', 'inherit' ] });
  const [ line ] = await once(createInterface(broker.stdout), 'line');
  const at = Object.fromEntries(line.split(' ').slice(1).map(word => word.split('=')));
  const port = connect(Number(at.control.split(':')[1]), '127.0.0.1');
  const answers = createInterface(port);
  const control = async (call, more) => {
    port.write(JSON.stringify({ call, ...more }) + '\n');
    const answer = JSON.parse((await once(answers, 'line'))[0]);
    assert(answer.ok, answer.error);
    return answer.result;
  };
  await control('create_topic', { topic: 'orders' });
  await control('create_group', { group: 'printer', fifo: true });
  const settings = { endpoints: at.grpc, namespace: '', sslEnabled: false };
  const producer = new Producer({ ...settings, topics: [ 'orders' ] });
  const consumer = new SimpleConsumer({
    ...settings, consumerGroup: 'printer', subscriptions: new Map([[ 'orders', '*' ]]), awaitDuration: 5000,
  });
  await producer.startup();
  await consumer.startup();
  for (const step of [ 'created', 'paid' ]) {
    await producer.send({ topic: 'orders', messageGroup: '1001', body: Buffer.from(step) });
  }
  for (const attempt of [ 1, 2 ]) { // nobody acknowledges
    const messages = await consumer.receive(2, 15_000);
    assert.deepEqual(messages.map(one => `${one.deliveryAttempt} ${one.body}`), [ `${attempt} created`, `${attempt} paid` ]);
    await control('advance', { seconds: 16 });
  }
  await control('push_error', { codes: 'ReceiveMessage', responseCode: 'FORBIDDEN', remark: 'not yours' });
  await assert.rejects(consumer.receive(2, 15_000), /not yours/);
  await control('down'); // all connections end; `up` is the same broker again
  broker.kill();
}

main().then(() => process.exit(0), error => { console.error(error); process.exit(1); });
