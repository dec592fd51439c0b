"""Worlds that showed something once, by their plans, so that a new draw changes none of them.

plans.jsonl has a plan a line; each line alone is a file for `lockstep-sim replay --plan`. Whoever names a world by its
seed and wants it to stay what it was adds it here; `python -m tests.mutants.anew` writes the file.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.experiment import LOCKING, LockMode, SeedResult
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import outcome_of, run_plan
from lockstep.simulation.search.plan_file import parse_plan, plan_text

__all__ = ["FAILED_ONCE", "HELD", "Case", "held_seeds", "keep", "kept_plans", "plan_of", "run_case", "write_held"]

PLANS: Final = Path(__file__).with_name("plans.jsonl")
HELD: Final = Path(__file__).with_name("seeds.json")  # protection -> a seed of fenced `worlds` that fails without it


class Case(NamedTuple):
    """A world by the name of its experiment, its lock mode and its seed."""

    experiment: str
    mode: str
    seed: int

    def __str__(self) -> str:
        return f"{self.experiment}-{self.mode}-{self.seed}"


# Worlds that found a fault of the product, or of the judge; they are silent now.
FAILED_ONCE: Final = (
    *(
        Case("worlds", "fenced", seed)
        for seed in (32, 80, 82, 116, 147, 454, 4431, 7314, 8760, 8825, 12207, 15287, 15875, 18482)
    ),
    # The broker's clock was set back to before its topic was made: a start may forget where the period began.
    *(Case("worlds/clocks", "fenced", seed) for seed in (7012, 7036)),
    Case("worlds/mixed", "fenced", 3039),  # a late pull of a free queue was served
    # 75: sends fail between the moment when tasks of others are made and that when they call. The others: the last
    # sends find that their connections ended when a broker lost its power.
    *(Case("worlds/producers", mode, seed) for seed in (75, 137, 245) for mode in LOCKING),
)


def held_seeds() -> dict[str, int]:
    return {str(name): int(seed) for name, seed in json.loads(HELD.read_text(encoding="utf-8")).items()}


def write_held(seeds: Mapping[str, int]) -> None:
    rows = ",\n".join(f"  {json.dumps(name)}: {seed}" for name, seed in seeds.items() if seed)
    HELD.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")


@cache
def kept_plans() -> Mapping[Case, Any]:
    lines = PLANS.read_text(encoding="utf-8").splitlines() if PLANS.exists() else []
    saved = [parse_plan(line, PLANS) for line in lines]
    return {Case(one.name, str(one.plan.lock_mode), one.plan.seed): one.plan for one in saved}


def keep(cases: Iterable[Case]) -> None:
    """Write the plans of these worlds and no others. One that is not kept yet is drawn."""
    plans = [(case.experiment, plan_of(case)) for case in sorted(set(cases))]
    PLANS.write_text("".join(f"{plan_text(name, plan, '')}\n" for name, plan in plans), encoding="utf-8")
    kept_plans.cache_clear()


def plan_of(case: Case) -> Any:
    """The plan that is kept, else what the seed draws."""
    experiment: Any = find_experiment(case.experiment)
    return kept_plans().get(case) or experiment.draw(case.seed, LockMode(case.mode))


def run_case(case: Case) -> SeedResult:
    """Run a world: with the plan that is kept, else with what its seed draws."""
    return outcome_of(run_plan(find_experiment(case.experiment), plan_of(case)))
