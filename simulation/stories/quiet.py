"""Nothing happens by itself."""

from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

__all__ = ["quiet"]


@experiment(consumers=2, queues=4, rate=4, work="100ms", life="5m")
async def quiet(cluster: StoryCluster) -> None:
    """Nothing fails by itself: for a person who touches it, and for the faults of a command."""
    await cluster.start()
