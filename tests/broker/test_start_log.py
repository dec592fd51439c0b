"""The broker's log: names that peers choose send no control codes to a terminal, in any format."""

import io
import json
import os
import time
from typing import Any

import pytest

from lockstep.broker.start_log import StartLog
from lockstep.remoting.host.report_stream import ReportStream

NAME = "\x1b[2Jg\x07\x9b31m\u202e"
ESCAPED = "\\x1b[2Jg\\x07\\x9b31m\\u202e"


def logged(log_format: str, name: str) -> str:
    """Everything that is written for a name in an event, a field, a list and an error with its traceback."""
    stream = io.StringIO()
    log = StartLog()
    log.open(log_format, "info", stream, time.monotonic_ns)
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
    log.open("json", "info", ReportStream(writing), time.monotonic_ns)
    for _ in range(3000):
        log.info("shown", reason="x" * 100)
    os.read(reading, 1 << 20)
    log.info("one")
    log.info("two")
    events = [json.loads(line) for line in os.read(reading, 1 << 20).decode().splitlines() if line]
    os.close(reading)
    os.close(writing)
    assert [event["event"] for event in events] == ["log_lines_dropped", "one", "two"]
    assert events[0]["lines"] > 1000


def test_what_peers_cause_at_will_is_sampled() -> None:
    """The first 100 in 10 s; the next line counts those that were left out. Other events are all there."""
    stream, now_s = io.StringIO(), 0
    log = StartLog()
    log.open("json", "info", stream, lambda: now_s * 1_000_000_000)

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.seek(0)
        stream.truncate()
        return found

    for number in range(1000):
        log.info("send_refused", topic=f"T{number}", code="SYSTEM_ERROR", reason="full", peer=f"10.0.0.1:{number}")
        log.info("topic_deleted", topic="T")
    refused = [line for line in lines() if line["event"] == "send_refused"]
    assert [line["topic"] for line in refused] == [f"T{number}" for number in range(100)]
    log.warning("frame_unreadable", peer="10.0.0.1:1", reason="frame length 7")
    for number in range(1000):
        log.info("topic_deleted", topic=f"T{number}")
    assert [line["event"] for line in lines()] == ["frame_unreadable"] + ["topic_deleted"] * 1000
    for seconds, times in ((10, 901), (30, None)):
        now_s = seconds
        log.info("send_refused", topic="T", code="SYSTEM_ERROR", reason="full", peer="10.0.0.1:5")
        assert [line.get("times") for line in lines()] == [times]
