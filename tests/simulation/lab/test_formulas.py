"""The formulas of a calm group say what its brokers are asked, as the simulator counts it."""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from lockstep.broker.fronts.remoting.notices import RemotingNotices
from lockstep.broker.peer import Peer
from lockstep.client import Message
from lockstep.simulation.lab.costs import costs_of
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.formulas import asked_a_second, notices_of_a_deploy, owners_at_brokers
from lockstep.simulation.lab.hosts import TOPIC
from lockstep.simulation.lab.setup import Setup
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

_FAITHFUL, _FENCED, _FIFO = LockMode
_FROM_S, _SECONDS = 35, 60  # the begin is between two rounds of any timer, and each interval goes into the time
_long = partial(pytest.param, marks=pytest.mark.long)


def _message(number: int) -> Message:
    """Its queue is as good as drawn: the formulas know no order of the queues."""
    return Message(TOPIC, b"m", sharding_key=f"{number * 2_654_435_761 % 2**32}")


@pytest.mark.parametrize(
    ("mode", "setup"),
    [
        *((mode, {"consumers": 2, "queues": 4, "rate": 20}) for mode in LockMode),
        # A round asks one broker or two, by chance: many rounds, or the count would be far from its mean.
        _long(_FENCED, {"consumers": 12, "queues": 4, "brokers": 4, "rate": 20, "rebalance_interval_ms": 1000}),
        _long(_FIFO, {"consumers": 8, "queues": 2, "brokers": 2, "rate": 20, "heartbeat_broker_interval_ms": 20_000}),
        (_FAITHFUL, {"consumers": 16, "queues": 32, "rate": 10, "lock_interval_ms": 5000, "commit_together": False}),
        (_FAITHFUL, {"consumers": 24, "queues": 96, "rate": 20}),
        (_FENCED, {"consumers": 24, "queues": 96, "rate": 0}),
        _long(_FAITHFUL, {"consumers": 300, "queues": 1200, "rate": 20}),
    ],
)
def test_formulas_say_what_is_counted(mode: LockMode, setup: dict[str, Any]) -> None:
    """Within 2 %, each kind of request."""
    sizes = {key: setup[key] for key in setup if key in ("consumers", "queues", "brokers", "rate")}
    consumer = {"commit_together": True, **{key: value for key, value in setup.items() if key not in sizes}}

    @experiment(**sizes, work="1ms", life=f"{_FROM_S + _SECONDS}s", consumer=consumer, message=_message)
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        cluster.measured_from_ms = _FROM_S * 1000

    run = story.run(lock_mode=mode)
    assert run.error is None
    assert run.played is not None
    asked = costs_of(run.played.cluster).asked
    counted = {kind: one.total for kind, one in asked.items() if one.total and kind != "other"}
    formulas = asked_a_second(run.played.cluster.setup)
    assert {k: v * _SECONDS for k, v in formulas.items() if v} == pytest.approx(counted, rel=0.02)


def test_each_broker_tells_the_others_of_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that ends cleanly and starts again is two changes."""
    told = Counter[bool]()

    @experiment(
        consumers=4, queues=2, brokers=2, rate=0, life="70s", events=[f"leave c{n}@{n}5s+5s" for n in range(1, 5)]
    )
    async def story(cluster: StoryCluster) -> None:
        def tell(_: RemotingNotices, _peer: Peer, _group: str) -> None:
            told[10_000 < cluster.world.elapsed_ms < cluster.setup.life_ms] += 1

        monkeypatch.setattr(RemotingNotices, "members_changed", tell)
        await cluster.start()

    assert story.run(lock_mode=LockMode.FAITHFUL).error is None
    assert told[True] == notices_of_a_deploy(4, 2)


def test_owners_at_brokers() -> None:
    """A member whose share lies on the border of two brokers asks both; the retry topic begins with the first one."""
    assert owners_at_brokers(2, 4, 1) == [3, 2]
    assert owners_at_brokers(3, 8, 2) == [7, 2, 4, 5]
    assert owners_at_brokers(8, 2, 2) == [2, 1, 1, 1, 1]


def test_commits_of_many_queues_need_several_frames() -> None:
    """A frame has at most 1,000."""
    assert asked_a_second(Setup(consumers=1, queues=1999, rate=0))["commit"] == 2 / 5
    assert asked_a_second(Setup(consumers=1, queues=2000, rate=0))["commit"] == 3 / 5
