"""docs/simulator.md: the commands and the code of its first parts run as they are written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.faults.table import FAULTS

GUIDE = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")
SECTIONS = ("First run", "Faults by name", "Your listener", "Scenarios in Python")


def section(title: str) -> str:
    """The text under a heading."""
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)


COMMANDS = [line for title in SECTIONS for block in blocks(title, "sh") for line in block.splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not fail, unless the guide says so or the fault is meant to break order."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(blocks("Your listener", "python")[0], encoding="utf-8")
    (tmp_path / "deploy.py").write_text(blocks("Scenarios in Python", "python")[0], encoding="utf-8")
    words = shlex.split(command, comments=True)
    assert words[0] == "lockstep-sim"
    result = CliRunner().invoke(app, words[1:])
    two_owners = "exit status 1" in command or "+150s" in command
    assert result.exit_code == (1 if two_owners else 0), result.output
    assert "ERROR" not in result.output
    assert ("WRONG overlap" in result.output) == two_owners


@pytest.mark.long
def test_the_tests_of_the_guide(tmp_path: Path) -> None:
    """They pass under plain pytest; here with two seeds each."""
    text = re.sub(r"seeds=\d+", "seeds=2", blocks("In pytest", "python")[0])
    (tmp_path / "test_shop.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:lockstep", "-p", "no:cacheprovider", "test_shop.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout


@pytest.mark.long
def test_the_guide_quotes_an_explanation() -> None:
    """The block of `explain` is the first part of what the command prints: why it happens."""
    text = section("Replay, shrink, explain: one seed")
    (quoted,) = blocks("Replay, shrink, explain: one seed", "text")
    (command,) = re.findall(r"Of `lockstep-sim (explain .+)`:", text)
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, result.output
    assert result.stdout.partition("\n\nWhat happened\n")[0] + "\n" == quoted


def test_the_guide_has_every_fault() -> None:
    """By name, in the order of the table; `lockstep-sim list` has examples and words."""
    assert re.findall(r"`--([a-z-]+)`", section("Faults by name")) == [fault.name for fault in FAULTS.values()]
