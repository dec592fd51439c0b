"""`@order_test` under plain pytest: a failure names the seed, the finding and the command that runs it again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.client import Message
from lockstep.simulation import Cluster, SeedFailedError, StoryCluster, order_test
from lockstep.simulation.lab.faults.text import FaultError

TESTS = '''
import asyncio

import pytest

from lockstep.simulation import order_test


@order_test(seeds=2)
def test_good():
    """Each seed gets a listener of its own."""
    done = []

    async def listen(messages, context):
        await asyncio.sleep(0.2)
        done.extend(messages)

    return listen


@order_test(seeds=3, events=["stall c1@20s+150s"], life="3m", lock_mode="faithful", work="2s", rate=2)
def test_two_owners():
    return lambda messages, context: None


@order_test(seeds=2, life="20s")
async def test_story(cluster):
    done = []

    async def listen(messages, context):
        done.extend(messages)

    await cluster.start(listen)
    await cluster.finish()
    assert len(done) > 1000


@pytest.mark.skip(reason="marks are kept")
@order_test(seeds=2)
def test_skipped():
    return None


@order_test(seeds=1)
def test_without_a_listener():
    return None
'''


@pytest.mark.long
def test_under_plain_pytest(tmp_path: Path) -> None:
    """Without a plugin of ours; and the command of a failure fails in the same way."""
    (tmp_path / "test_shop.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:lockstep", "-p", "no:cacheprovider", "test_shop.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 failed, 1 passed, 1 skipped" in done.stdout, done.stdout
    for text in (
        "seed 1 failed",
        " overlap: ",
        "faults: stall c1@20s+2m30s",
        "again:  lockstep-sim run test_shop.py:test_two_owners --seed 1 --lock-mode faithful",
        " > 1000",
        "again:  lockstep-sim run test_shop.py:test_story --seed 1 --lock-mode fenced",
        "NoneType is no application: an application is a listener (messages, context)",
    ):
        assert text in done.stdout, done.stdout
    main = [sys.executable, "-c", "from lockstep.simulation.commands.app import main; main()"]
    words = ["run", "test_shop.py:test_two_owners", "--lock-mode", "faithful"]
    again = subprocess.run([*main, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stderr
    assert "WRONG overlap: c1 " in again.stdout


SHOP = {
    "shop/__init__.py": "",
    "shop/orders.py": "from lib_of_shop import answer\n\n\ndef listener(messages, context):\n    answer()\n",
    "src/lib_of_shop.py": "def answer():\n    raise KeyError('no such dish')\n",
    "tests/__init__.py": "",
    "tests/small.py": "SMALL = {'seeds': 1, 'life': '5s', 'swarm': ()}\n",
    "tests/test_shop.py": """
from lockstep.simulation import order_test
from shop.orders import listener

from .small import SMALL


@order_test(**SMALL)
def test_orders():
    return listener
""",
    "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src']\n",
}


@pytest.mark.long
def test_the_command_of_a_failure_runs_as_it_is(tmp_path: Path) -> None:
    """With a package beside the tests, tests that are a package, and a folder that only pytest knows."""
    for name, text in SHOP.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:lockstep", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(pytest_run, cwd=tmp_path, capture_output=True, text=True, check=False)
    # A set: with CI=true pytest repeats the whole message in its summary.
    (command,) = set(re.findall(r"again:  (.*)", done.stdout)) or {done.stdout}
    assert command == "PYTHONPATH=src lockstep-sim run tests/test_shop.py:test_orders --seed 1 --lock-mode fenced"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    again = subprocess.run(
        command, shell=True, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1, again.stderr
    assert "first KeyError: 'no such dish' (lib_of_shop.py:2)." in again.stdout


@order_test(seeds=2, swarm=(), life="10s", message=lambda n: Message("Pizza", b"%d" % n, sharding_key=f"table{n % 2}"))
async def test_an_order_test_is_a_test(cluster: StoryCluster) -> None:
    """This one is: its messages are the caller's, and the cluster is there to look at."""
    assert isinstance(cluster, Cluster)
    await cluster.finish()
    assert cluster.topic == "Pizza"
    assert cluster.sent == ["0", "1", "2", "3", "4"]
    assert cluster.check().keys == 2


def test_arguments_are_checked_at_once() -> None:
    """When the test is collected, not when it runs."""
    with pytest.raises(FaultError, match="no fault is named 'burn'"):
        order_test(swarm=["burn"])(lambda: None)
    with pytest.raises(FaultError, match="no host is named 'c3'"):
        order_test(events=["kill c3@1s"])(lambda: None)
    with pytest.raises(ValueError, match="lock mode 'open' is not allowed"):
        order_test(lock_mode="open")(lambda: None)
    with pytest.raises(TypeError, match="qeues"):
        order_test(qeues=3)(lambda: None)
    assert issubclass(SeedFailedError, AssertionError)
