"""Run every scenario once, and print a line `name mode seed hash` for each.

    python -m tests.scenarios.all_hashes [NAME_PART ...]
    python -m tests.scenarios.all_hashes --like FILE

The modes take turns; with `--like` they are those of a file of such lines. Two processes print the same lines, whatever
PYTHONHASHSEED is.
"""

import importlib
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from tests.scenarios.scenario import ENCODINGS, SEED, STORIES, Mode

__all__ = ["load", "main"]


def load() -> None:
    """Import every test module here, so that its stories are known."""
    here = Path(__file__).parent
    for path in sorted(here.rglob("test_*.py"), key=lambda path: path.stem):
        module = ".".join(path.relative_to(here).with_suffix("").parts)
        importlib.import_module(f"tests.scenarios.{module}")


def main(arguments: list[str]) -> None:
    load()
    for name, mode in _like(Path(arguments[1])) if arguments[:1] == ["--like"] else _in_turn(arguments):
        print(name, mode.name, SEED, STORIES[name].run(mode).trace_hash, flush=True)


def _like(path: Path) -> Iterator[tuple[str, Mode]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        name, mode, *_ = line.split()
        yield name, Mode.of(mode)


def _in_turn(parts: list[str]) -> Iterator[tuple[str, Mode]]:
    for name, encoding in zip(STORIES, cycle(ENCODINGS)):
        if not parts or any(part in name for part in parts):
            yield name, Mode(encoding)


if __name__ == "__main__":
    main(sys.argv[1:])
