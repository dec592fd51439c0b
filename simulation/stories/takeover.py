"""The owner of a queue is gone, or seems to be, and another member goes on."""

from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

__all__ = ["takeover", "zombie"]

_WAYS = ("kill", "power-off", "leave", "stall", "sleep", "cut", "partition")


@experiment(consumers=2, queues=2, rate=0.6, work="100ms", life="3m", swarm=_WAYS, faults=3)
async def takeover(cluster: StoryCluster) -> None:
    """A member dies, stops or is cut off. Another one takes its queues over, and goes on where it was."""
    await cluster.start()


@experiment(consumers=2, queues=2, rate=3, work="1s", life="3m", events=("stall c1@20s+150s",))
async def zombie(cluster: StoryCluster) -> None:
    """A member stops inside a call until another one owns its queue, and then goes on with the call."""
    await cluster.start()
