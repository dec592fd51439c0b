"""A protection of ordered consumption, with the change that takes it out and the tests that hold it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockstep.simulation.museum.variant import Variant

__all__ = ["ROOT", "Protection"]

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Protection:
    """One rule of the product that can be taken out.

    Args:
        name: How the command line calls it.
        without: What goes wrong without it, as a sentence.
        taken_out: Begins the product without it, until it ends.
        tests: Files or node ids for pytest, at least one test of which fails without the protection.
    """

    name: str
    without: str
    taken_out: Variant
    tests: tuple[str, ...]
