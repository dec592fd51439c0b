"""True are the table of docs/commands.md, and what docs/pipeline.md says of commands."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.broker.options import parse_options
from lockstep.cli import app as cli
from lockstep.pipeline.cli import app as pipeline
from tests.rows import each_row

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = (DOCS / "commands.md").read_text(encoding="utf-8")
PIPELINE = (DOCS / "pipeline.md").read_text(encoding="utf-8")


def command_rows() -> list[tuple[str, str]]:
    """(command, its options on the page) of the table of commands, and of the paragraphs on those for Spark."""
    rows = re.findall(r"^\| `(lockstep[^`]*)` \| (.*) \|$", COMMANDS, re.MULTILINE)
    told = re.findall(r"^\*\*([a-z]+)\*\* (.*?)\n\n", PIPELINE, re.MULTILINE | re.DOTALL)
    return rows + [(f"lockstep-pipeline {command}", text) for command, text in told]


def test_the_commands_have_their_options(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Each `--option` of a row is in the command's own help; placeholders in capitals are arguments."""
    monkeypatch.setenv("COLUMNS", "200")
    with each_row() as row:
        for command, text in command_rows():
            words = [word for word in command.split() if word.islower() and not word.startswith("-")]
            with row(command):
                monkeypatch.setattr(sys, "argv", [*words, "--help"])
                capfd.readouterr()
                assert PROGRAMS[words[0]]() == 0
                helped = capfd.readouterr().out
                options = re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", text + " " + command)
                missing = [option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}\b", helped)]
                assert not missing


def broker_status() -> object:
    """What `lockstep-broker` ends with when it is asked for help."""
    with pytest.raises(SystemExit) as ended:
        parse_options(sys.argv[1:])
    return ended.value.code


PROGRAMS: dict[str, Callable[[], object]] = {
    "lockstep": cli._status,
    "lockstep-broker": broker_status,
    "lockstep-pipeline": pipeline._status,
}


def test_the_rows_are_found() -> None:
    """The test above looks at all of them."""
    assert len(command_rows()) == 45
