"""True are the tables of docs/commands.md and docs/settings.md, and what docs/pipeline.md says of commands."""

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.options import parse_options
from lockstep.cli import app as cli
from lockstep.client import ConsumerConfig, ProducerConfig
from lockstep.pipeline.cli import app as pipeline
from tests.rows import each_row

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = (DOCS / "commands.md").read_text(encoding="utf-8")
PIPELINE = (DOCS / "pipeline.md").read_text(encoding="utf-8")
SETTINGS = (DOCS / "settings.md").read_text(encoding="utf-8")
CONFIGS: dict[str, Any] = {"broker": BrokerConfig, "consumer": ConsumerConfig, "producer": ProducerConfig}


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


def setting_rows() -> list[tuple[str, str, str, str]]:
    """(whose, our name, RocketMQ's name, default) of the table of settings."""
    pattern = r"^\| (broker|consumer|producer) \| `(\w+)` \| (?:`([\w.]+)`)? ?\| (\S+) \|$"
    return re.findall(pattern, SETTINGS, re.MULTILINE)


def test_the_settings_are_so() -> None:
    """Name, RocketMQ's name and default, each as in the code."""
    with each_row() as row:
        for whose, name, theirs, default in setting_rows():
            with row(f"{whose} {name}"):
                (field,) = [field for field in fields(CONFIGS[whose]) if field.name == name]
                assert field.metadata.get("property", "") == theirs
                value = field.default.name if isinstance(field.default, Enum) else str(field.default).lower()
                assert value == default


def test_the_tables_are_found() -> None:
    """The tests above look at rows, and there are some."""
    assert len(command_rows()) == 42
    assert len(setting_rows()) == 37
