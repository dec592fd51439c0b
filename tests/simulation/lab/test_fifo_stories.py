"""Stories of a FIFO group: members pop, and the broker keeps the order as RocketMQ does."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep.client import PushConsumer
from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.report import result_lines
from lockstep.simulation.lab.runner import Run
from lockstep.simulation.lab.user.app import AppError
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.search.plan_file import read_plan, write_plan


def play(*events: str, make: Any = None, **setup: Any) -> Run:
    @experiment(events=events, lock_mode="fifo", **{"consumers": 2, "queues": 2, "rate": 10, "life": "2m", **setup})
    async def story(cluster: StoryCluster) -> None:
        await cluster.start(make)

    return story.run()


def test_members_pop_and_no_queue_has_an_owner() -> None:
    """Every message is handled in order; the group is one in order, as clients over gRPC see it."""
    run = play("leave c1@30s+10s", "close c2-broker@50s")
    assert run.error is None
    assert run.played is not None
    cluster = run.played.cluster
    assert run.played.findings.wrong == []
    report = cluster.judge()
    assert (report.sent, report.handled, report.lost) == (1200, 1200, 0)
    assert report.events["delivered"] >= 1200
    assert not any(line.event.startswith("lock_") for line in cluster.log)


@pytest.mark.long
def test_what_a_dead_member_held_is_free_after_its_invisible_time() -> None:
    """As in RocketMQ, where the broker does not look whether its client lives; no fenced lock shortens it."""
    run = play("kill c1@30s", rate=100, consumers=3, queues=8, work="60ms")
    lines = result_lines(run)
    assert any(line.endswith("stood still for 60.0 s.") for line in lines)
    assert lines[-1] == "Nothing is wrong: each key was handled in order, and no message is lost."


def test_a_member_that_stops_with_a_delivery_is_found_without_a_handover() -> None:
    """It wrote no record of what it was given, so the queue's rest comes from the messages."""
    run = play("stall c1@30s+80s")
    assert run.played is not None
    (rest, *_) = sorted(run.played.cluster.flow().longest.values(), key=lambda one: -one.duration_ms)
    assert 59_000 < rest.duration_ms < 61_000


@pytest.mark.long
@pytest.mark.parametrize("store", [pytest.param("memory", marks=pytest.mark.smoke), "async", "sync"])
def test_repeats_after_a_crash_of_the_broker_are_allowed(store: str) -> None:
    """RocketMQ's broker writes offsets every five seconds, and keeps its acknowledgements in memory."""
    run = play("kill broker@60s+5s", rate=30, work="10ms", store=store)
    assert run.error is None
    assert run.played is not None
    assert run.played.findings.wrong == []


def test_a_consumer_of_the_users_must_pop() -> None:
    """It is asked for, in a sentence."""

    def service(pop: bool, **client: Any) -> PushConsumer:
        async def listen(_: Any, __: Any) -> None:
            return None

        made = PushConsumer("billing", listener=listen, pop=pop, **client)
        made.subscribe("orders")
        return made

    def pops(**client: Any) -> PushConsumer:
        return service(True, **client)

    def pulls(**client: Any) -> PushConsumer:
        return service(False, **client)

    run = play(make=pops)
    assert run.error is None
    run = play(make=pulls)
    assert isinstance(run.error, AppError)
    assert "pop=True" in str(run.error)


def test_the_mode_is_for_stories_alone(tmp_path: Path) -> None:
    """`both` stays the two with locks; a plan comes back from its file."""
    call = CliRunner().invoke
    found = json.loads(call(app, ["run", "takeover", "--lock-mode", "fifo", "--for", "30s", "-o", "json"]).stdout)
    assert (found["lock_mode"], found["verdict"]) == ("fifo", "in order")
    for command in (["run", "worlds"], ["sweep", "worlds/fifo"], ["replay", "museum/1524", "--seed", "1"]):
        refused = call(app, [*command, "--lock-mode", "fifo"])
        assert refused.exit_code == 2, command
    plan = find_experiment("takeover").draw(3, LockMode.FIFO)
    write_plan(tmp_path / "plan.json", "takeover", plan, "")
    assert read_plan(tmp_path / "plan.json").plan == plan
