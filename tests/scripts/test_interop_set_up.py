"""What `make interop` says and leaves behind where a client cannot be had."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.interop import set_up


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of an ordinary user with nothing on its PATH."""
    monkeypatch.setattr(set_up, "BUILD", tmp_path / "build")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "build"


def run(monkeypatch: pytest.MonkeyPatch, *parts: str) -> int:
    monkeypatch.setattr(sys, "argv", ["set_up.py", *parts])
    return set_up.main()


def program(build: Path, name: str, script: str) -> None:
    path = build.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize(("ci", "left_out"), [("", set()), ("true", {"rust5"})])
def test_make_sets_up_each_part(ci: str, left_out: set[str]) -> None:
    """CI leaves out what compiles for minutes."""
    # No such folder: as in a fresh clone, nothing is set up.
    words = ["make", "--dry-run", "interop", "INTEROP=none", f"CI={ci}"]
    told = subprocess.run(words, cwd=Path(set_up.__file__).parents[2], capture_output=True, text=True, check=True)
    assert set(re.findall(r"set_up\.py (\w+)", told.stdout)) == set_up.PARTS.keys() - left_out


def test_each_client_fails_on_its_own(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing is named in one line a client, left where its tests look, and is no failure of make."""
    assert run(monkeypatch, "java", "apache", "drivers", "node") == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["java", "apache", "drivers", "node"]
    assert "no `javac` on the PATH; on Debian and Ubuntu: apt install default-jdk-headless" in lines[0]
    assert "no `node` on the PATH; on Debian and Ubuntu: apt install nodejs" in lines[3]
    for part in ("java", "apache", "drivers", "node"):
        assert not (build / part / ".ready").exists()
        assert (build / part / "missing.txt").read_text(encoding="utf-8").count("\n") == 1


def test_an_old_program_is_not_enough(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Java 8 is `1.8`, and older than 11."""
    program(build, "javac", 'echo "javac 1.8.0_392" >&2')
    assert run(monkeypatch, "java") == 0
    assert "a JDK of version 11 or newer is needed; `javac` is 1.8.0" in capsys.readouterr().err


def test_a_registry_that_fails_is_quoted(
    build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first complaint of the registry's own client is the reason."""
    program(build, "node", "echo v20.1.0")
    program(build, "npm", '[ "$1" = --version ] && echo 10.2.0 && exit\necho "npm error 404 not there" >&2; exit 1')
    assert run(monkeypatch, "node") == 0
    assert (build / "node" / "missing.txt").read_text(encoding="utf-8").endswith("failed: npm error 404 not there\n")


def test_what_was_missing_is_tried_again(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is complete has its stamp and no reason any more."""
    assert run(monkeypatch, "node") == 0
    program(build, "node", "echo v20.1.0")
    program(build, "npm", "echo 10.2.0")
    assert run(monkeypatch, "node") == 0
    assert (build / "node" / ".ready").exists()
    assert not (build / "node" / "missing.txt").exists()


def test_drivers_that_do_not_compile_are_a_failure(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are ours: a compiler's complaint must not look like a missing client."""
    (build / "java").mkdir(parents=True)
    (build / "java" / ".ready").touch()
    program(build, "javac", "exit 1")
    assert run(monkeypatch, "drivers") == 1
    assert not (build / "drivers" / "missing.txt").exists()


def test_subprocesses_are_given_a_time() -> None:
    """A registry that never answers ends a run, not a day."""
    with pytest.raises(set_up.Missing, match="did not end within"):
        set_up.fetch(["sleep", "30"], Path.cwd(), timeout_s=0.05)
