"""A broker with a store in files loses its power: no acknowledged message is missing, and order holds."""

import pytest

from tests.scenarios.brokers.many_power_cuts import run
from tests.scenarios.brokers.power_cuts import PowerCuts
from tests.scenarios.cluster import Cluster
from tests.scenarios.scenario import scenario


@scenario()
async def test_power_cuts_lose_nothing_acknowledged(cluster: Cluster) -> None:
    """With a flush before each reply every acknowledged message is there after each cut, no offset goes back further
    than its flush interval, and every key is handled in order."""
    story = PowerCuts(cluster, cluster.world.rng)
    await story.run(5)
    assert len(story.acknowledged) > 50


@scenario()
async def test_power_cuts_on_a_failing_disk(cluster: Cluster) -> None:
    """The same when syncs fail and the disk fills up between the cuts: every acknowledged message is there."""
    story = PowerCuts(cluster, cluster.world.rng, faults=True)
    await story.run(5)
    assert len(story.acknowledged) > 50


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_more_power_cuts(seed: int) -> None:
    """Both again, longer; `make nightly` has two thousand cuts."""
    result = run(seed, 15)
    assert not result.failure
    assert result.acknowledged > 200
