"""Runs the plan of one seed, and keeps what a sweep counts."""

import traceback
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

from lockstep.simulation.lab.experiment import Experiment, LockMode, Plan, PlayedWorld, SeedResult
from lockstep.simulation.run import simulate
from lockstep.simulation.world import World

__all__ = ["Run", "outcome_of", "run_plan", "run_seed"]

_TEXTS_KEPT = 5


class Run(NamedTuple):
    """A run with everything that it left.

    Args:
        played: None: the world could not even be built.
        error: what ended the run before its end.
        steps: callbacks that ran.
    """

    plan: Plan
    played: PlayedWorld | None
    error: BaseException | None
    trace_hash: str
    elapsed_ms: int
    steps: int


def run_plan(experiment: Experiment[Any], plan: Plan, *, lines_kept: int = 200) -> Run:
    """Run a plan to its end, or to its error."""
    worlds, built = list[World](), list[PlayedWorld]()

    async def main(world: World) -> None:
        worlds.append(world)
        built.append(experiment.build(world, plan))
        await built[0].run()

    error: BaseException | None = None
    options = replace(plan.options, trace_lines_max=lines_kept)
    modules = getattr(experiment, "modules", ())  # of a user's experiment
    variant = getattr(experiment, "variant", nullcontext)  # of an exhibit of the museum
    try:
        with variant():
            simulate(main, seed=plan.seed, limit_ms=plan.limit_ms, options=options, modules=modules)
    except Exception as failure:
        error = failure
    world = worlds[0]
    played = built[0] if built else None
    return Run(plan, played, error, world.trace.digest, world.elapsed_ms, world.loop.steps)


def outcome_of(run: Run) -> SeedResult:
    """What a sweep counts of a run."""
    found = run.played.findings.wrong if run.played is not None else []
    error = "".join(traceback.format_exception_only(run.error)) if run.error is not None else ""
    return SeedResult(
        run.plan.seed,
        run.plan.lock_mode,
        run.trace_hash,
        dict(sorted(Counter(str(finding.kind) for finding in found).items())),
        [f"{finding.kind} at {finding.at_ms} ms: {finding.text}" for finding in found[:_TEXTS_KEPT]],
        dict(sorted(run.played.findings.sometimes.items())) if run.played is not None else {},
        error.split("simulation: seed=")[0].strip(),
    )


def run_seed(experiment: Experiment[Any], seed: int, mode: LockMode) -> SeedResult:
    """Draw the plan of a seed, and run it."""
    return outcome_of(run_plan(experiment, experiment.draw(seed, mode)))
