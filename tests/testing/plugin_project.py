"""A project of somebody who tests with the plugin: files in a folder, and `python -m pytest` run there."""

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

__all__ = ["Project", "Report"]

TIMEOUT_S = 200
QUIET = ("-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function", "-rA")


class Report(NamedTuple):
    status: int
    text: str

    def counts(self) -> dict[str, int]:
        """{"passed": 2, "errors": 1}, as the last line says."""
        last = self.text.rstrip().splitlines()[-1]
        return {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)}


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pytest", *QUIET, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        ours = ("PYTEST_", "NAMESRV_ADDR")  # what the run of this test says of itself
        longer = ("CI", "BUILD_NUMBER")  # with which pytest's summary repeats whole errors
        kept = {name: value for name, value in os.environ.items() if name not in longer}
        return {name: value for name, value in kept.items() if not name.startswith(ours)}

    def run(self, *arguments: str, environment: dict[str, str] | None = None) -> Report:
        """`python -m pytest` in the project's folder, to its end."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Report(done.returncode, done.stdout)
