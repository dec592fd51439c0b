"""The demo as a process: whatever ends it, it ends everything that it started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts.test_flights import ROWS, archive

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo over six flights, in a process group of its own, with its folder under ours, its queues shared out."""
    data = archive(tmp_path, *ROWS)
    (tmp_path / "folders").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.demo", "--data", str(data)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "folders")},
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "have shared out the queues" in line:
                break
        yield process
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
