"""How often a queue changes its owner when many members join within a second."""

from collections import Counter
from typing import Final

from tests.scenarios.cluster import TOPIC, Cluster
from tests.scenarios.scenario import scenario

MEMBERS: Final = 20
GRANTS: Final = ("lock_granted", "lock_taken_over")


async def owners_a_queue(cluster: Cluster, min_interval_ms: int) -> Counter[object]:
    """Members join 50 ms after each other. Returns how many owners each queue had when all is quiet."""
    await cluster.broker(queues=2 * MEMBERS, lock_mode="fenced")
    for number in range(MEMBERS):
        await cluster.at(number * 50)
        await cluster.consumer(f"c{number + 1}", fenced=True, rebalance_min_interval_ms=min_interval_ms)
    await cluster.at(60_000)
    assert len(cluster.locks()) == 2 * MEMBERS
    assert len({cluster.owner(queue) for queue in cluster.locks()}) == MEMBERS
    lines = [line for event in GRANTS for line in cluster.events(event) if TOPIC in str(line.fields["queue"])]
    return Counter(line.fields["queue"] for line in lines if not str(line.fields["queue"]).startswith("%RETRY%"))


@scenario()
async def test_a_least_time_between_rounds_makes_one_rebalance_of_many(cluster: Cluster) -> None:
    """Nobody takes a queue in the first second, so each queue goes to the member that keeps it."""
    owners = await owners_a_queue(cluster, 1000)
    assert max(owners.values()) == 1


@scenario()
async def test_without_it_each_join_moves_queues(cluster: Cluster) -> None:
    """As with RocketMQ 4: each member that joins moves half of all queues."""
    owners = await owners_a_queue(cluster, 0)
    assert max(owners.values()) > 5


@scenario()
async def test_with_it_a_round_without_its_share_is_repeated(cluster: Cluster) -> None:
    """As RocketMQ 5 does: the owner gives up half of its queues a moment too late, and they rest for a second."""
    assert await owned_soon(cluster, 1000) == [2, 2]


@scenario()
async def test_without_it_a_round_without_its_share_waits_for_the_next(cluster: Cluster) -> None:
    """As RocketMQ 4 does: the queues rest for 20 s."""
    assert await owned_soon(cluster, 0) == [2]


async def owned_soon(cluster: Cluster, min_interval_ms: int) -> list[int]:
    """A member joins another one, which has all four queues and hears of it late.

    Returns:
        How many queues each owner has 3 s later.
    """
    await cluster.broker(queues=4)
    await cluster.consumer("c1", rebalance_min_interval_ms=min_interval_ms)
    await cluster.at(30_000)
    cluster.world.set_latency("broker", "c1", 800_000, 800_000)  # there and back: c2's first round, after 1 s, is over
    await cluster.consumer("c2", rebalance_min_interval_ms=min_interval_ms)
    await cluster.at(34_000)
    return sorted(Counter(map(cluster.owner, cluster.locks())).values())


@scenario()
async def test_queues_of_several_brokers_are_pulled_at_once(cluster: Cluster) -> None:
    """Each change of queues is a new version of the subscription; a broker refuses pulls until it has it."""
    for name in ("broker", "broker2", "broker3"):
        await cluster.broker(name, queues=2, lock_mode="fenced")
    for number in range(1, 4):
        await cluster.at(number * 30_000)
        await cluster.consumer(f"c{number}", fenced=True)
    await cluster.at(120_000)
    await cluster.stop("c1")
    await cluster.at(150_000)
    assert len(cluster.events("queue_acquired")) > 12
    assert cluster.events("pull_failed") == []
