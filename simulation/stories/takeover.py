"""The owner of a queue is gone, and another member goes on."""

from lockstep.simulation.lab.story import experiment
from lockstep.simulation.lab.story_cluster import StoryCluster

__all__ = ["takeover"]

_WAYS = ("kill", "power-off", "leave", "stall", "sleep", "cut", "partition")


@experiment(consumers=2, queues=2, rate=0.6, work="100ms", life="3m", swarm=_WAYS, faults=3)
async def takeover(cluster: StoryCluster) -> None:
    """A member dies, stops or is cut off. Another one takes its queues over, and goes on where it was."""
    await cluster.start()
