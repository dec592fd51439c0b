"""The broker's log: names that peers choose send no control codes to a terminal, in any format."""

import io
import json
import os

import pytest

from lockstep.broker.start_log import StartLog
from lockstep.remoting.host.report_stream import ReportStream

NAME = "\x1b[2Jg\x07\x9b31m\u202e"
ESCAPED = "\\x1b[2Jg\\x07\\x9b31m\\u202e"


def logged(log_format: str, name: str) -> str:
    """Everything that is written for a name in an event, a field, a list and an error with its traceback."""
    stream = io.StringIO()
    log = StartLog()
    log.open(log_format, "info", stream)
    event = f"said {name}"
    log.info(event, group=name, topics=[name, {name: name}], peer=f"{name} and\r\nforged line")
    try:
        raise ValueError(name)
    except ValueError:
        log.error("request failed", reason=name, exc_info=True)  # noqa: G201 - it has no `exception`
    return stream.getvalue()


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_control_characters_of_names_are_escaped(log_format: str) -> None:
    """Escape sequences, bells, line ends and marks that turn the direction of writing stand there as text."""
    written = logged(log_format, NAME)
    assert all(line.isprintable() for line in written.split("\n"))
    assert "\nforged" not in written


def test_other_characters_stay_as_they_are() -> None:
    """Letters of any language, and a traceback's own lines."""
    written = logged("console", "café-訂單")
    assert written.count("café-訂單") > 5
    assert "Traceback (most recent call last):\n" in written
    assert ESCAPED in logged("console", NAME)


def test_lines_that_were_dropped_are_said_once_when_the_log_works_again() -> None:
    """With their number, before the next event."""
    reading, writing = os.pipe()
    log = StartLog()
    log.open("json", "info", ReportStream(writing))
    for _ in range(3000):
        log.info("send_refused", reason="x" * 100)
    os.read(reading, 1 << 20)
    log.info("one")
    log.info("two")
    events = [json.loads(line) for line in os.read(reading, 1 << 20).decode().splitlines() if line]
    os.close(reading)
    os.close(writing)
    assert [event["event"] for event in events] == ["log_lines_dropped", "one", "two"]
    assert events[0]["lines"] > 1000
