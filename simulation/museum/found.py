"""Where the sweep found the exhibits: the first seed, and the plan that `shrink` made of it."""

import json
from importlib.resources import files
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.setup import FaultEvent
from lockstep.simulation.museum.plan import MuseumPlan

__all__ = ["FOUND", "Found", "kept_of"]

FOUND: Final = "found.json"  # key -> [seed, fields of the plan]; `python -m tests.simulation.museum.find` writes it


class Found(NamedTuple):
    """What the sweep found.

    Args:
        seed: the first one; the sweep began at 1, so this is also how many seeds it took.
        plan: the smallest plan with the violation.
    """

    seed: int
    plan: MuseumPlan


def kept_of(key: str) -> tuple[int, dict[str, Any]] | None:
    """The seed of an exhibit, and the fields of its plan that were made simpler; None: it was not found yet."""
    kept = json.loads(files(__package__).joinpath(FOUND).read_text(encoding="utf-8")).get(key)
    if kept is None:
        return None
    seed, shrunk = kept
    for name, made in (("events", FaultEvent._make), ("sends", tuple)):
        if name in shrunk:
            shrunk[name] = tuple(made(one) for one in shrunk[name])
    return seed, shrunk
