"""The examples of the articles on virtual time: the programs print what the articles show."""

from collections.abc import Sequence
from itertools import pairwise

from lockstep.client import (
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    SendResult,
)
from lockstep.order import Cause
from lockstep.simulation.articles.stories.listener import message_suspends
from tests.scenarios.cluster import BROKER, PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import scenario

QUEUES, ORDERS = 4, 10
EMPTY_PULL_MS = 15_000 + 5_000  # until the broker answers it
TAGS = ("TagA", "TagB", "TagC", "TagD", "TagE")
WANTED = ("TagA", "TagC", "TagD")


def by_order_id(queues: Sequence[MessageQueue], _message: Message, order_id: int) -> MessageQueue:
    """The selector of the first two articles: the order's id modulo the number of queues."""
    return queues[order_id % len(queues)]


async def _send_orders(cluster: Cluster, producer: Producer) -> list[SendResult]:
    """A hundred messages of ten orders, with tags in turn and a key each, one after the other."""
    results = []
    for number in range(100):
        order_id = number % ORDERS
        text = f"Hello RocketMQ {number}".encode()
        message = Message(TOPIC, text, tags=TAGS[number % len(TAGS)], keys=f"KEY{number}")
        results.append(await producer.send(message, selector=by_order_id, arg=order_id))
    return results


@scenario()
async def test_the_producer_and_the_consumer_of_the_second_article(cluster: Cluster) -> None:
    """Orders go to the queue of their id; a consumer from FIRST_OFFSET with three of five tags gets exactly those, in
    the order of each queue, with the keys they were sent with; auto commit is on, and SUCCESS commits all of it."""
    await cluster.broker(queues=QUEUES)
    producer = await cluster.producer()
    results = await cluster.world.host(PRODUCER).run(_send_orders(cluster, producer))
    assert [result.queue_id for result in results] == [number % ORDERS % QUEUES for number in range(100)]

    got: list[MessageExt] = []

    async def consume(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        assert context.auto_commit
        context.auto_commit = True
        got.extend(messages)
        return ConsumeOrderlyStatus.SUCCESS

    runtime = cluster.world.host("c1")
    config = ConsumerConfig(
        serialize_type=cluster.serialize_type, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer = PushConsumer("tower", name_server=cluster.name_server, config=config, listener=consume, runtime=runtime)
    consumer.subscribe(TOPIC, " || ".join(WANTED))
    await runtime.run(consumer.start())
    wanted = [number for number in range(100) if TAGS[number % len(TAGS)] in WANTED]
    await cluster.world.until(lambda: len(got) == len(wanted))
    await cluster.world.sleep_ms(EMPTY_PULL_MS + 100)  # behind a queue's last message are tags that nobody wants
    await runtime.run(consumer.shutdown())
    numbers = [int(message.body.rpartition(b" ")[2]) for message in got]
    assert sorted(numbers) == wanted
    for queue_id in range(QUEUES):
        of_queue = [number for number, message in zip(numbers, got, strict=True) if message.queue_id == queue_id]
        assert of_queue == [number for number in wanted if number % ORDERS % QUEUES == queue_id]
    assert all(message.keys == f"KEY{number}" for number, message in zip(numbers, got, strict=True))
    assert [cluster.committed(queue_id) for queue_id in range(QUEUES)] == [
        len(cluster.stored(queue_id)) for queue_id in range(QUEUES)
    ]
    await cluster.end(judge=False)  # what a tag kept back was never handled


@scenario()
async def test_an_orders_way_from_created_to_received(cluster: Cluster) -> None:
    """The first article's example: created, paid, shipped, received, with one order id. The payment fails twice and no
    later message overtakes it; orders of other queues go on."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    await message_suspends(cluster)
    await cluster.all_seen()
    assert cluster.seen.texts(queue_id=0) == ["0", "1", "1", "1", "2", "3"]
    first_queue = cluster.seen.of(queue_id=0)
    pauses_ms = [later.begin_ms - earlier.end_ms for earlier, later in pairwise(first_queue[1:4])]
    assert pauses_ms == [1_000, 1_000]
    assert [call.reconsume_times for call in first_queue[1:4]] == [0, 1, 2]
    last_of_the_other = cluster.seen.of(queue_id=1)[-1]
    assert last_of_the_other.end_ms < first_queue[-1].begin_ms


@scenario()
async def test_a_second_pull_does_not_begin_in_front_of_the_first(cluster: Cluster) -> None:
    """The third article's example: while message 31 of a pull of 20 to 40 is handled, the next pull brings 41 to 50.
    They are handled later, because calls take messages from the queue and not from a pull."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(20)
    await cluster.consumer("c1", work_ms=100, pull_batch_size=21)
    await cluster.world.until(lambda: len(cluster.seen.all) == 20)
    await cluster.send(21)
    await cluster.world.until(lambda: cluster.seen.texts()[-1] == "31")
    assert [line.at_ms for line in cluster.events("queue_acquired", host="c1")]
    pulls = len(cluster.request_log.of("c1", "PULL_MESSAGE"))
    await cluster.send(10)
    await cluster.world.until(lambda: len(cluster.request_log.of("c1", "PULL_MESSAGE")) > pulls)
    assert int(cluster.seen.texts()[-1]) < 41  # the second pull's messages are here, the first one's not done
    await cluster.all_seen()
    assert cluster.seen.texts() == [str(number) for number in range(51)]
    assert cluster.seen.overlaps == []
    assert {call.queue for call in cluster.seen.all} == {MessageQueue(TOPIC, BROKER, 0)}
