"""What the README says is so: its Python runs, its commands and options exist, its settings have those defaults."""

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.client import ConsumerConfig, ProducerConfig
from tests.client.plugin_project import Project
from tests.commands import Lockstep, running_broker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONFIGS: dict[str, Any] = {"broker": BrokerConfig, "consumer": ConsumerConfig, "producer": ProducerConfig}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    """As it stands, but for the port; it prints what it sent, in order."""
    program, *_ = PYTHON
    with running_broker() as lockstep:
        path = tmp_path / "program.py"
        path.write_text(program.replace("127.0.0.1:9876", lockstep.name_server), encoding="utf-8")
        with lockstep.program(path) as running:
            result = running.ended()
    assert (result.status, result.err) == (0, "")
    assert [line.split()[1:] for line in result.out.splitlines()] == [["0", "1001", "created"], ["1", "1001", "paid"]]


def test_the_tests_in_the_readme_pass(tmp_path: Path) -> None:
    """With the imports, and the function under test, that the example in examples/ has."""
    example = (ROOT / "examples" / "test_orders.py").read_text(encoding="utf-8")
    project = Project(tmp_path)
    project.write("test_it.py", example[: example.index("def test_")] + PYTHON[1])
    report = project.run()
    assert report.counts() == {"passed": 2}, report.text


def command_rows() -> list[tuple[str, str]]:
    """(command, its options in the README) of the table of commands."""
    return re.findall(r"^\| `(lockstep[^`]*)` \| (.*) \|$", README, re.MULTILINE)


@pytest.mark.parametrize(("command", "text"), command_rows(), ids=[name for name, _ in command_rows()])
def test_the_commands_in_the_readme_have_their_options(command: str, text: str) -> None:
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
    return re.findall(pattern, README, re.MULTILINE)


@pytest.mark.parametrize(("whose", "name", "theirs", "default"), setting_rows())
def test_the_settings_in_the_readme_are_so(whose: str, name: str, theirs: str, default: str) -> None:
    """Name, RocketMQ's name and default, each as in the code."""
    (field,) = [field for field in fields(CONFIGS[whose]) if field.name == name]
    assert field.metadata.get("property", "") == theirs
    assert str(field.default).lower() == default


def test_the_tables_are_found() -> None:
    """The tests above look at rows, and there are some."""
    assert len(command_rows()) == 24
    assert len(setting_rows()) == 31


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link of a document names a file or a folder that is there."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not Path(os.path.normpath(document.parent / target)).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_files_named_in_documents_exist(document: Path) -> None:
    """`client/pull.py` and the like are paths of this tree."""
    names = re.findall(r"`((?:protocol|remoting|broker|client|simulation|scripts|examples|tests)/[\w/.]*)`",
                       document.read_text(encoding="utf-8"))  # fmt: skip
    missing = [name for name in names if not (ROOT / name).exists()]
    assert not missing
