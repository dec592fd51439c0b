"""Brokers, networks and machines that fail."""

from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

__all__ = ["anything", "bad_machines", "bad_network", "broker_crash"]

_NETWORK = (
    "cut", "cut-one-side", "partition", "hold", "slow", "late", "jitter", "slow-link", "nat", "nat-reset",
)  # fmt: skip
_MACHINES = ("sleep", "stall", "drift", "slow-cpu", "slow-disk", "hang-disk", "clock")
_ALL = tuple(fault.name for fault in FAULTS.values() if not fault.by_hand)


# Just after the broker wrote its offsets, as it does each 5 s: a power loss takes RocketMQ's later ones back.
@experiment(name="broker-crash", rate=2, queues=4, store="sync", events=("power-off broker@60s10ms+10s",))
async def broker_crash(cluster: StoryCluster) -> None:
    """The broker loses its power and starts again: what it acknowledged is on its disk, its owners go on."""
    await cluster.start()


@experiment(name="bad-network", rate=1, queues=3, consumers=3, swarm=_NETWORK, faults=4)
async def bad_network(cluster: StoryCluster) -> None:
    """Connections end, also at one side alone, bytes come late or not at all."""
    await cluster.start()


@experiment(name="bad-machines", rate=1, queues=3, consumers=3, store="sync", swarm=_MACHINES, faults=4)
async def bad_machines(cluster: StoryCluster) -> None:
    """Machines sleep, stop and are slow, clocks are wrong, disks hang."""
    await cluster.start()


@experiment(rate=1, queues=3, consumers=3, store="sync", swarm=_ALL, faults=5)
async def anything(cluster: StoryCluster) -> None:
    """Every fault that there is."""
    await cluster.start()
