"""The tables of docs/commands.md and docs/settings.md are true: commands, options, settings and their defaults."""

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.client import ConsumerConfig, ProducerConfig
from tests.commands import Lockstep

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = (DOCS / "commands.md").read_text(encoding="utf-8")
SETTINGS = (DOCS / "settings.md").read_text(encoding="utf-8")
CONFIGS: dict[str, Any] = {"broker": BrokerConfig, "consumer": ConsumerConfig, "producer": ProducerConfig}


def command_rows() -> list[tuple[str, str]]:
    """(command, its options on the page) of the tables of commands."""
    return re.findall(r"^\| `(lockstep[^`]*)` \| (.*) \|$", COMMANDS, re.MULTILINE)


@pytest.mark.parametrize(("command", "text"), command_rows(), ids=[name for name, _ in command_rows()])
def test_the_commands_have_their_options(command: str, text: str) -> None:
    """Each `--option` of a row is in the command's own help; placeholders in capitals are arguments."""
    words = [word for word in command.split() if word.islower() and not word.startswith("-")]
    nowhere = Lockstep("127.0.0.1:1")
    helped = nowhere.run(words[0], *words[1:], "--help")
    assert helped.status == 0
    options = re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", text + " " + command)
    missing = [option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}\b", helped.out)]
    assert not missing


def setting_rows() -> list[tuple[str, str, str, str]]:
    """(whose, our name, RocketMQ's name, default) of the table of settings."""
    pattern = r"^\| (broker|consumer|producer) \| `(\w+)` \| (?:`([\w.]+)`)? ?\| (\S+) \|$"
    return re.findall(pattern, SETTINGS, re.MULTILINE)


@pytest.mark.parametrize(("whose", "name", "theirs", "default"), setting_rows())
def test_the_settings_are_so(whose: str, name: str, theirs: str, default: str) -> None:
    """Name, RocketMQ's name and default, each as in the code."""
    (field,) = [field for field in fields(CONFIGS[whose]) if field.name == name]
    assert field.metadata.get("property", "") == theirs
    value = field.default.name if isinstance(field.default, Enum) else str(field.default).lower()
    assert value == default


def test_the_tables_are_found() -> None:
    """The tests above look at rows, and there are some."""
    assert len(command_rows()) == 41
    assert len(setting_rows()) == 37
