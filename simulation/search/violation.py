"""Which violation a run has, by its kind: what a smaller or changed plan must still show."""

import gc
from typing import Any, Final

from lockstep.simulation.lab.experiment import Experiment, Plan
from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.lab.runner import Run, run_plan

__all__ = ["Trials", "kinds_of", "violation_of"]

_RUNS_A_COLLECTION: Final = 8


def violation_of(run: Run, kind: str = "") -> Finding | None:
    """The first violation of a kind in a run, or of any kind. An error is one too: it ended the run."""
    found = list(run.played.findings.wrong) if run.played is not None else []
    if run.error is not None:
        text = str(run.error).partition("\n")[0]
        found.append(Finding(f"error: {type(run.error).__name__}", run.elapsed_ms, text))
    found = [one for one in found if kind in ("", one.kind)]
    return min(found, key=lambda one: one.at_ms) if found else None


def kinds_of(run: Run) -> list[str]:
    """The kinds of violations of a run, each once, the first found first."""
    found = [one.kind for one in run.played.findings.wrong] if run.played is not None else []
    if run.error is not None:
        found.append(f"error: {type(run.error).__name__}")
    return list(dict.fromkeys(map(str, found)))


class Trials:
    """Runs plans of an experiment one after the other, and says whether a kind of violation happens.

    Args:
        runs_max: no more runs than that.
    """

    def __init__(self, experiment: Experiment[Any], kind: str, *, runs_max: int) -> None:
        self.experiment = experiment
        self.kind = kind
        self.runs_max = runs_max
        self.runs = 0

    @property
    def over(self) -> bool:
        """Whether no run is left."""
        return self.runs >= self.runs_max

    def find(self, plan: Plan, experiment: Experiment[Any] | None = None) -> Finding | None:
        """The first violation of the kind in a run of the plan."""
        self.runs += 1
        found = violation_of(run_plan(experiment or self.experiment, plan, lines_kept=0), self.kind)
        if self.runs % _RUNS_A_COLLECTION == 0:
            gc.collect()  # a simulation freezes what is there, also the worlds that are over
        return found
