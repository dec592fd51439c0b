"""Consumers cut off from the broker, or from the name server, and back again."""

from itertools import pairwise

import pytest

from lockstep.client import NoRouteError
from lockstep.order import Cause
from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import scenario

LOCK_LIFE_MS, BELIEF_MS, ROUND_MS = 60_000, 30_000, 20_000
ROUND_TRIPS_MS = 100


async def _cut_off(cluster: Cluster, duration_ms: int) -> None:
    """Two consumers of two queues with work enough; c1, renewed at 41 s, is cut off from 42 s on."""
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=250)
    await cluster.consumer("c2", work_ms=250)
    await cluster.at(30_000)
    await cluster.send(600, keys=60)
    await cluster.at(42_000)
    cluster.world.partition("c1", BROKER)
    await cluster.at(42_000 + duration_ms)
    cluster.world.repair("c1", BROKER)
    await cluster.all_seen(timeout_ms=300_000)


def _pauses_ms(cluster: Cluster, name: str) -> list[int]:
    """Gaps in a consumer's work of more than a second."""
    calls = cluster.seen.of(name)
    gaps = (after.begin_ms - before.end_ms for before, after in pairwise(calls))
    return [gap for gap in gaps if gap > 1000]


@scenario(also_fenced=True)
async def test_25_s_without_the_broker_are_survived(cluster: Cluster) -> None:
    """Shorter than the holder trusts its lock: it goes on, keeps its queue, and handles nothing twice."""
    await _cut_off(cluster, 25_000)
    assert not cluster.events("lock_lost")
    assert len(cluster.events("queue_acquired", host="c1", queue=f"Aircraft@{BROKER}:0")) == 1
    assert _pauses_ms(cluster, "c1") == []


@scenario()
async def test_45_s_without_the_broker_pause_the_queue(cluster: Cluster) -> None:
    """Longer than the holder trusts its lock, shorter than the broker's lock. The holder stops after 30 s and renews
    the lock after the partition. No other client had the queue, so it goes on and handles nothing twice."""
    await _cut_off(cluster, 45_000)
    [pause_ms] = _pauses_ms(cluster, "c1")
    assert 41_000 + BELIEF_MS + pause_ms <= 42_000 + 45_000 + ROUND_MS
    assert {call.process for call in cluster.seen.of(queue_id=0)} == {"c1"}
    assert not cluster.events("lock_taken_over", queue=f"Aircraft@{BROKER}:0")


@scenario()
async def test_100_s_without_the_broker_lose_the_queue_to_nobody(cluster: Cluster) -> None:
    """Longer than the broker's lock. The broker waits 120 s for heartbeats, and until then no other member gets the
    queue, so the same holder takes it over."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await _cut_off(cluster, 100_000)
    assert not cluster.events("lock_taken_over", queue=f"Aircraft@{BROKER}:0")
    [taken] = cluster.events("lock_reacquired_by_owner", queue=f"Aircraft@{BROKER}:0")
    assert taken.at_ms > 142_000
    assert {call.process for call in cluster.seen.of(queue_id=0)} == {"c1"}
    records = cluster.records("c1")
    lost = {record["period"] for record in records if record["event"] == "lock_lost"}
    anew = {record["period"] for record in records if "begins anew" in record.get("why", "")}
    assert anew
    assert anew <= lost  # not given up, so the judge knows that its last commits never arrived


@scenario()
async def test_200_s_without_the_broker_hand_the_queue_over_and_back(cluster: Cluster) -> None:
    """Longer than the broker waits for heartbeats. The other member gets the queue and gives it back later. All is in
    order, and the first holder does not handle its cached messages again."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await _cut_off(cluster, 200_000)
    assert cluster.owner(0) == cluster.world.host("c2").address
    await cluster.world.until(lambda: cluster.owner(0) == cluster.world.host("c1").address)
    await cluster.send(60, keys=60)
    await cluster.all_seen()
    assert cluster.seen.owners(0) == ["c1", "c2", "c1"]
    first_of_c2 = next(call for call in cluster.seen.of(queue_id=0) if call.process == "c2")
    assert 42_000 + 120_000 - 30_000 <= first_of_c2.begin_ms <= 42_000 + 120_000 + 10_000 + ROUND_TRIPS_MS
    assert not cluster.events("offset_committed_backwards")


@scenario()
async def test_clients_live_without_the_name_server(cluster: Cluster) -> None:
    """While the name server is away running clients lock, pull, send and rebalance; a client that starts must wait."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.start_name_server("names")
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=50)
    await cluster.consumer("c2", work_ms=50)
    await cluster.send(10)
    await cluster.at(25_000)
    for name in ("c1", "c2", "c3", "producer"):
        cluster.world.host(name)
        cluster.world.partition(name, "names")
    for second in range(30, 130, 10):
        await cluster.at(second * 1000)
        await cluster.send(10)
    cluster.crash("c2")
    await cluster.send(10)
    await cluster.all_seen()
    assert not cluster.events("lock_lost")
    assert {call.process for call in cluster.seen.of(since_ms=130_000)} == {"c1"}
    with pytest.raises(NoRouteError):
        await cluster.consumer("c3")
    cluster.world.repair("c3", "names")
    await cluster.consumer("c3")
    await cluster.send(10)
    await cluster.all_seen()
    assert "c3" in {call.process for call in cluster.seen.all}
