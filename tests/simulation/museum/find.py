"""Finds the exhibits of the museum again: `python -m tests.simulation.museum.find [KEY ...]`.

For each exhibit it sweeps from seed 1 on, until a run has its kind of violation and the mended product passes the same
plan; then it shrinks the plan and writes both down. Needed when the simulator or an exhibit changes
what a seed means. A plan that is known and still shows the bug of the same seed is kept. Without names it does all of
them.
"""

import gc
import json
import sys
import time
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from lockstep.simulation.lab.runner import outcome_of, run_plan
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.found import FOUND
from lockstep.simulation.museum.plan import MuseumPlan
from lockstep.simulation.museum.registry import EXHIBITS

__all__ = ["SEEDS_MAX", "first_seed", "passes"]

SEEDS_MAX = 5_000
_FILE = Path(__file__).parents[3] / "simulation" / "museum" / FOUND
_RUNS_MAX = 80
_COLLECTED_EACH = 20  # runs


def passes(exhibit: Exhibit, plan: MuseumPlan) -> bool:
    """Whether the mended product runs the plan without any violation."""
    outcome = outcome_of(run_plan(exhibit.mended(), plan))
    return not outcome.wrong and not outcome.error


def shows(exhibit: Exhibit, plan: MuseumPlan) -> bool:
    """Whether the variant has its violation in the plan."""
    outcome = outcome_of(run_plan(exhibit, plan))
    assert not outcome.error, outcome.error  # a variant that breaks the client shows nothing
    return exhibit.kind in outcome.wrong


def first_seed(exhibit: Exhibit) -> int:
    """The first seed that shows the bug, and nothing without it; 0: none up to SEEDS_MAX."""
    for seed in range(1, SEEDS_MAX + 1):
        plan = exhibit.draw(seed, exhibit.mode)
        if shows(exhibit, plan) and passes(exhibit, plan):
            return seed
        if seed % _COLLECTED_EACH == 0:
            gc.collect()  # a simulation freezes what is there, also the worlds that are over
    return 0


def _is_known(exhibit: Exhibit, seed: int) -> bool:
    """Whether this is the seed that was found the last time, and its smallest plan still shows the bug."""
    found = exhibit.found
    return found is not None and found.seed == seed and shows(exhibit, found.plan) and passes(exhibit, found.plan)


def _smallest(exhibit: Exhibit, plan: MuseumPlan) -> MuseumPlan:
    """The first simpler plan that still shows the bug is the next one, until none does."""
    tried = {repr(plan)}
    candidates = list(plan.smaller())
    while candidates and len(tried) <= _RUNS_MAX:
        candidate = candidates.pop(0)
        if repr(candidate) in tried:
            continue
        tried.add(repr(candidate))
        if shows(exhibit, candidate) and passes(exhibit, candidate):
            plan, candidates = candidate, list(candidate.smaller())
    return plan


def kept_fields(plan: MuseumPlan) -> dict[str, Any]:
    """What found.json has of a plan: what differs from the defaults. Seed and lock mode stand elsewhere."""
    kept = {}
    for field in fields(plan):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name not in ("seed", "lock_mode") and getattr(plan, field.name) != default:
            kept[field.name] = getattr(plan, field.name)
    return kept


def _write(key: str, seed: int, plan: dict[str, Any]) -> None:
    known = json.loads(_FILE.read_text(encoding="utf-8")) | {key: [seed, plan]}
    ordered = {name: known[name] for name in EXHIBITS if name in known and known[name][0]}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in ordered.items())
    _FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _main() -> None:
    names = sys.argv[1:] or list(EXHIBITS)
    for key in names:
        began, exhibit = time.monotonic(), EXHIBITS[key]
        seed = first_seed(exhibit)
        known = _is_known(exhibit, seed)
        if not known:
            smallest = _smallest(exhibit, exhibit.draw(seed, exhibit.mode)) if seed else None
            _write(key, seed, kept_fields(smallest) if smallest else {})
        told = "as before, " if known else ""
        print(f"{key}: seed {seed}, {told}{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    _main()
