"""A queue moves between living consumers: in order, with one owner at a time (wire.md 12.3)."""

from lockstep.order import Cause
from lockstep.simulation.articles.stories.members import call_keeps_the_lock, queue_changes_hands
from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import scenario

ROUND_MS, DELAYED_UNLOCK_MS = 20_000, 20_000
ROUND_TRIPS_MS = 100


async def _owners(cluster: Cluster, expected: list[str]) -> None:
    """Wait until the topic's queues, by id, are locked by these hosts, and let them work for 5 s."""

    def settled() -> bool:
        addresses = [cluster.world.host(name).address for name in expected]
        return [cluster.owner(queue_id) for queue_id in range(len(expected))] == addresses

    await cluster.world.until(settled, timeout_ms=70_000)
    await cluster.world.sleep_ms(5_000)


@scenario(also_fenced=True)
async def test_members_come_and_go_without_overlap(cluster: Cluster) -> None:
    """A second and a third consumer join a busy one, and the second leaves. All is in order, and of each queue at most
    the message that was handled when the queue was dropped is repeated."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=6)
    await cluster.consumer("c1", work_ms=50)
    sending = cluster.world.start(_send_steadily(cluster, 170_000), name="send steadily")
    await cluster.at(5_000)
    await cluster.consumer("c2", work_ms=50)
    await _owners(cluster, ["c1", "c1", "c1", "c2", "c2", "c2"])
    await cluster.consumer("c3", work_ms=50)
    await _owners(cluster, ["c1", "c1", "c2", "c2", "c3", "c3"])
    await cluster.leave("c2")
    await _owners(cluster, ["c1", "c1", "c1", "c3", "c3", "c3"])
    await sending
    await cluster.all_seen()
    report = await cluster.end()
    assert report.handled == len(cluster.sent)
    first, second, third = ["c1"], ["c1", "c2", "c1"], ["c1", "c2", "c3"]
    assert [cluster.seen.owners(queue_id) for queue_id in range(6)] == [first, first, second, third, third, third]
    assert report.duplicates.get(Cause.TAKEOVER, 0) <= 6  # whoever leaves hands over exactly what is left


async def _send_steadily(cluster: Cluster, until_ms: int) -> None:
    while cluster.world.elapsed_ms < until_ms:
        await cluster.send(6, keys=12)
        await cluster.world.sleep_ms(1000)


@scenario(also_fenced=True)
async def test_an_idle_queue_is_unlocked_at_once(cluster: Cluster) -> None:
    """The owner unlocks idle queues within milliseconds of the notice about a joiner, which has them one round later at
    most."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1")
    await cluster.at(10_000)
    await cluster.consumer("c2")
    await cluster.at(10_000 + ROUND_TRIPS_MS)
    released = cluster.events("lock_released", host=BROKER, queue="Aircraft@broker:1")
    assert len(released) == 1
    await cluster.world.until(lambda: cluster.owner(1) == cluster.world.host("c2").address)
    assert cluster.world.elapsed_ms <= 10_000 + ROUND_MS + ROUND_TRIPS_MS


@scenario()
async def test_a_busy_queue_is_unlocked_20_s_later(cluster: Cluster) -> None:
    """A queue that is dropped with cached messages is unlocked 20 s later. Then the next owner begins at the message
    that was handled when the queue was dropped, because a dropped queue commits nothing."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await queue_changes_hands(cluster)
    await cluster.all_seen()
    [dropped] = cluster.events("queue_dropped", host="A")
    [released] = cluster.events("lock_released", host=BROKER, queue="Aircraft@broker:1")
    waited_ms = released.at_ms - dropped.at_ms
    assert DELAYED_UNLOCK_MS <= waited_ms <= DELAYED_UNLOCK_MS + 300 + ROUND_TRIPS_MS
    last, first = cluster.seen.of("A")[-1], cluster.seen.of("B")[0]
    assert last.end_ms < released.at_ms <= first.begin_ms <= released.at_ms + ROUND_MS + ROUND_TRIPS_MS
    assert first.offset == last.offset


@scenario()
async def test_a_queue_that_comes_back_is_not_unlocked(cluster: Cluster) -> None:
    """A busy queue is dropped for a joiner that leaves at once. Its owner takes it again and keeps the lock when the 20
    s of the delayed unlock are over."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=300)
    await cluster.send(200, queue_id=1)
    await cluster.at(10_000)
    await cluster.consumer("c2")
    await cluster.world.until(lambda: cluster.events("queue_dropped", host="c1"))
    await cluster.leave("c2")
    await cluster.world.until(lambda: cluster.events("queue_acquired", host="c1", since_ms=10_000))
    for second in range(12, 40):
        await cluster.at(second * 1000)
        assert not await cluster.lock("rival", 1)
    await cluster.all_seen()
    assert not cluster.events("lock_released", queue=f"Aircraft@{BROKER}:1")


@scenario()
async def test_a_listener_that_runs_holds_the_lock_back(cluster: Cluster) -> None:
    """A queue whose listener runs for 30 s is unlocked when the listener has returned, not earlier."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await call_keeps_the_lock(cluster)
    await cluster.all_seen()
    [slow] = cluster.seen.of("A")
    [released] = cluster.events("lock_released", host=BROKER, queue="Aircraft@broker:1")
    assert released.at_ms > slow.end_ms
    assert cluster.events("unlock_waits_for_listener", host="A")
    assert [call.offset for call in cluster.seen.of("B")] == [0, 1, 2]


@scenario(also_fenced=True)
async def test_a_joiner_is_heard_of_at_once(cluster: Cluster) -> None:
    """NOTIFY_CONSUMER_IDS_CHANGED makes the other members rebalance within milliseconds of a joiner's first
    heartbeat."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1")
    await cluster.at(15_000)
    await cluster.consumer("c2")
    await cluster.at(15_000 + ROUND_TRIPS_MS)
    assert len(cluster.events("queue_dropped", host="c1")) == 1


@scenario(also_fenced=True)
async def test_without_notices_the_timer_notices(cluster: Cluster) -> None:
    """When the broker sends no notices the other members learn of a joiner in their 20 s round, not earlier."""
    await cluster.broker(queues=2, notify_consumer_ids_changed=False)
    await cluster.consumer("c1")
    started_ms = cluster.world.elapsed_ms
    await cluster.at(15_000)
    await cluster.consumer("c2")
    await cluster.at(60_000)
    [dropped] = cluster.events("queue_dropped", host="c1")
    assert started_ms + ROUND_MS <= dropped.at_ms <= started_ms + ROUND_MS + ROUND_TRIPS_MS
