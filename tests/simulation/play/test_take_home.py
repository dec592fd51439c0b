"""What is taken home from a played plan makes the same run: the command, the plan file, the test for pytest."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.experiment import LOCKING, LockMode, Plan
from lockstep.simulation.lab.faults.text import read_fault
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.lab.setup import Store
from lockstep.simulation.play.take_home import TakenHome, take_home, timeline_of_plans

SHOP = """\
import asyncio

from lockstep.client import Message


async def consumer(messages, context):
    await asyncio.sleep(0.2)


def message(number):
    return Message("orders", b"pizza", sharding_key=f"table-{number % 5}")
"""


def played(name: str, *events: str, seed: int = 1, mode: str = "faithful", **setup: Any) -> Plan:
    """A plan as a person leaves it: the story's own, with another setup and touches."""
    drawn = find_experiment(name).draw(seed, LockMode(mode))
    touched = sorted([*drawn.events, *map(read_fault, events)], key=lambda event: event.at_ms)
    plan: Plan = replace(drawn, events=tuple(touched), **setup)
    return plan


def hash_of(name: str, plan: Plan) -> str:
    return run_plan(find_experiment(name), plan).trace_hash


def of_command(home: TakenHome, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hash that the command prints, in a folder with the plan file."""
    monkeypatch.chdir(folder)
    Path(home.plan_file).write_text(home.plan, encoding="utf-8")
    program, *words = shlex.split(home.command)
    assert program == "lockstep-sim"
    printed = CliRunner().invoke(app, [*words, "-o", "json"])
    found: str = json.loads(printed.output)["trace_hash"]
    return found


def of_test(home: TakenHome, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hash of the run that the test for pytest makes."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    Path(home.test_file).write_text(home.test, encoding="utf-8")
    spec = spec_from_file_location("test_taken_home", home.test_file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    story = module.test_taken_home.story
    found: str = story.run(seed=seed).trace_hash
    return found


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("takeover", lambda: played("takeover", "kill c1@30001ms", "partition c2-broker@50s+9s")),
        ("takeover", lambda: replace(played("takeover", life_ms=60_000), events=())),
        ("zombie", lambda: played("zombie", mode="fenced", seed=4)),
        (
            "quiet",
            lambda: played(
                "quiet", "clock c2@30s=-5m", life_ms=90_000, rate=0.7, name_servers=1, retry_sends=False,
                store=Store.SYNC, consumer={"pull_batch_size": 8}, broker={"lock_max_live_time_ms": 30_000},
            ),
        ),
    ],
    ids=["touched", "without-faults", "as-it-is", "own-setup"],
)  # fmt: skip
def test_each_makes_the_same_run(name: str, plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a story's plan the command and the test make the run that was played."""
    expected, home = hash_of(name, plan()), take_home(name, plan())
    assert home.command.split()[1] == ("replay" if not plan().events and name == "takeover" else "run")
    assert of_command(home, tmp_path, monkeypatch) == expected
    assert of_test(home, plan().seed, tmp_path, monkeypatch) == expected


@pytest.mark.long
def test_a_users_listener_is_the_files_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Command, plan and test take listener and messages from the file, and pytest runs the test as it is."""
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(SHOP, encoding="utf-8")
    name, touches = "shop.py:consumer", ("kill c1@20s", "cut c2-broker@20s")
    plan = replace(find_experiment(name).draw(3, LockMode.FENCED), events=tuple(map(read_fault, touches)))
    expected, home = hash_of(name, plan), take_home(name, plan)
    assert home.command.endswith("--kill c1@20s --cut c2-broker@20s")
    assert of_command(home, tmp_path, monkeypatch) == expected
    assert of_test(home, 3, tmp_path, monkeypatch) == expected
    for environment in ({}, {"CI": "true"}):
        command = [sys.executable, "-m", "pytest", home.test_file, "-q", "-p", "no:cacheprovider"]
        shell = {key: value for key, value in os.environ.items() if key != "CI" and "PYTEST" not in key}
        ran = subprocess.run(command, env={**shell, **environment}, capture_output=True, text=True, check=False)
        assert "1 passed" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    ("name", "touches"),
    [
        ("shop.py:consumer", ["cut c2-broker@20s", "kill c1@20s"]),
        ("museum/grant-not-noticed", []),
        ("worlds/waits", []),
        ("article/1/2.2.3", ["stall A@20s+5s"]),
    ],
    ids=["options-have-another-order", "exhibit", "world", "section"],
)
def test_what_no_options_say_is_a_plan(
    name: str, touches: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the options of `run` cannot make a plan, the command reads its file."""
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(SHOP, encoding="utf-8")
    plan = find_experiment(name).draw(1, LockMode.FAITHFUL)
    plan = replace(plan, events=tuple(map(read_fault, touches)) or plan.events[:-1])
    home = take_home(name, plan)
    assert home.command == f"lockstep-sim replay --plan {home.plan_file}"
    assert of_command(home, tmp_path, monkeypatch) == hash_of(name, plan)
    assert not home.test or name == "shop.py:consumer"


def test_the_timeline_shows_the_plans_side_by_side() -> None:
    """It has a run for each plan, with its touches."""
    plans = [played("zombie", mode=mode) for mode in LOCKING]
    page = timeline_of_plans("zombie", plans)
    assert "zombie, seed 1" in page
    for text in ("faithful", "fenced", "c1 is stopped (SIGSTOP)"):
        assert text in page
