"""`lockstep consume --queue`: one queue from an offset on, without a group."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.cli.cli_inside import Inside
from tests.commands import Lockstep, running_broker, without_progress
from tests.rows import by_row


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker of this module's own, and a to e in the only queue of topic `orders`."""
    with running_broker("--topic", "orders:1", "--topic", "empty:1") as command:
        assert command("produce", "orders", "-k", "k", "--text", stdin="a\nb\nc\nd\ne\n").status == 0
        yield command


@pytest.fixture
def inside(lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    return Inside(lockstep.name_server, monkeypatch, capfd)


@by_row(
    "offset, bodies",
    [("first", "abcde"), ("0", "abcde"), ("3", "de"), ("-2", "de"), ("-99", "abcde"), ("last", ""), ("5", "")],
)
def test_it_begins_at_the_offset_and_ends_at_the_end(inside: Inside, offset: str, bodies: str) -> None:
    """No group appears on the broker, and none of its offsets moves."""
    read = inside("consume", "orders", "--queue", "broker-a:0", "--offset", offset, "--exit-at-end", "-f", "%s")
    assert (read.status, read.out) == (0, bodies)
    assert f"consumed {len(bodies)} message" in read.err
    assert inside("group", "list", "-o", "json").rows == []


def test_count_ends_it_and_the_first_offset_is_the_usual_one(inside: Inside) -> None:
    """JSON objects, as with a group."""
    rows = inside("consume", "orders", "-q", "0", "-c", "2").rows
    assert [(row["offset"], row["key"], row["body"]) for row in rows] == [(0, "k", "a"), (1, "k", "b")]


def test_it_waits_for_what_comes_until_a_signal(lockstep: Lockstep) -> None:
    """Ctrl-C ends it with its summary."""
    with lockstep.start("consume", "empty", "-q", "broker-a:0", "-f", r"%o %s\n") as reading:
        assert lockstep("produce", "empty", "--text", stdin="x\ny\n").status == 0
        assert [reading.line(), reading.line()] == ["0 x\n", "1 y\n"]
        result = reading.stop(signal.SIGINT)
    assert result.status == 130
    assert without_progress(result.err) == "lockstep: consumed 2 messages\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("-q broker-a:0 --offset 6", "queue orders@broker-a:0 has offsets 0 to 5, and not 6"),
        ("-q broker-a:7", "topic 'orders' has no queue broker-a:7; it has broker-a:0 to broker-a:0"),
    ],
)
def test_what_is_not_there_is_named(inside: Inside, arguments: str, complaint: str) -> None:
    """Exit 1 and what there is."""
    result = inside("consume", "orders", *arguments.split())
    assert (result.status, result.out) == (1, "")
    assert complaint in result.err


@pytest.mark.parametrize("command", ["consume orders -q 0 -e", "topic list"])
def test_a_full_disk_behind_stdout_is_told_in_one_line(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It is no error of the command's own."""

    def write(_data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=SimpleNamespace(raw=SimpleNamespace(write=write))))
    result = inside(*command.split())
    assert (result.status, result.out) == (1, "")
    assert result.err.splitlines()[-1] == f"lockstep: cannot write: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}"
