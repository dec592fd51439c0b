"""The timers of a client and of its broker, to the millisecond: on a network without latency what a client asks is
heard in the same millisecond (wire.md 12.1)."""

from itertools import pairwise

from lockstep.client import ConsumerConfig
from tests.scenarios.cluster import BROKER, GROUP, PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

START_MS = 500
HEARTBEAT_MS, ROUTE_MS, REBALANCE_MS = 30_000, 30_000, 20_000
PERSIST_FIRST_MS, PERSIST_MS = 10_000, 5_000
SUSPEND_MS, SWEEP_MS = 15_000, 5_000
RUN_MS, AGAIN_MS = 60_000, 10
ILLEGAL_MS = 10_000
SILENCE_MS, SCAN_MS = 120_000, 10_000


async def _alone(cluster: Cluster, *, work_ms: int = 0, until_ms: int = 0) -> None:
    """A consumer of one queue, from START_MS on."""
    await cluster.broker(queues=1)
    await cluster.at(START_MS)
    await cluster.consumer("c1", work_ms=work_ms)
    if until_ms:
        await cluster.at(until_ms)


@scenario(INSTANT, also_fenced=True)
async def test_heartbeats_come_after_1_s_and_then_each_30_s(cluster: Cluster) -> None:
    """These are beside the heartbeats of a start, for a consumer, and for a producer that knows a broker."""
    await _alone(cluster)
    await cluster.producer()
    await cluster.send(1)
    await cluster.at(200_000)
    expected = list(range(START_MS + 1_000, 200_000, HEARTBEAT_MS))
    for host in ("c1", PRODUCER):
        times_ms = cluster.request_log.times_ms(host, "HEART_BEAT")
        assert [at_ms for at_ms in times_ms if at_ms > START_MS] == expected
        assert times_ms[0] == START_MS


@scenario(INSTANT, also_fenced=True)
async def test_routes_are_asked_for_each_30_s(cluster: Cluster) -> None:
    """For every topic that the client knows: the subscribed topic and the retry topic."""
    await _alone(cluster, until_ms=200_000)
    times_ms = cluster.request_log.times_ms("c1", "GET_ROUTEINFO_BY_TOPIC")
    later = [at_ms for at_ms in times_ms if at_ms > START_MS]
    assert later == [at_ms for at_ms in range(START_MS + ROUTE_MS, 200_000, ROUTE_MS) for _ in range(2)]


@scenario(INSTANT, also_fenced=True)
async def test_rebalances_come_each_20_s(cluster: Cluster) -> None:
    """Each one asks a broker for the members of the group: once, for its topic and the retry topic are both there.

    RocketMQ asks for each topic.
    """
    await _alone(cluster, until_ms=200_000)
    times_ms = cluster.request_log.times_ms("c1", "GET_CONSUMER_LIST_BY_GROUP")
    later = [at_ms for at_ms in times_ms if at_ms > START_MS]
    assert later == list(range(START_MS + REBALANCE_MS, 200_000, REBALANCE_MS))


@scenario(INSTANT, also_fenced=True)
async def test_offsets_are_persisted_after_10_s_and_then_each_5_s(cluster: Cluster) -> None:
    """Every known offset is stored, changed or not."""
    await _alone(cluster)
    await cluster.producer()
    await cluster.send(1)
    await cluster.at(100_000)
    stored = cluster.events("offset stored", host=BROKER, queue=f"{TOPIC}@{BROKER}:0", offset=1)
    times_ms = cluster.request_log.times_ms("c1", "UPDATE_CONSUMER_OFFSET")
    assert sorted(set(times_ms)) == list(range(START_MS + PERSIST_FIRST_MS, 100_000, PERSIST_MS))
    assert {line.at_ms for line in stored} >= set(times_ms)


@scenario(INSTANT, also_fenced=True)
async def test_an_empty_pull_is_answered_after_15_000_ms(cluster: Cluster) -> None:
    """By the first of the broker's sweeps after the deadline, one each 5 s: never a millisecond earlier, at most 5 s
    later. The client pulls again in the same millisecond."""
    await _alone(cluster, until_ms=100_000)
    pulls = sorted(set(cluster.request_log.times_ms("c1", "PULL_MESSAGE")))
    assert pulls[0] == START_MS
    waits_ms = [later - earlier for earlier, later in pairwise(pulls)]
    assert waits_ms[0] == SUSPEND_MS + SWEEP_MS - START_MS  # sweeps are at 15 000 and 20 000 since the broker's start
    assert set(waits_ms[1:]) == {SUSPEND_MS}  # from a sweep to a sweep


