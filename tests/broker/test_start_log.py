"""The broker's log: names that peers choose send no control codes to a terminal, in any format."""

import io

import pytest

from lockstep.broker.start_log import StartLog

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
