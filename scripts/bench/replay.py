"""The simulator with members that join and leave when those of a real group did."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lockstep.client import AllocateMessageQueueStrategy, MessageQueue, allocate_averagely
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.simulation.lab.cluster import BROKER, Cluster
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.user.app import lab_listener
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from scripts.bench.load import Load

__all__ = ["Life", "replayed"]

_BEGIN_MS: Final = 1000  # of the first join, after the start of the broker


@dataclass
class Life:
    """Of a process or client: when it joined and left, in ns of the machine; 0: it stayed."""

    client_id: str
    joins_ns: int
    leaves_ns: int = 0


def replayed(
    load: Load,
    lives: Sequence[Life],
    since_ns: int,
    until_ns: int,
    settings: Mapping[str, Any],
    seed: int,
    latency_us: tuple[int, int] | None = None,
) -> Cluster:
    """Play the lives with faithful locks.

    Each member has the place of the real one in the order of client ids, by which RocketMQ shares the queues out.

    Args:
        since_ns, until_ns: what counts.
        settings: of the members.
        latency_us: between a member and the broker, one way, at least and at most; None: the simulator's own.
    """
    first_ns = min(life.joins_ns for life in lives)
    # A host a client id: a process with the id of an earlier one is that one, started again.
    hosts = {client_id: f"c{number}" for number, client_id in enumerate(sorted({life.client_id for life in lives}), 1)}

    def at_ms(time_ns: int) -> int:
        return _BEGIN_MS + (time_ns - first_ns) // 1_000_000

    @experiment(
        queues=load.queues, rate=load.rate, keys=load.keys, work_ms=load.work_ms, life_ms=at_ms(until_ns), consumers=1
    )
    async def replay(cluster: StoryCluster) -> None:
        share = _averagely_in(lambda client_id: int(cluster.world.addresses[client_id.partition("@")[0]][1:]))

        async def live(life: Life) -> None:
            name = hosts[life.client_id]
            await cluster.at(at_ms(life.joins_ns))
            cluster.world.host(name)
            if latency_us is not None:
                cluster.world.set_latency(name, BROKER, *latency_us)
                cluster.world.set_latency(BROKER, name, *latency_us)
            await cluster.consumer(
                name,
                listener=lab_listener(load.work_ms),
                strategy=share,
                instance_name="member",
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                **settings,
            )
            if life.leaves_ns:
                await cluster.at(at_ms(life.leaves_ns))
                await cluster.stop(name)

        await cluster.start(members=())
        cluster.measured_from_ms = at_ms(since_ns)
        await asyncio.gather(*[cluster.world.start(live(life), name="life") for life in lives])

    run = replay.run(seed=seed, lock_mode=LockMode.FAITHFUL)
    assert run.error is None, run.error
    assert run.played is not None
    return run.played.cluster


def _averagely_in(place: Callable[[str], int]) -> AllocateMessageQueueStrategy:
    """RocketMQ's strategy, with another order of the client ids."""

    def share(group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        return allocate_averagely(group, client_id, queues, sorted(members, key=place))

    return share
