"""Stories of operators, small: what each does, in each lock mode, with its parameters, and what it costs."""

import json
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.chosen import chosen_run
from lockstep.simulation.lab.costs import Costs, costs_of
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.parameters import PARAMETERS, parameter_text, read_parameters
from lockstep.simulation.lab.registry import experiment_names, find_experiment
from lockstep.simulation.lab.runner import Run
from lockstep.simulation.lab.user.story import Story, setup_of
from lockstep.simulation.play.take_home import take_home
from lockstep.simulation.search.plan_file import parse_plan, plan_text
from lockstep.simulation.stories.operators import deploy

SMALL = {"consumers": 3, "queues": 6, "rate": 6, "keys": 24}
_EIGHT: dict[str, Any] = {"consumers": 8, "queues": 16, "ready": "5s"}


def operators() -> list[str]:
    found = ((name, find_experiment(name)) for name in experiment_names())
    return [name for name, one in found if isinstance(one, Story) and one.setup.parameters]


def play(name: str, mode: LockMode = LockMode.FENCED, **more: Any) -> Run:
    story = chosen_run(name, setup={**SMALL, **more})
    assert isinstance(story, Story)
    run = story.run(lock_mode=mode)
    assert run.error is None
    return run


def faults(run: Run) -> list[tuple[str, str, int, int | None]]:
    """In seconds."""
    assert run.played is not None
    return [
        (
            band.fault,
            band.target,
            band.at_ms // 1000,
            None if band.end_ms is None else (band.end_ms - band.at_ms) // 1000,
        )
        for band in run.played.findings.bands
    ]


def costs(run: Run) -> Costs:
    assert run.played is not None
    return costs_of(run.played.cluster)


@pytest.mark.parametrize("name", operators())
def test_every_message_is_handled_in_order(name: str) -> None:
    """With fenced locks, whatever the operator does; and a plan with its parameters comes back from its text."""
    run = play(name)
    assert run.played is not None
    assert run.played.findings.wrong == []
    assert costs(run).messages > 6 * 80
    assert parse_plan(plan_text(name, run.plan, ""), __file__).plan == run.plan  # type: ignore[arg-type]


def test_a_deploy_in_three_modes() -> None:
    """Two at once, killed: RocketMQ's locks wait for the dead, fenced ones three seconds, deliveries their time."""
    by_mode = {mode: play("deploy", mode, at_once="2", ready="10s", killed=True, work="600ms") for mode in LockMode}
    for run in by_mode.values():
        assert faults(run) == [("kill", "c1", 60, 10), ("kill", "c2", 60, 10), ("kill", "c3", 70, 10)]
    found = {mode: costs(run) for mode, run in by_mode.items()}
    assert found[LockMode.FAITHFUL].still_longest_ms > 30_000
    assert 1000 < found[LockMode.FENCED].still_longest_ms < 20_000
    assert 20_000 < found[LockMode.FIFO].still_longest_ms < 70_000
    assert found[LockMode.FENCED].late < found[LockMode.FAITHFUL].late


@pytest.mark.long
def test_a_deploy_with_a_consistent_hash_moves_a_queue_twice() -> None:
    """To another member when its owner goes, and back when the owner is there again; the average deals all anew."""
    changes = [
        costs(play("deploy", strategy=strategy, **_EIGHT)).owner_changes for strategy in ("CONSISTENT_HASH", "AVG")
    ]
    assert changes[0] <= 2 * 16
    assert changes[1] > 3 * 16
    with pytest.raises(ValueError, match="strategy 'RANDOM' is not allowed; use AVG or AVG_BY_CIRCLE or CONSIST"):
        chosen_run("deploy", setup={"strategy": "RANDOM"})
    for mode in ((), ("--lock-mode", "faithful")):
        told = CliRunner().invoke(app, ["run", "deploy", "--strategy", "STICKY", *mode])
        assert told.output == "lockstep-sim: lock mode 'faithful' has no strategy STICKY; use fenced\n"
        assert told.exit_code == 2


