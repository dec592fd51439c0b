"""Where the sweep found the exhibits: the first seed, and the plan that `shrink` made of it.

The whole plan is kept, so that it stays when seeds draw other plans.
"""

import json
from importlib.resources import files
from typing import Final, NamedTuple

from lockstep.simulation.lab.setup import FaultEvent, LockMode
from lockstep.simulation.museum.plan import MuseumPlan

__all__ = ["FOUND", "Found", "found_of"]

# Key -> [seed, fields of the plan that differ from defaults]; `python -m tests.simulation.museum.find` writes it.
FOUND: Final = "found.json"


class Found(NamedTuple):
    """What the sweep found.

    Args:
        seed: the first one; the sweep began at 1, so this is also how many seeds it took.
        plan: the smallest plan with the violation.
    """

    seed: int
    plan: MuseumPlan


def found_of(key: str, mode: LockMode) -> Found | None:
    """What was found of an exhibit; None: nothing yet."""
    kept = json.loads(files(__package__).joinpath(FOUND).read_text(encoding="utf-8")).get(key)
    if kept is None:
        return None
    seed, plan = kept
    events = tuple(FaultEvent._make(one) for one in plan.pop("events", ()))
    sends = tuple((at_ms, count) for at_ms, count in plan.pop("sends"))
    return Found(seed, MuseumPlan(seed=seed, lock_mode=mode, events=events, sends=sends, **plan))
