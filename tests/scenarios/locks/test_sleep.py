"""A machine sleeps, or its wall clock is set: locks expire although timers stand still (docs/order.md 2)."""

from lockstep.client import ConsumeOrderlyStatus, Message, MessageExt, MessageQueue
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.order import Cause
from tests.scenarios.cluster import BROKER, PRODUCER, TOPIC, Cluster, take_all
from tests.scenarios.scenario import scenario

SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
ASLEEP_MS, WAKE_SEEN_MS, ROUND_MS = 300_000, 1_000, 20_000
RECEIVED_MS = 20


def _fail_the_fourth(message: MessageExt, _context: object) -> ConsumeOrderlyStatus | None:
    return SUSPEND if message.body == b"3" else None


async def _asleep_between_two_attempts(cluster: Cluster, ordering: OrderingName) -> int:
    """c1 has committed 3 and tries the fourth message each second; asleep for 300 s, it is succeeded by c2, which
    commits all 60. When c1 woke."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", answer=_fail_the_fourth, strategy=take_all, ordering=ordering)
    await cluster.at(5_000)
    await cluster.consumer("c2", strategy=take_all, ordering=ordering)
    await cluster.at(15_000)
    await cluster.send(60, keys=1)
    await cluster.at(22_500)
    assert cluster.committed() == 3
    assert not cluster.seen.running("c1")
    cluster.world.suspend("c1")
    await cluster.all_seen()
    await cluster.at(22_500 + ASLEEP_MS)
    assert cluster.committed() == 60
    cluster.world.wake("c1")
    return cluster.world.elapsed_ms


async def _begins_nothing(cluster: Cluster, ordering: OrderingName) -> None:
    woke_ms = await _asleep_between_two_attempts(cluster, ordering)
    await cluster.at(woke_ms + 60_000)
    assert not cluster.seen.of("c1", since_ms=woke_ms)
    stored = cluster.events("offset stored", host=BROKER, queue=f"{TOPIC}@{BROKER}:0", since_ms=woke_ms)
    assert {line.fields["offset"] for line in stored} == {60}
    assert cluster.owner() == cluster.world.host("c2").address
    await cluster.leave("c2")
    await cluster.send(2, keys=1)
    await cluster.all_seen()
    assert cluster.seen.texts("c1")[-2:] == ["60", "61"]


@scenario(also_fenced=True)
async def test_an_owner_that_slept_begins_nothing(cluster: Cluster) -> None:
    """It sleeps for 300 s between two calls, and another member gets its locks. After waking it neither calls its
    listener nor commits its old offset until it has a lock again; then it begins at the other's commit."""
    await _begins_nothing(cluster, "queue")


@scenario(also_fenced=True)
async def test_an_owner_that_slept_begins_nothing_by_key(cluster: Cluster) -> None:
    """The same with order by key."""
    await _begins_nothing(cluster, "key")


@scenario()
async def test_what_came_due_in_a_sleep_is_done_on_waking(cluster: Cluster) -> None:
    """Timers continue where they stood before the sleep. Renewal and heartbeat, which are due by the clock, are sent
    within a second of waking; the log has the length of the sleep."""
    await cluster.broker(queues=1)
    await cluster.consumer("c1")
    await cluster.at(22_500)  # renewed at 21 s: the next timer is at 41 s
    cluster.world.suspend_for("c1", 40_000)
    woke_ms = 62_500
    await cluster.at(woke_ms + WAKE_SEEN_MS + RECEIVED_MS)
    [line] = cluster.events("machine_slept", host="c1")
    assert (line.at_ms, line.fields["slept_ms"]) == (woke_ms + WAKE_SEEN_MS, 40_000)
    for request in ("LOCK_BATCH_MQ", "HEART_BEAT"):
        heard_ms = [at_ms for at_ms in cluster.request_log.times_ms("c1", request) if at_ms > 22_500]
        assert heard_ms
        assert all(woke_ms + WAKE_SEEN_MS <= at_ms <= woke_ms + WAKE_SEEN_MS + RECEIVED_MS for at_ms in heard_ms)
    assert cluster.owner() == cluster.world.host("c1").address


@scenario(also_fenced=True)
async def test_a_broker_that_slept_gives_away_what_expired(cluster: Cluster) -> None:
    """The lock table counts the sleep too: another client gets the lock of a killed one at once."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.broker(queues=1)
    await cluster.consumer("c1", strategy=take_all)
    await cluster.at(22_500)
    cluster.world.suspend(BROKER)
    cluster.crash("c1", silently=True)
    await cluster.at(22_500 + ASLEEP_MS)
    cluster.world.wake(BROKER)
    assert await cluster.lock("rival")


@scenario(also_fenced=True)
async def test_a_broker_that_slept_delivers_what_is_due(cluster: Cluster) -> None:
    """A message delayed by 2 h is delivered at its time although the broker slept for an hour of them, and one delayed
    by a minute within a second of waking."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.broker(queues=1)
    producer = await cluster.producer()
    sent_ms = cluster.world.elapsed_ms
    for text, level in (("0", 18), ("1", 5)):
        message = Message(TOPIC, text.encode(), delay_level=level)
        await cluster.world.host(PRODUCER).run(producer.send(message, queue=MessageQueue(TOPIC, BROKER, 0)))
    await cluster.at(30_000)
    cluster.world.suspend_for(BROKER, 3_600_000)
    await cluster.at(3_630_000 + WAKE_SEEN_MS + RECEIVED_MS)
    assert [message.body for message in cluster.stored()] == [b"1"]
    [line] = cluster.events("machine_slept", host=BROKER)
    assert line.fields["slept_ms"] == 3_600_000
    await cluster.at(sent_ms + 7_200_000 - 10)
    assert len(cluster.stored()) == 1
    await cluster.at(sent_ms + 7_200_000 + RECEIVED_MS)
    assert [message.body for message in cluster.stored()] == [b"1", b"0"]
    await cluster.end(judge=False)  # nobody consumes


@scenario(also_fenced=True)
async def test_a_clock_that_was_ahead_delays_nothing_for_long(cluster: Cluster) -> None:
    """A broker's clock was an hour ahead, and it restarts with the right one. A message that it had delayed by 10 s is
    delivered at once, later messages as usual, and the locks of a client that ran all the time are renewed."""
    cluster.world.set_clock(BROKER, 3_600_000)
    await cluster.broker(queues=1, data_dir="data")
    producer = await cluster.producer()
    await cluster.consumer("c1")
    await cluster.send(3)
    queue = MessageQueue(TOPIC, BROKER, 0)
    await cluster.world.host(PRODUCER).run(producer.send(Message(TOPIC, b"3", delay_level=3), queue=queue))
    await cluster.at(5_000)
    cluster.world.set_clock(BROKER, 0)
    await cluster.at(6_000)
    await cluster.stop_broker()
    cluster.world.crash(BROKER)
    await cluster.broker(queues=1, data_dir="data")
    assert cluster.world.host(BROKER).now_ms() == cluster.world.now_ms
    await cluster.world.until(lambda: len(cluster.seen.texts()) == 4, timeout_ms=20_000)
    cluster.sent += [str(number) for number in range(4, 7)]
    for number in range(4, 7):
        message = Message(TOPIC, str(number).encode())
        await cluster.world.host(PRODUCER).run(producer.send(message, queue=queue))
    await cluster.all_seen()
    assert cluster.seen.texts() == [str(number) for number in range(7)]
    assert cluster.owner() == cluster.world.host("c1").address
