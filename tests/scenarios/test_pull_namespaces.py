"""Pull consumers in a namespace: applications use bare names, brokers have wrapped names."""

from lockstep.client import (
    FilterMessageContext,
    LitePullConsumer,
    LitePullConsumerConfig,
    Message,
    MessageQueue,
    PullConsumer,
    PullConsumerConfig,
)
from lockstep.remoting.logs import EventLog
from lockstep.simulation import SimRuntime
from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import scenario

TOPIC, REAL = "Orders", "red%Orders"
QUEUES = [MessageQueue(TOPIC, BROKER, i) for i in range(4)]


class DropsOdd:
    def __init__(self) -> None:
        self.topics: set[str] = set()

    def filter_message(self, context: FilterMessageContext) -> None:
        self.topics |= {context.queue.topic, *[message.topic for message in context.messages]}
        context.messages = [message for message in context.messages if int(message.body) % 2 == 0]


async def _send(cluster: Cluster, count: int) -> None:
    producer = await cluster.own_producer("p", "clerks", namespace="red")
    sends = [producer.send(Message(TOPIC, b"%d" % i), queue=QUEUES[i % 4]) for i in range(count)]
    for send in sends:
        await cluster.world.host("p").run(send)


@scenario()
async def test_a_pull_consumer(cluster: Cluster) -> None:
    """Queues, pulls, offsets, its listener and its filter hook."""
    await cluster.broker()
    await _send(cluster, 8)
    heard: list[tuple[str, list[MessageQueue], list[MessageQueue]]] = []
    hook = DropsOdd()

    def make(runtime: SimRuntime, log: EventLog) -> PullConsumer:
        config = PullConsumerConfig(serialize_type=cluster.serialize_type)
        consumer = PullConsumer(
            "desk", name_server=cluster.name_server, namespace="red", config=config, runtime=runtime, log=log
        )
        consumer.register_message_queue_listener(TOPIC, lambda *told: heard.append(told))
        consumer.register_filter_message_hook(hook)
        return consumer

    consumer = await cluster.start_client("puller", make)
    host = cluster.world.host("puller")

    async def story() -> None:
        assert await consumer.fetch_subscribe_message_queues(TOPIC) == QUEUES
        assert await consumer.fetch_message_queues_in_balance(TOPIC) == QUEUES
        for queue in QUEUES:
            result = await consumer.pull(queue, "*", 0, 32)
            assert [int(message.body) for message in result.messages] == [
                number for number in (queue.queue_id, queue.queue_id + 4) if number % 2 == 0
            ]
            assert {message.topic for message in result.messages} <= {TOPIC}
            assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 2)
            consumer.update_consume_offset(queue, result.next_begin_offset)
        await consumer.persist(QUEUES[0])
        assert await consumer.fetch_consume_offset(QUEUES[0], from_store=True) == 2
        await consumer.persist()

    await host.run(story())
    assert consumer.group == "red%desk"
    assert hook.topics == {TOPIC}
    assert heard[-1] == (TOPIC, QUEUES, QUEUES)
    assert [_offset(cluster, queue_id) for queue_id in range(4)] == [2] * 4


def _offset(cluster: Cluster, queue_id: int) -> int:
    return cluster.committed(queue_id, group="red%desk", topic=REAL)


@scenario()
async def test_a_lite_pull_consumer(cluster: Cluster) -> None:
    """Subscribed: messages, assignment, positions, pauses, seeks and commits."""
    await cluster.broker()
    await _send(cluster, 8)

    def make(runtime: SimRuntime, log: EventLog) -> LitePullConsumer:
        config = LitePullConsumerConfig(serialize_type=cluster.serialize_type)
        consumer = LitePullConsumer(
            "desk", name_server=cluster.name_server, namespace="red", config=config, runtime=runtime, log=log
        )
        consumer.subscribe(TOPIC)
        return consumer

    consumer = await cluster.start_client("lite", make)

    async def story() -> None:
        assert await consumer.fetch_message_queues(TOPIC) == QUEUES
        bodies: list[int] = []
        while len(bodies) < 8:
            messages = await consumer.poll()
            assert {message.topic for message in messages} <= {TOPIC}
            bodies += [int(message.body) for message in messages]
        assert sorted(bodies) == list(range(8))
        assert consumer.assignment() == QUEUES
        assert consumer.positions == dict.fromkeys(QUEUES, 2)
        await consumer.commit_sync(QUEUES[:1])
        assert await consumer.committed(QUEUES[0]) == 2
        consumer.pause(QUEUES[:1])
        consumer.resume(QUEUES[:1])
        await consumer.seek_to_begin(QUEUES[1])
        await consumer.seek(QUEUES[1], 1)
        (again,) = await consumer.poll()
        assert (again.topic, again.queue_id, again.queue_offset) == (TOPIC, 1, 1)
        await consumer.commit_sync({QUEUES[2]: 1})
        assert _offset(cluster, 2) == 1

    await cluster.world.host("lite").run(story())


@scenario()
async def test_an_assigned_lite_pull_consumer(cluster: Cluster) -> None:
    """It assigns queues by their bare names, and its listener gets bare names."""
    broker = await cluster.broker()
    await _send(cluster, 4)
    heard: list[tuple[str, list[MessageQueue]]] = []

    def make(runtime: SimRuntime, log: EventLog) -> LitePullConsumer:
        config = LitePullConsumerConfig(serialize_type=cluster.serialize_type)
        consumer = LitePullConsumer(
            "desk", name_server=cluster.name_server, namespace="red", config=config, runtime=runtime, log=log
        )
        consumer.assign(QUEUES[:2])
        consumer.set_sub_expression_for_assign(TOPIC, "*")
        return consumer

    consumer = await cluster.start_client("lite", make)

    async def story() -> None:
        await consumer.register_topic_message_queue_change_listener(TOPIC, lambda *told: heard.append(told))
        bodies: list[int] = []
        while len(bodies) < 2:
            bodies += [int(message.body) for message in await consumer.poll()]
        assert sorted(bodies) == [0, 1]
        assert consumer.assignment() == QUEUES[:2]

    await cluster.world.host("lite").run(story())
    broker.create_topic(REAL, 5)
    await cluster.world.until(lambda: heard, timeout_ms=120_000)
    assert heard == [(TOPIC, [*QUEUES, MessageQueue(TOPIC, BROKER, 4)])]
