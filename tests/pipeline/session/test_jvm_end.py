"""A JVM that ends amid a job, as one does whose memory is too small: a clear line, and an end."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from lockstep.pipeline.cli.errors import is_of_spark, one_line
from tests.commands import SCRIPTS
from tests.integration.harness.processes import Process, until
from tests.pipeline.conftest import Brokers
from tests.pipeline.topics import Topic

PROGRAM = str(SCRIPTS / "lockstep-pipeline")


def java_of(process: Process) -> int:
    """The JVM that a process started."""
    children = " ".join(path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/children")).split()
    (found,) = [int(pid) for pid in children if Path(f"/proc/{pid}/exe").readlink().name == "java"]
    return found


@pytest.mark.timeout(900)
def test_a_command_ends_with_its_jvm(brokers: Brokers, java: str) -> None:
    """Status 1 and one line that says what to do; no traceback of either language."""
    topic = Topic.create(brokers.start(), "ending")
    topic.fill(3)
    options = ("-n", topic.broker.name_server, "--group", "g", "--topic", topic.name, "--every", "1", "-o", "json")
    command = brokers.processes.program("lag", PROGRAM, "lag", *options)
    asyncio.run(until(lambda: topic.name in command.stdout(), "a row of lag", 60))
    os.kill(java_of(command), signal.SIGKILL)
    assert asyncio.run(command.ended(60)) == 1
    said = command.stderr()
    assert "lockstep-pipeline: Spark's JVM ended by itself" in said
    assert "Traceback" not in said
    assert "Warning: Unable" not in said


class AskedOfNobody(Exception):
    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("error", [AskedOfNobody(), ConnectionResetError(104, "reset")])
def test_errors_of_a_dead_jvm_are_told_as_such(error: Exception) -> None:
    assert one_line(error).startswith("Spark's JVM ended by itself")
    assert is_of_spark(ConnectionRefusedError())
    assert not is_of_spark(ValueError())
