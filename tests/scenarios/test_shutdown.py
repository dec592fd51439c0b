"""A consumer that shuts down: what it stores and releases, and in which order (wire.md 12.2)."""

from lockstep.order import Cause
from tests.scenarios.cluster import BROKER, GROUP, Cluster
from tests.scenarios.scenario import scenario

LOCK_LIFE_MS, ROUND_MS, AWAIT_TERMINATION_MS = 60_000, 20_000, 5_000
ROUND_TRIPS_MS = 100


@scenario(also_fenced=True)
async def test_offsets_are_stored_before_locks_are_released(cluster: Cluster) -> None:
    """The broker has the offset of the last message before it releases the queue: the next owner repeats nothing."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1")
    await cluster.consumer("c2")
    await cluster.at(6_000)
    await cluster.send(10)
    await cluster.all_seen()
    assert cluster.committed() < 10  # the rest would come within 5 s
    await cluster.leave("c1")
    await cluster.send(10)
    await cluster.all_seen()
    queue = f"Aircraft@{BROKER}:0"
    stored, released = (
        cluster.events("offset stored", queue=queue, offset=10),
        cluster.events("lock_released", queue=queue),
    )
    assert cluster.log.index(stored[0]) < cluster.log.index(released[0])
    assert cluster.seen.texts("c2") == [str(number) for number in range(10, 20)]
    assert cluster.seen.of("c2")[0].begin_ms - released[0].at_ms <= ROUND_TRIPS_MS  # it heard of the departure


@scenario(also_fenced=True)
async def test_leaving_waits_for_the_listener(cluster: Cluster) -> None:
    """The consumer waits for a running listener and commits its message; the next owner handles the later ones."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", work_ms=3_000)
    await cluster.consumer("c2")
    await cluster.send(5)
    await cluster.world.until(lambda: cluster.seen.running("c1"))
    await cluster.leave("c1")
    [only] = cluster.seen.of("c1")
    assert only.end_ms > 0
    await cluster.all_seen()
    assert cluster.seen.texts("c2") == list("1234")


@scenario()
async def test_a_stuck_listener_is_named_and_its_queue_stays_locked(cluster: Cluster) -> None:
    """A listener that does not return within await_termination_ms keeps its queue's lock until that expires; the
    others' are free at once."""
    cluster.expected.duplicates = {Cause.TAKEOVER}  # what it did was not committed
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=20_000)
    await cluster.consumer("c2")
    await cluster.world.until(lambda: cluster.owner(1) == cluster.world.host("c2").address)
    await cluster.send(1, queue_id=0)
    await cluster.world.until(lambda: cluster.seen.running("c1"))
    left_ms = cluster.world.elapsed_ms
    await cluster.leave("c1")
    assert cluster.world.elapsed_ms - left_ms >= AWAIT_TERMINATION_MS
    [stuck] = cluster.events("listener_stuck")
    assert stuck.fields["consequence"] == "the queue stays locked until its lock expires"
    assert stuck.fields["queue"] == f"Aircraft@{BROKER}:0"
    released = [line.fields["queue"] for line in cluster.events("lock_released", host=BROKER, since_ms=left_ms)]
    assert released == [f"%RETRY%{GROUP}@{BROKER}:0"]
    await cluster.world.until(lambda: cluster.owner(0) == cluster.world.host("c2").address, timeout_ms=90_000)
    [taken] = cluster.events("lock_taken_over", queue=f"Aircraft@{BROKER}:0")
    assert LOCK_LIFE_MS < taken.fields["age_ms"] <= LOCK_LIFE_MS + ROUND_MS + ROUND_TRIPS_MS
    await cluster.world.until(lambda: cluster.seen.texts("c2") == ["0"])


@scenario()
async def test_a_delayed_unlock_does_not_outlive_its_client(cluster: Cluster) -> None:
    """A queue was given away while busy, and its client stops before the 20 s are over. The client unlocks it with the
    others, so its next owner need not wait for the lock to expire."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=300)
    await cluster.send(100, queue_id=1)
    await cluster.at(10_000)
    await cluster.consumer("c2", work_ms=10)
    await cluster.world.until(lambda: cluster.events("queue_dropped", host="c1"))
    await cluster.world.sleep_ms(1_000)
    assert cluster.owner(1) == cluster.world.host("c1").address
    await cluster.leave("c1")
    left_ms = cluster.world.elapsed_ms
    assert cluster.events("lock_released", host=BROKER, queue=f"Aircraft@{BROKER}:1")
    await cluster.all_seen()
    assert cluster.seen.of("c2")[0].begin_ms - left_ms <= ROUND_TRIPS_MS  # it heard of the departure


@scenario()
async def test_a_trace_that_cannot_be_written_does_not_keep_the_locks(cluster: Cluster) -> None:
    """A message without a record is not committed, so it is handled again; but the queues are released at once, and the
    consumer unregisters."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1")
    await cluster.consumer("c2")
    await cluster.at(6_000)
    await cluster.send(10)
    await cluster.all_seen()
    assert consumer._member is not None
    trace = consumer._member.membership.trace
    assert trace is not None

    def no_space(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    trace._file.write = no_space  # type: ignore[method-assign,assignment]
    await cluster.leave("c1")
    left_ms = cluster.world.elapsed_ms
    assert cluster.events("trace_not_written", host="c1")
    assert cluster.events("lock_released", host=BROKER, queue=f"Aircraft@{BROKER}:0")
    await cluster.world.until(lambda: len(cluster.seen.of("c2")) > 0)
    assert cluster.seen.of("c2")[0].begin_ms - left_ms <= ROUND_TRIPS_MS
