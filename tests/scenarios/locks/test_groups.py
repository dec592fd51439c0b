"""Which member owns which queue: strategies, topics that are added and removed (wire.md 12.3)."""

from typing import Any

from lockstep.client import (
    AllocateByConsistentHash,
    AllocateMachineRoomNearby,
    AllocateMessageQueueStrategy,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from tests.scenarios.cluster import BROKER, GROUP, PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import scenario

OTHER = "Weather"
ROUND_MS = 20_000
SUSPEND_MS, SWEEP_MS = 15_000, 5_000
ROUND_TRIPS_MS = 100


def _owned(cluster: Cluster, host: str, topic: str = TOPIC) -> list[int]:
    client = cluster.client(host)
    assert isinstance(client, PushConsumer)
    return [queue.queue_id for queue in client.assigned_queues if queue.topic == topic]


# Strategies --------------------------------------------------------------------------------------------------


async def _three_members(cluster: Cluster, strategy: AllocateMessageQueueStrategy) -> list[list[int]]:
    """The queues of three members of one strategy, when all have settled and handled everything in order."""
    await cluster.broker_and_producer(queues=8)
    hosts = ["c1", "c2", "c3"]
    for host in hosts:
        await cluster.consumer(host, strategy=strategy)
    await cluster.world.sleep_ms(3 * ROUND_MS)
    await cluster.send(48, keys=16)
    await cluster.all_seen()
    shares = [_owned(cluster, host) for host in hosts]
    assert sorted(queue_id for share in shares for queue_id in share) == list(range(8))
    return shares


@scenario(also_fenced=True)
async def test_consistent_hash_moves_only_what_it_must(cluster: Cluster) -> None:
    """All queues have an owner; when a member leaves, the others keep what they have and take its queues."""
    before = await _three_members(cluster, AllocateByConsistentHash())
    acquired = len(cluster.events("queue_acquired"))
    await cluster.leave("c2")
    await cluster.world.sleep_ms(2 * ROUND_MS)
    after = [_owned(cluster, host) for host in ("c1", "c3")]
    assert sorted([*after[0], *after[1]]) == list(range(8))
    assert set(before[0]) <= set(after[0])
    assert set(before[2]) <= set(after[1])
    took = [line for line in cluster.events("queue_acquired")[acquired:] if TOPIC in str(line.fields["queue"])]
    assert len(took) == len(before[1])


@scenario(also_fenced=True)
async def test_the_room_next_door(cluster: Cluster) -> None:
    """Queues of a machine room go to members of that room; all members share queues of a room without members."""
    rooms = {f"{cluster.world.host(host).address}": room for host, room in (("c1", "a"), ("c2", "b"), ("c3", "b"))}
    strategy = AllocateMachineRoomNearby(
        lambda queue: "abc"[queue.queue_id % 3] if queue.topic == TOPIC else "c",
        lambda client_id: rooms[client_id.partition("@")[0]],
    )
    assert await _three_members(cluster, strategy) == [[0, 2, 3, 6], [1, 4, 5], [7]]


# Topics ------------------------------------------------------------------------------------------------------


class TwoTopics:
    """A consumer of what it is told to subscribe to, on a host; `texts` is what its listener got."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.texts: list[tuple[str, str]] = []

    async def start(self, *topics: str, host: str = "c1") -> PushConsumer:
        def listen(messages: list[MessageExt], _context: Any) -> None:
            self.texts.extend((message.topic, message.body.decode()) for message in messages)

        return await self.cluster.own_consumer(host, GROUP, listen, topics=topics)

    async def send(self, topic: str, text: str, *, tags: str | None = None) -> None:
        producer = self.cluster.client(PRODUCER)
        assert isinstance(producer, Producer)
        await self.cluster.world.host(PRODUCER).run(
            producer.send(Message(topic, text.encode(), tags), sharding_key=text)
        )

    async def have(self, *texts: tuple[str, str], within_ms: int = 5_000) -> None:
        await self.cluster.world.until(lambda: set(texts) <= set(self.texts), timeout_ms=within_ms, poll_ms=10)

    def on_host(self, call: Any, host: str = "c1") -> Any:
        """Run a plain call on the consumer's host."""

        async def run() -> None:
            call()

        return self.cluster.world.host(host).run(run())


async def _two_topics(cluster: Cluster) -> TwoTopics:
    server = await cluster.broker(queues=2)
    server.create_topic(OTHER, 3)
    await cluster.producer()
    return TwoTopics(cluster)


def _lock_owners(cluster: Cluster, topic: str) -> dict[int, str]:
    return {queue_id: row.client_id for queue_id, row in cluster.locks(topic=topic).items()}


@scenario(also_fenced=True)
async def test_a_topic_that_is_subscribed_while_it_runs(cluster: Cluster) -> None:
    """The broker learns of the subscription and the queues are consumed at once, not after the next round."""
    two = await _two_topics(cluster)
    consumer = await two.start(TOPIC)
    await cluster.at(7_000)
    await two.on_host(lambda: consumer.subscribe(OTHER))
    await cluster.world.sleep_ms(ROUND_TRIPS_MS)
    [heartbeat, *_] = [at_ms for at_ms in cluster.request_log.times_ms("c1", "HEART_BEAT") if at_ms >= 7_000]
    assert heartbeat < 7_000 + ROUND_TRIPS_MS
    assert _owned(cluster, "c1", OTHER) == [0, 1, 2]
    await two.send(OTHER, "b")
    await two.have((OTHER, "b"))
    assert _owned(cluster, "c1") == [0, 1]
    await cluster.end(judge=False)


@scenario()
async def test_a_topic_that_is_left_while_it_runs(cluster: Cluster) -> None:
    """Its offsets are stored and its locks are released within milliseconds; the other topic goes on. RocketMQ stores
    nothing and lets the locks expire."""
    two = await _two_topics(cluster)
    consumer = await two.start(TOPIC, OTHER)
    await two.send(OTHER, "b")
    await two.have((OTHER, "b"))
    await cluster.at(7_000)
    await two.on_host(lambda: consumer.unsubscribe(OTHER))
    await cluster.world.sleep_ms(ROUND_TRIPS_MS)
    assert _lock_owners(cluster, OTHER) == {}
    [stored] = [line for line in cluster.events("offset stored", offset=1) if line.at_ms >= 7_000]
    assert OTHER in stored.fields["queue"]
    assert (_owned(cluster, "c1"), _owned(cluster, "c1", OTHER)) == ([0, 1], [])
    await two.send(OTHER, "nobody's")
    await two.send(TOPIC, "a")
    await two.have((TOPIC, "a"))
    await cluster.world.sleep_ms(2 * ROUND_MS)
    assert (OTHER, "nobody's") not in two.texts
    await two.on_host(lambda: consumer.subscribe(OTHER))
    await two.have((OTHER, "nobody's"))
    assert two.texts.count((OTHER, "b")) == 1, "it goes on where it left"
    await cluster.end(judge=False)


@scenario(also_fenced=True)
async def test_another_expression_while_it_runs(cluster: Cluster) -> None:
    """From then on messages with the new tags are handled and the old ones are not; no queue moves. The pull on its way
    asked for the old tags: RocketMQ skips messages that arrive until it is answered; here its answer is ignored."""
    two = await _two_topics(cluster)
    consumer = await two.start(TOPIC)
    for tag, other in (("red", "blue"), ("blue", "red")):
        await cluster.world.sleep_ms(1_000)
        await two.on_host(lambda wanted=tag: consumer.subscribe(TOPIC, wanted))
        await cluster.world.sleep_ms(ROUND_TRIPS_MS)
        await two.send(TOPIC, f"{other} for {tag}", tags=other)
        await two.send(TOPIC, f"{tag} for {tag}", tags=tag)
        await two.have((TOPIC, f"{tag} for {tag}"), within_ms=SUSPEND_MS + SWEEP_MS)
    assert [text for _, text in two.texts] == ["red for red", "blue for blue"]
    assert len(cluster.events("queue_acquired", host="c1")) == 3, "with the retry topic's"
    await cluster.end(judge=False)


@scenario(also_fenced=True)
async def test_several_consumers_in_one_process(cluster: Cluster) -> None:
    """Members of one group on one host share its queues as those of several hosts do."""
    two = await _two_topics(cluster)
    runtime = cluster.world.host("c1")
    first = await two.start(TOPIC)
    second = await two.start(TOPIC)  # the cluster shuts this one down
    await cluster.world.sleep_ms(3 * ROUND_MS)
    assert first.client_id != second.client_id
    assert [len([q for q in each.assigned_queues if q.topic == TOPIC]) for each in (first, second)] == [1, 1]
    texts = [(TOPIC, text) for text in "abcdefgh"]
    for _, text in texts:
        await two.send(TOPIC, text)
    await two.have(*texts)
    assert sorted(two.texts) == texts
    await runtime.run(first.shutdown())
    await cluster.end(judge=False)


@scenario(also_fenced=True)
async def test_a_member_that_leaves_its_last_topic_leaves_the_group(cluster: Cluster) -> None:
    """The other member has all queues, and handles what was cached, within a second. When it subscribes again, they
    share them again."""
    two = await _two_topics(cluster)
    await two.start(TOPIC)
    leaves = await two.start(TOPIC, host="c2")
    await cluster.run_for("45s")
    assert len(_owned(cluster, "c2")) == 1
    await two.on_host(lambda: leaves.unsubscribe(TOPIC), "c2")
    await cluster.run_for("1s")
    assert (_owned(cluster, "c1"), _owned(cluster, "c2")) == ([0, 1], [])
    assert cluster.events("group_left", host="c2")
    for text in "abcd":
        await two.send(TOPIC, text)
    await two.have(*((TOPIC, text) for text in "abcd"), within_ms=1_000)
    assert not cluster.events("subscriptions_differ")
    await two.on_host(lambda: leaves.subscribe(TOPIC), "c2")
    await cluster.world.until(lambda: len(_owned(cluster, "c1")) == len(_owned(cluster, "c2")) == 1)
    await cluster.end(judge=False)


@scenario(also_fenced=True)
async def test_a_member_that_leaves_one_of_two_topics(cluster: Cluster) -> None:
    """RocketMQ's members go on to count it: both say so. The other member stands still for a second, not until its next
    heartbeat."""
    two = await _two_topics(cluster)
    await two.start(TOPIC, OTHER)
    leaves = await two.start(TOPIC, OTHER, host="c2")
    await cluster.run_for("45s")
    await two.on_host(lambda: leaves.unsubscribe(OTHER), "c2")
    began_ms = cluster.world.elapsed_ms
    [queue_id, *_] = _owned(cluster, "c1", OTHER)
    producer = cluster.client(PRODUCER)
    assert isinstance(producer, Producer)
    for number in range(20):
        queue = MessageQueue(OTHER, BROKER, queue_id)
        await cluster.world.host(PRODUCER).run(producer.send(Message(OTHER, b"%d" % number), queue=queue))
        await cluster.run_for("1s")
        await two.have((OTHER, str(number)), within_ms=3_000)
    assert len(cluster.events("queues_without_owner", host="c2", topic=OTHER)) == 1
    assert len(cluster.events("subscriptions_differ", host="c1", since_ms=began_ms)) == 1
    await cluster.run_for("60s")
    assert len(cluster.events("subscriptions_differ", host=BROKER)) == 1
    await cluster.end(judge=False)


@scenario()
async def test_members_with_other_tags(cluster: Cluster) -> None:
    """The broker says it once; members that become equal within a heartbeat are no event."""
    two = await _two_topics(cluster)
    first, second = await two.start(TOPIC), await two.start(TOPIC, host="c2")
    for consumer, host in ((first, "c1"), (second, "c2")):
        await two.on_host(lambda consumer=consumer: consumer.subscribe(TOPIC, "red"), host)
        await cluster.run_for("2s")
    await cluster.run_for("120s")
    assert not cluster.events("subscriptions_differ")
    await two.on_host(lambda: second.subscribe(TOPIC, "blue"), "c2")
    await cluster.run_for("180s")
    (line,) = cluster.events("subscriptions_differ")
    assert (line.host, line.level, line.fields["group"]) == (BROKER, "warning", GROUP)
    await cluster.end(judge=False)


@scenario()
async def test_a_topic_that_does_not_exist(cluster: Cluster) -> None:
    """One warning at once, and none in each round."""
    two = await _two_topics(cluster)
    await two.start(TOPIC, "Nowhere")
    await cluster.run_for("1s")
    (line,) = cluster.events("topic_route_missing")
    await cluster.run_for("120s")
    assert cluster.events("topic_route_missing") == [line]
    assert (line.level, line.fields["topic"], line.fields["why"]) == ("warning", "Nowhere", "it does not exist")
    await cluster.end(judge=False)
