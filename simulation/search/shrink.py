"""Makes a plan smaller for as long as its run shows the same kind of violation.

Delta debugging: `Plan.smaller` names simpler plans, the boldest first. The first one that still shows the violation
is the next plan; when none does, what is left is needed. At the end the times of the faults are made round and short,
so that a reader sees which of them matter.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.experiment import Experiment, FaultEvent, Plan
from lockstep.simulation.search.violation import Trials

__all__ = ["RUNS_MAX", "Shrunk", "shrink"]

RUNS_MAX: Final = 600
_ROUND_MS: Final = (10_000, 1_000, 100)
_TENTHS: Final = (5, 8, 9)  # of a duration: half of it is often too short


class Shrunk(NamedTuple):
    """Args:
    runs: how many plans were tried.
    complete: no simpler plan is left to try; False: `runs_max` ended it.
    """

    plan: Any
    runs: int
    complete: bool


def shrink(
    experiment: Experiment[Any],
    plan: Plan,
    kind: str,
    *,
    runs_max: int = RUNS_MAX,
    on_progress: Callable[[Plan, int], object] = lambda _plan, _runs: None,
) -> Shrunk:
    """The simplest plan found whose run still has a violation of this kind. `plan` must have one.

    Args:
        on_progress: called after each run with the simplest plan so far and how many were tried.
    """
    trials, tried, place, rounds = Trials(experiment, kind, runs_max=runs_max), {repr(plan)}, 0, 1
    candidates = list(_simpler(plan))
    while rounds and not trials.over:
        if place >= len(candidates):  # also when the plan just found has fewer candidates than the one before
            place, rounds = 0, rounds - 1
            continue
        candidate, place = candidates[place], place + 1
        if (name := repr(candidate)) in tried:
            continue
        tried.add(name)
        if trials.find(candidate) is not None:
            plan, candidates = candidate, list(_simpler(candidate))
            place, rounds = place - 1, 2  # perhaps others can go now
        on_progress(plan, trials.runs)
    return Shrunk(plan, trials.runs, not trials.over)


def _simpler(plan: Plan) -> Iterator[Plan]:
    yield from plan.smaller()
    for number, event in enumerate(plan.events):
        for simpler in _simpler_events(event):
            events = (*plan.events[:number], simpler, *plan.events[number + 1 :])
            if list(events) == sorted(events, key=lambda one: one.at_ms):
                yield replace(plan, events=events)


def _simpler_events(event: FaultEvent) -> Iterator[FaultEvent]:
    """Shorter, and at a rounder time."""
    if event.duration_ms > _ROUND_MS[-1]:
        for tenths in _TENTHS:
            yield event._replace(duration_ms=event.duration_ms * tenths // 10)
    for unit_ms in _ROUND_MS:
        if event.duration_ms % unit_ms and event.duration_ms > unit_ms:
            yield event._replace(duration_ms=event.duration_ms // unit_ms * unit_ms)
    for unit_ms in _ROUND_MS:
        if event.at_ms % unit_ms and event.at_ms > unit_ms:
            yield event._replace(at_ms=event.at_ms // unit_ms * unit_ms)
