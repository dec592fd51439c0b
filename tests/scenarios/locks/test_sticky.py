"""The allocation STICKY with fenced locks: how often queues change their owner, and that order is kept meanwhile."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from lockstep.client import AllocateSticky, MessageQueue, PushConsumer
from lockstep.order import Cause
from tests.scenarios.cluster import BROKER, TOPIC, Cluster
from tests.scenarios.scenario import scenario

BROKERS: Final = (BROKER, f"{BROKER}2")
MEMBERS: Final = 6
QUEUES: Final = 12  # at each broker


async def join(cluster: Cluster, name: str, *, min_interval_ms: int = 0) -> None:
    await cluster.consumer(
        name, fenced=True, strategy=AllocateSticky(), rebalance_min_interval_ms=min_interval_ms, work_ms=5
    )


def owned(cluster: Cluster, names: Sequence[str]) -> dict[str, list[MessageQueue]]:
    clients = {name: cluster.client(name) for name in names}
    assert all(isinstance(client, PushConsumer) for client in clients.values())
    return {
        name: [queue for queue in client.assigned_queues if queue.topic == TOPIC]
        for name, client in clients.items()
        if isinstance(client, PushConsumer)
    }


def acquired(cluster: Cluster) -> Counter[object]:
    """How often each queue got an owner."""
    lines = [line.fields["queue"] for line in cluster.events("queue_acquired")]
    return Counter(queue for queue in lines if str(queue).startswith(TOPIC))


async def a_group(cluster: Cluster, brokers: Sequence[str]) -> list[str]:
    for broker in brokers:
        await cluster.broker(broker, queues=QUEUES, lock_mode="fenced")
    await cluster.producer()
    names = [f"c{number}" for number in range(1, MEMBERS + 1)]
    for name in names:
        await join(cluster, name, min_interval_ms=1000)
    await cluster.at(10_000)
    shares = owned(cluster, names)
    assert {len(share) for share in shares.values()} == {len(brokers) * QUEUES // MEMBERS}
    return names


@scenario()
async def test_a_deploy_moves_each_queue_twice(cluster: Cluster) -> None:
    """Once when its owner ends, and back to it; no other queue moves, at either of two brokers."""
    names = await a_group(cluster, BROKERS)
    before = acquired(cluster)
    await cluster.send(600, keys=40)
    for name in names:
        await cluster.leave(name)
        await cluster.world.sleep_ms(2_000)
        await join(cluster, name)
        await cluster.world.sleep_ms(2_000)
    await cluster.all_seen()
    moved = acquired(cluster) - before
    assert len(moved) == len(BROKERS) * QUEUES
    assert set(moved.values()) == {2}
    assert {len(share) for share in owned(cluster, names).values()} == {len(BROKERS) * QUEUES // MEMBERS}


@scenario()
async def test_members_that_join_within_a_second_move_a_queue_twice_at_most(cluster: Cluster) -> None:
    """The first one moves some at once, and a second later all get their share; half of the queues stay."""
    await a_group(cluster, BROKERS)
    before = acquired(cluster)
    for number in range(MEMBERS):
        await join(cluster, f"d{number}", min_interval_ms=1000)
        await cluster.world.sleep_ms(100)
    await cluster.world.sleep_ms(10_000)
    moved = acquired(cluster) - before
    assert len(moved) == len(BROKERS) * QUEUES // 2
    assert max(moved.values()) <= 2


@scenario()
async def test_a_killed_owner_s_queues_alone_move(cluster: Cluster) -> None:
    """After the lock delay; what the others own stays with them."""
    cluster.expected.possible = {Cause.TAKEOVER}
    names = await a_group(cluster, BROKERS[:1])
    before, shares = acquired(cluster), owned(cluster, names)
    await cluster.send(300, keys=40)
    cluster.crash("c2")
    await cluster.all_seen()
    moved = acquired(cluster) - before
    assert sorted(map(str, moved)) == sorted(map(str, shares.pop("c2")))
    after = owned(cluster, [*shares])
    assert all(set(share) <= set(after[name]) for name, share in shares.items())


@scenario()
async def test_changes_that_overlap_leave_no_queue_without_an_owner(cluster: Cluster) -> None:
    """A second after each, those that are there own all queues."""
    names = await a_group(cluster, BROKERS)
    for first, second in zip(names[::2], names[1::2], strict=True):
        await cluster.leave(first)
        await cluster.world.sleep_ms(1_000)
        await join(cluster, first)
        await cluster.leave(second)
        await cluster.world.sleep_ms(1_000)
        staying = [name for name in names if name != second]
        assert sum(map(len, owned(cluster, staying).values())) == len(BROKERS) * QUEUES
        await join(cluster, second)
        await cluster.world.sleep_ms(1_000)
