"""The owner of a queue is stopped inside a call, for so long that its broker forgets it."""

from lockstep.simulation.lab.story import experiment
from lockstep.simulation.lab.story_cluster import StoryCluster

__all__ = ["stopped_owner"]


@experiment(name="stopped-owner", consumers=2, queues=2, rate=0.4, work="6s", life="4m", events=("stall c1@33s+165s",))
async def stopped_owner(cluster: StoryCluster) -> None:
    """A member is stopped inside a call until another one has its queue; then it goes on."""
    await cluster.start()
