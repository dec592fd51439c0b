"""A user's file: every form of an application runs, its state is new in each run, mistakes are one clear line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import outcome_of
from lockstep.simulation.lab.user.story import Story

SHOP = '''
import asyncio
import time
from time import time as clock

from lockstep.client import Message, PushConsumer
from lockstep.simulation import experiment

done = []


async def consumer(messages, context):
    """An async listener takes its own time."""
    await asyncio.sleep(0.1)
    done.extend(message.body for message in messages)


def plain(messages, context):
    done.extend(message.body for message in messages)


class Shop:
    def __init__(self):
        self.done = []

    def __call__(self, messages, context):
        self.done += messages


def made(**client):
    made = PushConsumer("kitchen", listener=plain, **client)
    made.subscribe("Pizza")
    return made


@experiment(consumers=2, queues=2, rate=1, life="30s")
async def story(cluster):
    """A story of the user."""
    await cluster.start(Shop)


def sleeps(messages, context):
    time.sleep(1)


def reads_clock(messages, context):
    clock()


def starts_processes(messages, context):
    import subprocess

    subprocess.run(["true"])


def opens_pages(messages, context):
    import urllib.request

    urllib.request.urlopen("http://localhost")


def raises(messages, context):
    raise KeyError("no such dish")


def strange(x):
    pass


def makes_nothing(**client):
    pass


number = 7
'''
BROKEN_STORY = """
from lockstep.simulation import experiment

@experiment(consumers=1, queues=1, rate=1, life="5s")
async def deploy(cluster):
    await cluster.start()
    assert False
"""
OPTIONS = ("--for", "20s", "--rate", "1", "--kill", "c1@10s")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SHOP, encoding="utf-8")
    return path


def call(*words: str) -> tuple[int, str]:
    """Exit status and output."""
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


@pytest.mark.parametrize("name", ["consumer", "plain", "Shop", "made", "story"])
def test_every_form_of_an_application_runs(shop: Path, name: str) -> None:
    """And the judge reads its traces."""
    status, output = call("run", f"{shop}:{name}", *OPTIONS)
    assert status == 0, output
    assert "messages were sent" in output
    assert ", 0 handled" not in output


def test_what_a_listener_raises_is_told(shop: Path) -> None:
    """Its messages are stuck, and the first exception says why."""
    status, output = call("run", f"{shop}:raises", "--for", "5s", "--rate", "1")
    assert status == 1
    assert "WRONG stuck: " in output
    assert "times, first KeyError: 'no such dish' (shop.py:63)." in output


LEAVES_WORK = """
import asyncio

tasks = set()


async def save(messages):
    await asyncio.sleep(0.5)


async def task(messages, context):
    tasks.add(asyncio.create_task(save(messages)))


async def timer(messages, context):
    asyncio.get_running_loop().call_later(0.5, print_it, messages)


def print_it(messages):
    pass


async def awaits(messages, context):
    await asyncio.gather(save(messages), asyncio.create_task(save(messages)))


async def once(messages, context):
    if not tasks:
        tasks.add(asyncio.create_task(save(messages)))
