"""What a run cost, in each lock mode: rests of queues, late messages, repeats, requests at the broker."""

import json

import pytest

from lockstep.simulation.lab.costs import Costs, cost_lines, costs_of
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster


def costs(mode: LockMode, *events: str) -> Costs:
    @experiment(consumers=3, queues=6, rate=20, keys=60, work="20ms", life="3m", events=events)
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        cluster.measured_from_ms = 60_000

    run = story.run(lock_mode=mode)
    assert run.error is None
    assert run.played is not None
    return costs_of(run.played.cluster)


@pytest.mark.long
def test_a_killed_member_costs_less_with_fenced_locks() -> None:
    """RocketMQ's lock lives for 60 s; the two queues of the dead member, and no other, stand still so long."""
    faithful, fenced = (costs(mode, "kill c1@70s") for mode in (LockMode.FAITHFUL, LockMode.FENCED))
    assert faithful.queues == fenced.queues == 6
    assert [ms > 21_000 for ms in faithful.still_ms] == [False] * 4 + [True] * 2
    assert faithful.still_p50_ms < 21_000 < faithful.still_p99_ms <= 80_000
    assert 1000 < fenced.still_longest_ms < 5000
    assert 0 < fenced.late < faithful.late
    assert faithful.messages == fenced.messages == 2400


@pytest.mark.long
@pytest.mark.parametrize(
    "mode", [pytest.param(LockMode.FENCED, marks=pytest.mark.smoke), LockMode.FAITHFUL, LockMode.FIFO]
)
def test_a_calm_run_costs_nothing(mode: LockMode) -> None:
    """But for its requests: each message is sent, and is pulled or popped by itself at this rate."""
    found = costs(mode)
    assert (found.late, found.duplicates, found.owner_changes) == (0, 0, 0)
    assert found.still_longest_ms < 100
    asked = found.asked
    assert asked["send"].total == 2400
    assert 2380 < asked["pull"].total < 3000
    assert (asked["lock"].total > 0, asked["ack"].total > 0) == (mode is not LockMode.FIFO, mode is LockMode.FIFO)
    assert asked["send"].a_second == pytest.approx(20, rel=0.01)
    assert asked["send"].busiest == 20
    assert json.loads(json.dumps(found.row()))["asked"]["send"]["total"] == 2400
    assert any("0 of 2,400 began" in line for line in cost_lines(found))
    assert found.processor == pytest.approx(sum(one.total for one in asked.values()) * 40e-6 / 120, rel=0.02)
