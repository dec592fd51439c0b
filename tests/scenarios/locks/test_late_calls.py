"""Plain listeners that wait for a thread: lock and ownership are checked again when the call begins."""

from itertools import pairwise

from lockstep.client import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.order import Cause, Kind
from tests.scenarios.cluster import BROKER, Cluster, take_all
from tests.scenarios.scenario import scenario

LOCK_LIFE_MS, BELIEF_MS, ROUND_MS, UNLOCK_DELAY_MS = 60_000, 30_000, 20_000, 20_000
WORK_MS, QUEUES = 50_000, 4


async def _one_thread(cluster: Cluster, *, strategy: AllocateMessageQueueStrategy = allocate_averagely) -> None:
    """c1 has one thread, four queues and calls of 50 s; at 2 s it has a message in each queue."""
    listener = cluster.seen.plain_listener(cluster.world.host("c1"), WORK_MS)
    await cluster.broker_and_producer(queues=QUEUES)
    await cluster.consumer("c1", listener=listener, consume_thread_count=1, strategy=strategy)
    await cluster.at(2_000)
    for queue_id in range(QUEUES):
        await cluster.send(1, queue_id=queue_id)


@scenario()
async def test_a_call_that_waited_past_its_lock_never_begins(cluster: Cluster) -> None:
    """c1 is cut off at 22 s, and other members own its queues at about 85 s. Its first call had begun; three calls that
    wait for its only thread find the lock expired: they are not made and not committed."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await _one_thread(cluster, strategy=take_all)
    await cluster.at(5_000)
    await cluster.consumer("c2", strategy=take_all)
    await cluster.at(22_000)
    cluster.world.partition("c1", BROKER)
    await cluster.at(230_000)
    assert len(cluster.seen.of("c1")) == 1
    assert sorted(call.queue.queue_id for call in cluster.seen.of("c2")) == list(range(QUEUES))
    late = cluster.events("call_not_begun", host="c1")
    assert len(late) == QUEUES - 1
    assert all(WORK_MS - ROUND_MS <= line.fields["waited_ms"] <= WORK_MS for line in late)
    assert {line.fields["why"] for line in late} == {"its lock had expired"}
    cluster.world.repair("c1", BROKER)
    await cluster.at(300_000)
    assert not cluster.events("offset_committed_backwards")


@scenario(also_fenced=True)
async def test_a_queue_whose_call_waits_is_given_away_at_once(cluster: Cluster) -> None:
    """A call that waits for a thread is not a running listener: a joining member gets the queue with the delayed
    unlock, and the old owner never makes the call."""
    await _one_thread(cluster)
    await cluster.at(10_000)
    await cluster.consumer("c2")
    await cluster.at(10_000 + UNLOCK_DELAY_MS + ROUND_MS + 5_000)
    given = {call.queue.queue_id for call in cluster.seen.of("c2")}
    assert len(given) == QUEUES // 2
    assert not cluster.events("unlock_waits_for_listener")
    await cluster.all_seen()
    await cluster.at(230_000)
    assert not given & {call.queue.queue_id for call in cluster.seen.of("c1")}
    assert len(cluster.seen.of("c1")) == QUEUES // 2


@scenario(also_fenced=True)
async def test_a_call_that_waits_long_is_told_of_and_made(cluster: Cluster) -> None:
    """The lock is renewed, so the call is made however long it waited. The log names the wait once a minute, running
    info has its length, and the time of the call does not include it."""
    await _one_thread(cluster)
    await cluster.all_seen(timeout_ms=QUEUES * WORK_MS + 5_000)
    begins = [call.begin_ms for call in cluster.seen.of("c1")]
    assert len(begins) == QUEUES
    assert all(later - earlier >= WORK_MS for earlier, later in pairwise(begins))
    waited = cluster.events("call_waited", host="c1")
    assert len(waited) in {2, 3}
    assert max(line.fields["waited_ms"] for line in waited) >= WORK_MS
    handled = [record for record in cluster.records("c1") if record["event"] == "handled"]
    for record in handled:
        assert record["mono_ns"] - record["begin_mono_ns"] <= (WORK_MS + 100) * 1_000_000


@scenario(also_fenced=True)
async def test_a_shutdown_begins_no_call_that_waits(cluster: Cluster) -> None:
    """The running call is awaited and committed; calls that wait for its thread are never made, and the next owner
    handles their messages once."""
    listener = cluster.seen.plain_listener(cluster.world.host("c1"), 3_000)
    await cluster.broker_and_producer(queues=QUEUES)
    await cluster.consumer("c1", listener=listener, consume_thread_count=1)
    await cluster.at(2_000)
    for queue_id in range(QUEUES):
        await cluster.send(1, queue_id=queue_id)
    await cluster.at(3_000)
    await cluster.leave("c1")
    [only] = cluster.seen.of("c1")
    assert only.good
    assert cluster.committed(only.queue.queue_id) == 1
    await cluster.consumer("c2")
    await cluster.all_seen()
    assert len(cluster.seen.all) == QUEUES
    waiting = cluster.events("call_not_begun", host="c1")
    assert {line.fields["why"] for line in waiting} == {"the consumer stops"}
    assert {line.level for line in waiting} == {"info"}


@scenario()
async def test_a_call_that_slept_in_its_wait_never_begins(cluster: Cluster) -> None:
    """The machine sleeps for 300 s while three calls wait for the only thread. After waking the running call ends, and
    the three are not made: the lock expired during the sleep."""
    cluster.expected.duplicates = {Cause.UNEXPLAINED}
    cluster.expected.violations = {Kind.OVERLAP: 1, Kind.STALE_REPEAT: 1}  # the call that was at work when it slept
    cluster.expected.overlaps = 1
    await _one_thread(cluster, strategy=take_all)
    await cluster.at(5_000)
    await cluster.consumer("c2", strategy=take_all)
    await cluster.at(51_900)
    cluster.world.suspend_for("c1", 300_000)
    await cluster.at(400_000)
    assert len(cluster.seen.of("c1")) == 1
    assert len(cluster.seen.of("c2")) == QUEUES
    assert {line.fields["why"] for line in cluster.events("call_not_begun", host="c1")} == {"its lock had expired"}