"""


@pytest.mark.parametrize(
    ("name", "work"), [("task", "task save (shop.py:7)"), ("timer", "timer print_it (shop.py:19)")]
)
def test_work_that_outlives_its_call_is_wrong(shop: Path, name: str, work: str) -> None:
    """The message counts as handled, and nothing that the judge sees is wrong."""
    shop.write_text(LEAVES_WORK, encoding="utf-8")
    status, output = call("run", f"{shop}:{name}", "--for", "10s", "--rate", "1")
    assert status == 1
    assert "WRONG work-after-call: " in output
    assert f" calls of the listener returned while a {work} went on: " in output
    assert "Nothing is wrong" not in output


@pytest.mark.parametrize("name", ["awaits", "once"])
def test_work_that_is_awaited_is_good(shop: Path, name: str) -> None:
    """And so is a task that one call starts for all."""
    shop.write_text(LEAVES_WORK, encoding="utf-8")
    status, output = call("run", f"{shop}:{name}", "--for", "10s", "--rate", "1")
    assert status == 0, output


def test_an_attempt_that_failed_is_no_handled_message(shop: Path) -> None:
    """A listener that only fails has handled nothing, so nothing is told to be handled more than once."""
    _, output = call("run", f"{shop}:raises", "--for", "5s", "--rate", "1", "--kill", "c1@2s")
    assert ", 0 handled" in output
    assert "Messages came again " in output
    assert "more than once" not in output.replace(" 0 of them more than once", "")


def test_what_a_listener_must_not_return_is_told(shop: Path) -> None:
    """With what it may return, as its messages come again and again."""
    shop.write_text("def consumer(messages, context):\n    return 'ok'\n", encoding="utf-8")
    status, output = call("run", f"{shop}:consumer", "--for", "5s", "--rate", "1")
    assert status == 1
    assert "what is not allowed, first str 'ok'; allowed: None or a ConsumeOrderlyStatus." in output


def test_an_error_of_a_story_has_its_line(tmp_path: Path) -> None:
    """The text of an exception rarely says where it was raised."""
    path = tmp_path / "deploy.py"
    path.write_text(BROKEN_STORY, encoding="utf-8")
    status, output = call("run", f"{path}:deploy")
    assert status == 1
    assert "ERROR AssertionError (deploy.py:7)" in output.splitlines()


def test_a_fault_of_a_host_that_does_not_exist_ends_a_story(tmp_path: Path) -> None:
    """Else the story would pass, and nothing would have happened."""
    path = tmp_path / "deploy.py"
    path.write_text(BROKEN_STORY.replace("assert False", "await cluster.fault('kill c7')"), encoding="utf-8")
    status, output = call("run", f"{path}:deploy")
    assert status == 1
    assert "no host is named 'c7'; there are broker, producer, c1 (deploy.py:7)" in output


def test_a_story_that_is_no_coroutine_is_refused(tmp_path: Path) -> None:
    """When the file is loaded, not in the middle of a run."""
    path = tmp_path / "deploy.py"
    path.write_text(BROKEN_STORY.replace("async ", "").replace("await ", ""), encoding="utf-8")
    status, output = call("run", f"{path}:deploy")
    assert status == 2
    assert "the story deploy is a plain function; write async def deploy(cluster)" in output


def test_the_file_is_new_in_each_run(shop: Path) -> None:
    """What it keeps is as a database of that run, so that equal seeds make equal runs."""
    story = find_experiment(f"{shop}:plain")
    assert isinstance(story, Story)
    first, second = (outcome_of(story.run(seed=3)) for _ in range(2))
    assert first == second
    assert not story.fails(first)


def test_a_plain_listener_takes_virtual_time(shop: Path) -> None:
    """As much as `--work` says: with more of it, fewer messages are handled until c1 dies."""
    handled = []
    for work in ("1ms", "5s"):
        status, output = call("run", f"{shop}:plain", "--for", "20s", "--rate", "1", "--kill", "c1@10s", "--work", work)
        assert status == 0, output
        handled.append(output.partition("handover took ")[2].partition(" (")[0])
    assert handled[0] != handled[1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "sleeps",
            "time.sleep() at shop.py:43 bypasses the simulation: time is simulated; await asyncio.sleep()",
        ),
        (
            "starts_processes",
            "subprocess.run() at shop.py:53 bypasses the simulation: other processes do not run here; call",
        ),
        ("opens_pages", "urllib.request.urlopen() at shop.py:59 bypasses the simulation: the network is simulated; "),
        ("reads_clock", "time.time() at shop.py:47 bypasses the simulation: time is simulated; use message"),
    ],
)
def test_what_bypasses_the_simulation_is_refused(shop: Path, name: str, why: str) -> None:
    """In one line with the call, its place and the cure."""
    status, output = call("run", f"{shop}:{name}", *OPTIONS)
    assert status == 1
    (line,) = [line for line in output.splitlines() if "NondeterminismError" in line]
    assert why in line
    assert "Runtime" not in line


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("nothere.py:consumer", "there is no file nothere.py"),
        ("{shop}", "which function? Write {shop}:NAME; it has consumer, plain, Shop, made, story, sleeps"),
        ("{shop}:nope", "has no 'nope'; it has consumer, plain"),
        ("{shop}:strange", "strange has the parameters (x): an application is a listener (messages, context); or"),
        ("{shop}:makes_nothing", "makes_nothing made a NoneType"),
        ("{shop}:number", "int is no application"),
    ],
)
def test_a_mistake_is_one_clear_line(shop: Path, reference: str, why: str) -> None:
    """With exit status 2."""
    status, output = call("run", reference.format(shop=shop))
    assert status == 2
    assert why.format(shop=shop) in output
    assert len(output.splitlines()) == 1


def test_a_file_that_cannot_be_loaded(tmp_path: Path) -> None:
    """The line says where and why."""
    path = tmp_path / "broken.py"
    path.write_text("def consumer(:\n", encoding="utf-8")
    assert call("run", f"{path}:consumer") == (2, f"lockstep-sim: {path}:1: invalid syntax\n")
    path.write_text("import no_such_module\n", encoding="utf-8")
    status, output = call("run", f"{path}:consumer")
    assert (status, output.count("\n")) == (2, 1)
    assert "broken.py cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'" in output