@pytest.mark.long
def test_a_deploy_of_pods_moves_more() -> None:
    """A process with another address has another place in the order of the members, so others own other queues."""
    kept, new = [play("deploy", LockMode.FAITHFUL, new_addresses=one, **_EIGHT) for one in (False, True)]
    assert kept.played is not None
    assert new.played is not None
    members = tuple(f"c{number}" for number in range(1, 17))
    assert (kept.played.cluster.consumers, new.played.cluster.consumers) == (members[:8], members)
    assert [fault[:2] for fault in faults(new)] == [("leave", name) for name in members[:8]]
    assert costs(new).owner_changes > costs(kept).owner_changes
    assert new.played.findings.wrong == []


def test_a_deploy_lives_as_long_as_it_takes() -> None:
    """Members one after the other, with pauses."""
    story = deploy.with_setup(setup_of({"consumers": 50, "ready": "5s", "pause": "1s"}))
    assert story.setup.life_ms == 60_000 + 50 * (5000 + 1000 + 1000) + 90_000


def test_members_join_and_leave() -> None:
    """The last ones of the consumers."""
    run = play("scale-out", by="1")
    assert run.played is not None
    cluster = run.played.cluster
    joined = [line for line in cluster.log if line.host == "c3"]
    assert joined[0].at_ms >= 60_000
    assert cluster.consumers == ("c1", "c2", "c3")
    run = play("scale-in", by="2", killed=True)
    assert faults(run) == [("kill", "c2", 60, None), ("kill", "c3", 60, None)]


@pytest.mark.long
def test_brokers_are_upgraded_in_turn_and_a_zone_is_lost() -> None:
    """Of three brokers; those of a zone with its members."""
    setup: dict[str, Any] = {"brokers": 2, "queues": 2, "zones": "2", "outage": "30s"}
    run = play("zone-lost", **setup)
    assert faults(run) == [("power-off", "c2", 60, 30), ("power-off", "broker2", 60, 30)]
    run = play("broker-upgrade", brokers=2, queues=2, ready="5s", pause="5s")
    assert [fault[:2] for fault in faults(run)] == [("leave", "broker"), ("leave", "broker2")]


def test_the_queue_of_a_slow_key_stands_still() -> None:
    """As long as the key fails, and no other."""
    found = costs(play("slow-key", fails="20s"))
    assert 15_000 < found.still_longest_ms < 22_000
    assert found.still_p50_ms < 1000


@pytest.mark.parametrize("mode", LockMode)
def test_a_replay_handles_again_what_was_handled(mode: LockMode) -> None:
    """The messages of 20 s, in order; the judge knows of the reset."""
    run = play("replay", mode, reset_by="20s")
    assert run.played is not None
    assert run.played.findings.wrong == []
    assert 6 * 19 <= costs(run).duplicates <= 6 * 22


def test_new_queues_are_read() -> None:
    """Two more, and messages go to them."""
    assert costs(play("queues-added", by="2")).queues == 8


def test_parameters_are_typed_and_of_their_story() -> None:
    """A mistake is one line; every value is written as it is read."""
    call = CliRunner().invoke
    for words, told in (
        ("takeover --at-once 2", "the story has no at-once"),
        ("deploy --zones 2", "the story has no zones"),
        ("deploy --at-once two", "at-once: 'two' is no number"),
        ("deploy --ready soon", "ready: 'soon' is no duration"),
    ):
        result = call(app, ["run", *shlex.split(words)])
        assert (result.exit_code, told in result.stderr) == (2, True), result.stderr
    found = json.loads(call(app, shlex.split("run scale-in --by 1 --killed --rate 2 --consumers 2 -o json")).stdout)
    assert found["costs"]["asked"]["send"]["total"] > 0
    assert found["plan"]["settings"]["killed"] == "true"
    for name, one in PARAMETERS.items():
        value = one.type(7)
        assert read_parameters({name: parameter_text(name, value)}) == {name: value}


def test_an_operators_story_comes_home_as_a_command() -> None:
    """A test in pytest could not do what an operator does."""
    story = chosen_run("deploy", setup={"at_once": "2", "killed": True})
    assert isinstance(story, Story)
    home = take_home("deploy", story.draw(1, LockMode.FIFO))
    assert home.command == "lockstep-sim run deploy --seed 1 --lock-mode fifo --at-once 2 --killed"
    assert home.test == ""
