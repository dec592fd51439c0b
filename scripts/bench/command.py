"""What the commands that measure share: their options, what they show, and build/bench.json."""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console

__all__ = ["OUTPUT", "SMALL", "keep", "known_figures", "parser_of", "progress", "wide_console"]

OUTPUT: Final = Path(__file__).resolve().parents[2] / "build" / "bench.json"
SMALL: Final = os.environ.get("SMALL") == "1"
_WIDTH: Final = 160  # characters, for the widest table


def parser_of(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """With --rounds, and its default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def wide_console() -> Console:
    """As wide as the terminal; into a file, wide enough for each table."""
    return Console(width=None if Console().is_terminal else _WIDTH)


@contextmanager
def progress(console: Console) -> Iterator[Callable[[str, int], None]]:
    """Show what is measured: what is given has the shape that `in_turns` calls."""
    with console.status("starting") as status:
        yield lambda name, _done: status.update(f"measuring: {name}")


def known_figures() -> dict[str, Any]:
    """What build/bench.json has, by the command that found it."""
    figures: dict[str, Any] = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.exists() else {}
    return figures


def keep(figures: Mapping[str, Any]) -> None:
    """Write them to build/bench.json, where others stay as they are."""
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(known_figures() | dict(figures), indent=1) + "\n", encoding="utf-8")
