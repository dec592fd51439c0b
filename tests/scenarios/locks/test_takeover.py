"""A consumer dies, stalls or is cut off: which member gets its queues, when, and which messages are handled twice."""

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt
from lockstep.order import Cause, Kind
from tests.scenarios.cluster import BROKER, Cluster, take_all
from tests.scenarios.scenario import scenario

SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
LOCK_LIFE_MS, BELIEF_MS, ROUND_MS, PERSIST_MS = 60_000, 30_000, 20_000, 5_000
ROUND_TRIPS_MS = 100


# Crashes ----------------------------------------------------------------------------------------------------------


@scenario()
async def test_a_killed_consumer_is_succeeded_after_its_locks_expire(cluster: Cluster) -> None:
    """After SIGKILL the other members have its queues within a round after 60 s. They lose nothing, and repeat only
    messages that it had not committed."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=4)
    await cluster.consumer("c1", work_ms=100)
    await cluster.consumer("c2", work_ms=100)
    await cluster.at(45_000)
    await cluster.send(400, keys=40)
    await cluster.at(50_000)
    cluster.crash("c1")
    renewed_ms = {cluster.world.elapsed_ms - row.age_ms for row in cluster.locks().values()}
    await cluster.all_seen()
    report = await cluster.end()
    taken = cluster.events("lock_taken_over", host=BROKER)
    assert len([line for line in taken if line.fields["queue"].startswith("Aircraft")]) == 2
    for line in taken:
        assert LOCK_LIFE_MS < line.fields["age_ms"] <= LOCK_LIFE_MS + ROUND_MS + ROUND_TRIPS_MS
    assert min(renewed_ms) + LOCK_LIFE_MS < min(line.at_ms for line in taken)
    longest = report.longest_handover
    assert longest is not None
    assert LOCK_LIFE_MS - ROUND_MS <= longest.duration_ms <= LOCK_LIFE_MS + ROUND_MS + PERSIST_MS
    assert report.duplicates[Cause.TAKEOVER] <= 2 * PERSIST_MS // 100 + 2


@scenario()
async def test_a_dead_machine_is_missed_by_its_heartbeats(cluster: Cluster) -> None:
    """A machine that vanishes sends no FIN: its group learns of it when its last heartbeat is 120 s old, and gets its
    queues at once, because their locks have expired."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=100)
    await cluster.consumer("c2", work_ms=100)
    await cluster.at(45_000)
    await cluster.send(100)
    await cluster.at(47_000)
    cluster.crash("c1", silently=True)
    await cluster.all_seen(timeout_ms=200_000)
    [noticed] = cluster.events("heartbeat_expired", host=BROKER)
    taken = cluster.events("lock_taken_over", host=BROKER)
    assert 47_000 + 120_000 - 30_000 < noticed.at_ms <= 47_000 + 120_000 + 10_000 + ROUND_TRIPS_MS
    assert max(line.at_ms for line in taken) <= noticed.at_ms + ROUND_TRIPS_MS


@scenario()
async def test_a_restarted_consumer_is_another(cluster: Cluster) -> None:
    """A consumer that restarts a second after it was killed has a new identity and must wait until its old locks
    expire."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=100)
    await cluster.at(22_000)
    await cluster.send(100)
    await cluster.at(25_000)
    cluster.crash("c1")
    await cluster.at(26_000)
    await cluster.consumer("c1", work_ms=100)
    await cluster.all_seen()
    first = cluster.seen.of(since_ms=25_000)[0]
    assert 21_000 + LOCK_LIFE_MS < first.begin_ms <= 21_000 + LOCK_LIFE_MS + ROUND_MS + ROUND_TRIPS_MS


# Stalls -----------------------------------------------------------------------------------------------------------


async def _stall(cluster: Cluster, at_ms: int) -> None:
    """Two who both want the queue: c1, renewed at 21 s, stalls for 70 s; c2's rounds are at 5, 25, 45, 65, 85 s."""
    await cluster.at(at_ms)
    cluster.world.stall("c1", 70_000)
    await cluster.at(81_000)
    assert cluster.owner() == cluster.world.host("c1").address
    await cluster.at(85_500)
    assert cluster.owner() == cluster.world.host("c2").address
    await cluster.at(at_ms + 70_000)


@scenario()
async def test_a_stalled_consumer_finds_its_lease_gone(cluster: Cluster) -> None:
    """A stall of 70 s with cached messages and without a running listener: the other member gets the queue when the
    lock expires. Afterwards the stalled one handles and commits nothing until it has the lock again; then it handles
    new messages."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=1)

    def hold_the_fourth(message: MessageExt, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        context.suspend_current_queue_time_ms = 30_000
        return SUSPEND if message.body == b"3" else None

    await cluster.consumer("c1", answer=hold_the_fourth, strategy=take_all)
    await cluster.at(5_000)
    await cluster.consumer("c2", strategy=take_all)
    await cluster.at(15_000)
    await cluster.send(10)
    await _stall(cluster, 21_500)
    await cluster.send(10)
    await cluster.at(130_000)
    assert cluster.seen.texts("c1") == list("0123")
    assert cluster.seen.texts("c2") == [str(number) for number in range(3, 20)]
    assert cluster.committed() == 20
    await cluster.leave("c2")
    await cluster.send(5)
    await cluster.all_seen()
    assert cluster.seen.texts("c1") == [*"0123", "20", "21", "22", "23", "24"]
    assert not cluster.events("offset_committed_backwards")


@scenario()
async def test_a_stall_inside_a_listener_overlaps(cluster: Cluster) -> None:
    """No lock can stop a running listener: it ends after the next owner began, and the checker reports this overlap and
    the repeated message. Nothing of it is committed, and no further message is handled."""
    cluster.expected.duplicates = {Cause.UNEXPLAINED}
    cluster.expected.violations = {Kind.OVERLAP: 1, Kind.STALE_REPEAT: 1}
    cluster.expected.overlaps = 1
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", work_ms=1000, strategy=take_all)
    await cluster.at(5_000)
    await cluster.consumer("c2", work_ms=5000, strategy=take_all)
    await cluster.at(10_000)
    await cluster.send(2)
    await cluster.at(21_600)
    await cluster.send()
    await _stall(cluster, 22_000)
    await cluster.at(110_000)
    assert cluster.seen.texts("c1") == list("012")
    [stalled] = [call for call in cluster.seen.of("c1") if call.text == "2"]
    [again] = [call for call in cluster.seen.of("c2") if call.text == "2"]
    assert stalled.begin_ms < again.begin_ms < stalled.end_ms
    await cluster.leave("c2")
    await cluster.send(2)
    await cluster.all_seen()
    assert cluster.seen.texts("c1") == list("01234")
    assert not cluster.events("offset_committed_backwards")
