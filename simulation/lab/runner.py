"""Runs the plan of one seed, and keeps what a sweep counts."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

from lockstep.simulation.lab.experiment import Experiment, LockMode, Plan, PlayedWorld, SeedResult
from lockstep.simulation.run import Simulation
from lockstep.simulation.world import World

__all__ = ["Run", "opened", "outcome_of", "run_of", "run_plan", "run_seed"]

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


@contextmanager
def opened(
    experiment: Experiment[Any],
    plan: Plan,
    *,
    lines_kept: int = 200,
    on_built: Callable[[PlayedWorld], object] = lambda _: None,
) -> Iterator[Simulation[None]]:
    """A run of a plan, which has not begun.

    Args:
        on_built: called with the world before it runs.
    """

    async def main(world: World) -> None:
        built = experiment.build(world, plan)
        on_built(built)
        await built.run()

    options = replace(plan.options, trace_lines_max=lines_kept)
    modules = getattr(experiment, "modules", ())  # of a user's experiment
    variant = getattr(experiment, "variant", nullcontext)  # of an exhibit of the museum
    with variant(), Simulation(main, seed=plan.seed, limit_ms=plan.limit_ms, options=options, modules=modules) as run:
        yield run


def run_plan(experiment: Experiment[Any], plan: Plan, *, lines_kept: int = 200) -> Run:
    """Run a plan to its end, or to its error."""
    built, error = list[PlayedWorld](), None
    with opened(experiment, plan, lines_kept=lines_kept, on_built=built.append) as run:
        try:
            run.finish()
        except Exception as failure:
            error = failure
    return run_of(plan, run, built[0] if built else None, error)


def run_of(plan: Plan, run: Simulation[None], played: PlayedWorld | None, error: BaseException | None) -> Run:
    """What a run that has ended left."""
    return Run(plan, played, error, run.world.trace.digest, run.world.elapsed_ms, run.world.loop.steps)


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
