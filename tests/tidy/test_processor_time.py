"""What a run costs is told, and so are dear tests; the bound on the whole run holds."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mutants.__main__ import FAILED, PASSED, pytest_run
from tests.processor_time import CALL_MAX_S, ProcessorTime


def config(tier: str) -> Any:
    return SimpleNamespace(getoption=lambda name: tier if name == "--tier" else None)


def named(tier: str, seconds: float, slower: float = 1.0) -> list[str]:
    """What is said of one test that took so long, on a machine that is so many times slower. No run fails of it."""
    plugin = ProcessorTime(config(tier))
    properties = [("processor seconds", seconds), ("slowness of the machine", slower)]
    report: Any = SimpleNamespace(when="call", nodeid="t.py::test", user_properties=properties)
    plugin.pytest_runtest_logreport(report)
    assert plugin._too_much() == []
    return plugin._dear_tests()


def test_a_dear_test_is_named_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """In quick alone: what takes longer is marked, or made cheaper."""
    monkeypatch.setenv("CI", "true")
    (line,) = named("quick", CALL_MAX_S + 1)
    assert line.startswith(f"t.py::test took {CALL_MAX_S + 1} processor seconds")
    assert named("quick", CALL_MAX_S - 1) == named("rest", CALL_MAX_S + 1) == []
    assert named("quick", 2 * CALL_MAX_S - 1, slower=2.0) == []
    monkeypatch.delenv("CI")
    assert named("quick", CALL_MAX_S + 1) == []


def test_what_a_test_starts_is_counted() -> None:
    """The processor time of a process of its own."""
    plugin = ProcessorTime(config("quick"))
    before_s = plugin._sum()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    assert plugin._sum() >= before_s + 0.5


def test_a_run_has_a_ceiling(tmp_path: Path) -> None:
    """The run fails although all its tests passed; what its workers' tests start is in the sum."""
    program = "import time\nwhile time.process_time() < 1.5: pass"
    works = f"subprocess.run([sys.executable, '-c', {program!r}], check=True)"
    (tmp_path / "test_works.py").write_text(f"import subprocess, sys\n\n\ndef test() -> None:\n    {works}\n")
    words = [str(tmp_path / "test_works.py"), "--config-file=pyproject.toml", "--rootdir=.", "--confcutdir=."]
    status, output = pytest_run([], *words, "tests/tidy/test_rows.py", "-n1", "--cpu-ceiling=1.5")
    assert status == FAILED
    assert "processor seconds, and 2 are allowed" in output
    assert pytest_run([], "tests/tidy/test_rows.py", "--cpu-ceiling=500")[0] == PASSED
