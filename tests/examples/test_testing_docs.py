"""What docs/testing.md shows runs as it stands, with the plugin, in a project of its own."""

import os
import re
import sys
from pathlib import Path

import pytest

from lockstep.testing import LockstepBroker
from lockstep.testing.control_port.calls import CALLS
from tests.testing.plugin_project import Project

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_the_python_of_the_document_passes(number: int, tmp_path: Path) -> None:
    """Each block is a file of tests, and all of them pass."""
    project = Project(tmp_path)
    project.write("test_it.py", BLOCKS[number])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated environment
    report = project.run(environment={"PATH": path})
    assert report.counts() == {"passed": BLOCKS[number].count("\ndef test_")}, report.text


def test_there_are_three_blocks() -> None:
    """The test above leaves none out."""
    assert len(BLOCKS) == 3


def test_every_call_is_in_the_table_with_its_arguments() -> None:
    """The control port's calls, and those of the fixture."""
    rows = dict(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|([^|]*)\|", TEXT, re.MULTILINE))
    told = {call: arguments for calls, arguments in rows.items() for call in re.findall(r"\w+", calls)}
    for name, (_, known) in CALLS.items():
        assert set(re.findall(r"`(\w+)`", told[name])) == known, name
    fixture = TEXT[TEXT.index("| `lockstep_broker` |") : TEXT.index("### Moving the clock")]
    public = {name for name in dir(LockstepBroker) if not name.startswith("_")} | {"topic", "group"}
    assert {name for name in public if f"`.{name}" not in fixture} == set()
