"""What a broker says is shown as text: it steers no terminal, in tables, notes, lines and live views."""

import io
import json

import pytest
from rich.console import Console

from lockstep.cli.format import format_line
from lockstep.cli.lock.live import LiveLocks
from lockstep.cli.output import OutputFormat, StderrLog, json_line, note, print_rows
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue
from tests.client.messages import message_at

NAME = "\x1b]0;owned\x07\nforged"
SHOWN = "\\x1b]0;owned\\x07\\nforged"


def test_tables_and_notes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A cell and a list in a cell are on one line; so is what is said on stderr."""
    print_rows(("group", "topics"), [{"group": NAME, "topics": [NAME]}], OutputFormat.TABLE)
    note(f"the broker says {NAME}")
    out, err = capfdbinary.readouterr()
    assert out.decode().splitlines()[1].split() == [SHOWN, SHOWN]
    assert err == b"lockstep: the broker says \\x1b]0;owned\\x07 forged\n"


def test_a_traceback(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The text of an exception may hold what a peer sent: each of its lines is shown as text."""
    try:
        raise ValueError(f"no such group: {NAME}")
    except ValueError as error:
        StderrLog(verbose=False).error("it failed", exc_info=error)
    lines = capfdbinary.readouterr().err.decode().splitlines()
    assert lines[0] == "lockstep: it failed"
    assert lines[-2:] == ["ValueError: no such group: \\x1b]0;owned\\x07", "forged"]
    assert all(line.isprintable() for line in lines)


def test_json_is_the_same_value_without_control_characters() -> None:
    """JSON itself escapes only those below 0x20: DEL, C1 controls and marks of direction steer a terminal too."""
    value = {"name": "\x7f\x9b2J\u202e\U000e0001 plain ü"}
    line = json_line(value)
    assert line.isprintable()
    assert "plain ü" in line
    assert json.loads(line) == value


def test_a_line_of_a_message() -> None:
    """Key and tags come from its sender, as its body does."""
    message = message_at(0, b"\x1b[2J", TAGS=NAME, __SHARDINGKEY=NAME)
    line = format_line(message).decode()
    assert line.removesuffix("\n").isprintable()
    assert line.count(SHOWN) == 2


def test_the_live_view_of_locks() -> None:
    """Group, queue and owner are names of clients."""
    shown = io.StringIO()
    view = LiveLocks(Console(file=shown, width=200))
    with view:
        view.show([LockTableRow(NAME, MessageQueue(NAME, NAME, 0), NAME, 0, 0, 0)], [], 1_700_000_000_000)
    assert "\x07" not in shown.getvalue()
    assert "owned" in shown.getvalue()