@scenario(INSTANT, also_fenced=True)
async def test_a_message_does_not_wait_for_the_sweep(cluster: Cluster) -> None:
    """A held pull is answered when its message arrives: the listener begins in the millisecond of the send."""
    await _alone(cluster)
    await cluster.producer()
    for moment_ms in (3_333, 7_777, 44_444):
        await cluster.at(moment_ms)
        await cluster.send(1)
        await cluster.all_seen()
        assert cluster.seen.all[-1].begin_ms == moment_ms


@scenario(INSTANT, also_fenced=True)
async def test_a_busy_queue_yields_after_60_000_ms(cluster: Cluster) -> None:
    """A run of calls continues at 60 000 ms and ends after the next call; the next run begins 10 ms later."""
    await _alone(cluster, work_ms=1_000)
    await cluster.producer()
    await cluster.send(130)
    await cluster.all_seen(timeout_ms=200_000)
    begins = [call.begin_ms for call in cluster.seen.of("c1")]
    pauses = [later - earlier - 1_000 for earlier, later in pairwise(begins)]
    assert [place for place, pause_ms in enumerate(pauses) if pause_ms] == [60, 121]
    assert {pauses[60], pauses[121]} == {AGAIN_MS}
    assert begins[60] - begins[0] == RUN_MS


@scenario(INSTANT)
async def test_a_silent_client_is_dropped_after_120_000_ms(cluster: Cluster) -> None:
    """A scan 120 000 ms after its last heartbeat keeps it, the next scan drops it; the other members learn of it at
    once."""
    await _alone(cluster)
    await cluster.consumer("c2")
    await cluster.at(START_MS + 1_000 + HEARTBEAT_MS + 500)  # both were heard at 31 500
    cluster.world.partition("c1", BROKER)
    heard_ms = cluster.request_log.times_ms("c1", "HEART_BEAT")[-1]
    assert heard_ms == START_MS + 1_000 + HEARTBEAT_MS
    await cluster.at(heard_ms + SILENCE_MS)
    asked = len(cluster.request_log.of("c2", "GET_CONSUMER_LIST_BY_GROUP"))
    assert len(cluster.members()) == 2
    await cluster.world.until(lambda: len(cluster.members()) == 1, timeout_ms=SCAN_MS, poll_ms=1)
    dropped_ms = cluster.world.elapsed_ms
    assert 0 < dropped_ms - heard_ms - SILENCE_MS <= SCAN_MS
    await cluster.world.sleep_ms(1)
    assert len(cluster.request_log.of("c2", "GET_CONSUMER_LIST_BY_GROUP")) > asked
    cluster.world.repair("c1", BROKER)


@scenario(INSTANT, also_fenced=True)
async def test_an_illegal_offset_begins_anew_after_10_000_ms(cluster: Cluster) -> None:
    """A queue whose stored offset does not exist is dropped at once. 10 s later, not a millisecond earlier, the
    broker's offset is stored and the queue is taken anew."""
    server = await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(3)
    assert server.broker is not None
    server.broker.catalog.offsets.commit(GROUP, TOPIC, 0, 50)
    await cluster.at(START_MS)
    await cluster.consumer("c1")
    queue = f"{TOPIC}@{BROKER}:0"
    await cluster.at(START_MS + ILLEGAL_MS - 1)
    [taken_out] = cluster.events("offset_illegal", host="c1", queue=queue)
    assert taken_out.at_ms == START_MS
    assert [line.at_ms for line in cluster.events("queue_acquired", host="c1", queue=queue)] == [START_MS]
    assert cluster.committed() == 50
    await cluster.at(START_MS + ILLEGAL_MS + 1)
    acquired = [line.at_ms for line in cluster.events("queue_acquired", host="c1", queue=queue)]
    assert acquired == [START_MS, START_MS + ILLEGAL_MS]
    assert cluster.committed() == taken_out.fields["next_offset"] < 50
    await cluster.end(judge=False)  # an offset was committed that nobody had handled


def test_the_periods_are_the_defaults() -> None:
    """The periods of these scenarios are the defaults of the settings, which are RocketMQ's."""
    config = ConsumerConfig()
    assert config.heartbeat_broker_interval_ms == HEARTBEAT_MS
    assert config.poll_name_server_interval_ms == ROUTE_MS
    assert config.rebalance_interval_ms == REBALANCE_MS
    assert config.persist_consumer_offset_first_ms == PERSIST_FIRST_MS
    assert config.persist_consumer_offset_interval_ms == PERSIST_MS
    assert config.pull_suspend_ms == SUSPEND_MS
    assert config.consume_continuously_max_ms == RUN_MS
    assert config.offset_illegal_delay_ms == ILLEGAL_MS
