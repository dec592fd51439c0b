"""Compares what a story costs in several ways, over many seeds."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from lockstep.simulation.lab.costs import costs_of
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.search.figures import FIGURES, figures_of
from lockstep.simulation.search.processes import in_processes
from lockstep.simulation.search.ways import Base, Way, story_of

__all__ = ["Comparison", "Trial", "compare", "run_trials"]

_TRIALS_A_JOB: Final = 2
Figures = Mapping[str, float]


class Trial(NamedTuple):
    """What one run of one way cost.

    Args:
        way: its number.
        figures: by the names of FIGURES; what a run has not is not there.
        error: of a run that did not reach its end; empty: it did.
    """

    way: int
    seed: int
    figures: Figures
    error: str = ""


@dataclass
class Comparison:
    """The trials of all ways so far."""

    base: Base
    ways: Sequence[Way]
    trials: list[Trial] = field(default_factory=list)

    def values(self, way: int, figure: str) -> list[float]:
        """What the seeds of a way have of a figure, the smallest first."""
        return sorted(one.figures[figure] for one in self.trials if one.way == way and figure in one.figures)

    def name(self, way: int) -> str:
        """What tells a way from the others: its values of which there are several."""
        several = [name for name, values in self._values().items() if len(values) > 1]
        return ", ".join(f"{name}={value}" for name, value in self.ways[way].values if name in several) or "all runs"

    @property
    def common(self) -> dict[str, str]:
        """What all ways have."""
        values = self._values()
        same = {name: next(iter(some)) for name, some in values.items() if len(some) == 1}
        own = {"for" if name == "life" else name: str(value) for name, value in self.base.setup.items()}
        return {**{name: value for name, value in own.items() if name not in values}, **same}

    def _values(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for way in self.ways:
            for name, value in way.values:
                found.setdefault(name, set()).add(value)
        return found

    def errors(self) -> list[Trial]:
        return sorted((one for one in self.trials if one.error), key=lambda one: one[:2])

    @property
    def figures(self) -> list[str]:
        """Those of FIGURES that a trial has."""
        found = {name for one in self.trials for name in one.figures}
        return [figure.name for figure in FIGURES if figure.name in found]


def compare(
    base: Base,
    ways: Sequence[Way],
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    on_progress: Callable[[Comparison], object] = lambda _: None,
) -> Comparison:
    """Run each way with each seed. An interrupt ends it.

    Args:
        jobs: processes; 1: this one.
        on_progress: called with what was run so far.
    """
    comparison = Comparison(base, ways)
    cases = ((number, seed) for seed in seeds for number in range(len(ways)))
    chunks = iter(lambda: list(islice(cases, _TRIALS_A_JOB)), [])
    for trials in in_processes(partial(_run_some, base, ways), chunks, jobs):
        comparison.trials += trials
        on_progress(comparison)
    comparison.trials.sort(key=lambda one: one[:2])
    return comparison


def _run_some(base: Base, ways: Sequence[Way], cases: Sequence[tuple[int, int]]) -> list[Trial]:
    return list(run_trials(base, ways, cases))


def run_trials(base: Base, ways: Sequence[Way], cases: Iterable[tuple[int, int]]) -> Iterator[Trial]:
    """Run cases, each the number of a way and a seed."""
    for number, seed in cases:
        experiment, mode = story_of(base, ways[number])
        run = run_plan(experiment, experiment.draw(seed, mode))
        error = "" if run.error is None else f"{type(run.error).__name__}: {run.error}".splitlines()[0]
        figures: Figures = {} if run.played is None or error else figures_of(costs_of(run.played.cluster))
        yield Trial(number, seed, figures, error)
        del run
        gc.collect()  # a simulation freezes what is there, also the worlds that are over
