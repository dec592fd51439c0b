"""The demo as a process: whatever ends it, it ends everything that it started."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.demo.consumer import QUEUES
from tests.commands import Lockstep
from tests.integration.harness.prometheus import prometheus
from tests.scripts.test_flights import ROWS, archive

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo over six flights, its queues shared out."""
    with running_demo(tmp_path, *ROWS) as (process, _):
        yield process


@contextmanager
def running_demo(
    tmp_path: Path, *rows: str, options: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The demo in a process group of its own, with its folder under ours, and what it said until queues had owners."""
    data, said = archive(tmp_path, *rows), ""
    (tmp_path / "folders").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.demo", "--data", str(data), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "folders")},
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if "have shared out the queues" in line:
                break
        yield process, said
    finally:
        if group_lives(process):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def group_lives(process: subprocess.Popen[str]) -> bool:
    """Whether any process of the demo's group is left."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("whole_group", [True, False], ids=["from a terminal", "from elsewhere"])
def test_an_interrupted_demo_leaves_nothing(
    demo: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, whole_group: bool
) -> None:
    """Ctrl-C, which reaches every process, or a signal to the demo alone: status 130, no process, no folder."""
    if whole_group:
        os.killpg(demo.pid, number)
    else:
        demo.send_signal(number)
    output, _ = demo.communicate(timeout=120)
    assert demo.returncode == 130, output
    assert not group_lives(demo)
    assert list((tmp_path / "folders").iterdir()) == []


def test_a_broker_that_dies_fails_the_demo(demo: subprocess.Popen[str]) -> None:
    """A process that ends by itself is named, with its status; the others are ended."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    brokers = [
        int(fields[0])
        for fields in (line.split(maxsplit=2) for line in listing.splitlines())
        if int(fields[1]) == demo.pid and "lockstep.broker" in fields[2]
    ]
    assert len(brokers) == 1
    os.kill(brokers[0], signal.SIGKILL)
    output, _ = demo.communicate(timeout=120)
    assert demo.returncode == 1, output
    assert "broker ended with status -9" in output
    assert not group_lives(demo)


def test_a_healthy_demo_for_the_doctor_and_a_real_prometheus(tmp_path: Path) -> None:
    """While its consumers work the doctor finds nothing, and Prometheus counts messages and owned queues."""
    flights = [ROWS[1].replace("N2", f"N{number}") for number in range(400)]
    options = ("--metrics-port", "0", "--seconds", "600")
    with running_demo(tmp_path, *flights, options=options) as (_, said):
        found = re.search(r"metrics are at (\S+), the name server is (\S+)", said)
        assert found is not None, said
        lockstep = Lockstep(found[2])
        looks = [lockstep("doctor")]
        while looks[-1].status and len(looks) < 10:  # a renewal may be late on a busy machine
            looks.append(lockstep("doctor"))
        assert looks[-1].out.startswith("nothing found: "), looks
        with prometheus(found[1], tmp_path) as ask:
            ask('rocketmq_messages_in_total{topic="flights"}', lambda count: count > 0)
            ask('sum(lockstep_lock_held{topic="flights"})', lambda count: count == QUEUES)
