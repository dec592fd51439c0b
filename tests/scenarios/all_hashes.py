"""Run every scenario once, one encoding after the other in turn, and print a line `name encoding seed hash` for each.

    python -m tests.scenarios.all_hashes [SEED] [NAME_PART ...]

Two runs print the same lines, whatever PYTHONHASHSEED is.
"""

import importlib
import sys
from itertools import cycle
from pathlib import Path

from tests.scenarios.scenario import ENCODINGS, SEED, STORIES

__all__ = ["load", "main"]


def load() -> None:
    """Import every test module here, so that its stories are known."""
    here = Path(__file__).parent
    for path in sorted(here.rglob("test_*.py"), key=lambda path: path.stem):
        module = ".".join(path.relative_to(here).with_suffix("").parts)
        importlib.import_module(f"tests.scenarios.{module}")


def main(arguments: list[str]) -> None:
    seed = int(arguments[0]) if arguments else SEED
    load()
    for (name, story), encoding in zip(STORIES.items(), cycle(ENCODINGS)):
        if not arguments[1:] or any(part in name for part in arguments[1:]):
            print(name, encoding.name, seed, story.run(encoding, seed).trace_hash, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
