"""Why a violation happens: the faults that it needs, the last one, and when it became inevitable.

All of it is found by running the plan again with something changed:

- without a fault: the faults that are left need each other, without any one of them the violation does not happen;
- with a shorter last fault: how long it had to last;
- healed from a moment on: bisection finds a moment at which healing still prevents the violation, and the next ms at
  which it does not;
- with other latencies: whether the faults make it happen, or chance does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from lockstep.simulation.lab.experiment import Experiment, FaultEvent, Plan, PlayedWorld
from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.search.violation import Trials, violation_of
from lockstep.simulation.world import World

__all__ = ["Explanation", "Healed", "explain", "lasted_ms"]

_LUCK_RUNS: Final = 4  # with other latencies
_OTHER_SEED: Final = 1_000_003
_RUNS_MAX: Final = 400
_SHORTEST_MS: Final = 1


@dataclass(frozen=True)
class Explanation:
    """What the runs showed.

    Args:
        run, finding: of the needed faults alone.
        needed: without any one of them the violation does not happen; empty: it happens without faults.
        faults: how many the plan had.
        shortest_ms: the last needed fault, if it lasts so long as it was played, is enough; None: its length does not
            matter, or was not shortened.
        too_short_ms: and so long it is not.
        inevitable_ms: healed then, the violation happens all the same; None: healing at no moment prevents it.
        prevented_ms: healed then, it does not happen.
        with_last, without_last: with other latencies, of `tried_luck` runs: how many had the violation with the needed
            faults, and how many without the last one.
    """

    run: Run
    finding: Finding
    needed: tuple[FaultEvent, ...]
    faults: int
    shortest_ms: int | None = None
    too_short_ms: int = 0
    inevitable_ms: int | None = None
    prevented_ms: int = 0
    with_last: int = 0
    without_last: int = 0
    tried_luck: int = 0
    runs: int = 0

    @property
    def last(self) -> FaultEvent | None:
        """The last decision without which the violation does not happen."""
        return self.needed[-1] if self.needed else None


def explain(
    experiment: Experiment[Any],
    plan: Plan,
    kind: str,
    *,
    on_progress: Callable[[str, int], object] = lambda _what, _runs: None,
    on_enough: Callable[[tuple[FaultEvent, ...]], object] = lambda _events: None,
) -> Explanation:
    """Find out why the violation of a kind happens. `plan` must have one.

    Args:
        on_progress: called with what is tried, and how many runs there were.
        on_enough: called with the faults that are enough, each time they are fewer.
    """
    return _Questions(experiment, plan, kind, on_progress, on_enough).answers()


class Healed:
    """An Experiment whose faults end at one moment: all that lasts is healed then, and no later fault comes.

    A run of it is equal to that of `experiment` until `at_ms`, virtual, since the start.
    """

    def __init__(self, experiment: Experiment[Any], at_ms: int) -> None:
        self._experiment = experiment
        self._at_ms = at_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._experiment, name)

    def build(self, world: World, plan: Any) -> PlayedWorld:
        loop = world.loop
        due_ns = loop.now_ns + self._at_ms * 1_000_000
        loop.call_at_ns(due_ns, world.heal, context=loop.ground)
        earlier = tuple(event for event in plan.events if event.at_ms < self._at_ms)
        return self._experiment.build(world, replace(plan, events=earlier))


class _Questions:
    def __init__(
        self,
        experiment: Experiment[Any],
        plan: Any,
        kind: str,
        on_progress: Callable[[str, int], object],
        on_enough: Callable[[tuple[FaultEvent, ...]], object],
    ) -> None:
        self._experiment = experiment
        self._plan = plan
        self._trials = Trials(experiment, kind, runs_max=_RUNS_MAX)
        self._on_progress = on_progress
        self._on_enough = on_enough

    def answers(self) -> Explanation:
        needed = self._needed()
        plan = replace(self._plan, events=needed)
        run = run_plan(self._experiment, plan)
        finding = violation_of(run, self._trials.kind)
        assert finding is not None, "the violation happens with the needed faults"
        explanation = Explanation(run, finding, needed, len(self._plan.events))
        if needed:
            explanation = replace(explanation, **self._length(plan), **self._moment(plan, finding), **self._luck(plan))
        return replace(explanation, runs=self._trials.runs)

    def _happens(self, what: str, plan: Plan, experiment: Experiment[Any] | None = None) -> Finding | None:
        self._on_progress(what, self._trials.runs)
        return self._trials.find(plan, experiment)

    def _needed(self) -> tuple[FaultEvent, ...]:
        """The latest faults go first, so that of two that do the same the earlier one is left."""
        events: tuple[FaultEvent, ...] = self._plan.events
        removed = True
        while removed:
            removed = False
            for place in reversed(range(len(events))):
                fewer = events[:place] + events[place + 1 :]
                if self._happens("without one fault", replace(self._plan, events=fewer)):
                    events, removed = fewer, True
                    self._on_enough(events)
        return events

    def _length(self, plan: Any) -> dict[str, Any]:
        *others, last = plan.events

        def happens(duration_ms: int) -> bool:
            events = (*others, last._replace(duration_ms=duration_ms))
            return self._happens("with a shorter fault", replace(plan, events=events)) is not None

        longest_ms = last.duration_ms or lasted_ms(self._experiment, plan)  # it may last until it is ended
        if longest_ms <= _SHORTEST_MS or happens(_SHORTEST_MS) or not (last.duration_ms or happens(longest_ms)):
            return {}
        both = _bisect(_SHORTEST_MS, longest_ms, happens)
        plans = [replace(plan, events=(*others, last._replace(duration_ms=planned_ms))) for planned_ms in both]
        too_short_ms, shortest_ms = (lasted_ms(self._experiment, one) for one in plans)
        return {"shortest_ms": shortest_ms, "too_short_ms": too_short_ms}

    def _moment(self, plan: Plan, finding: Finding) -> dict[str, Any]:
        def happens(healed_ms: int) -> bool:
            healed: Any = Healed(self._experiment, healed_ms)
            return self._happens("healed at another moment", plan, healed) is not None

        if not happens(finding.at_ms + 1):
            return {}  # it is seen only later, as a message that is never handled
        prevented_ms, inevitable_ms = _bisect(0, finding.at_ms + 1, happens)
        return {"inevitable_ms": inevitable_ms, "prevented_ms": prevented_ms}

    def _luck(self, plan: Any) -> dict[str, Any]:
        without = replace(plan, events=plan.events[:-1])
        counts = [0, 0]
        for number in range(1, _LUCK_RUNS + 1):
            for place, one in enumerate((plan, without)):
                other = replace(one, seed=plan.seed + number * _OTHER_SEED)
                counts[place] += self._happens("with other latencies", other) is not None
        return {"with_last": counts[0], "without_last": counts[1], "tried_luck": _LUCK_RUNS}


def _bisect(no: int, yes: int, happens: Callable[[int], bool]) -> tuple[int, int]:
    """Two neighbours between `no` and `yes`: the violation does not happen at the first one, and at the second it does.

    There may be several such pairs.
    """
    while yes - no > 1:
        middle = (no + yes) // 2
        no, yes = (no, middle) if happens(middle) else (middle, yes)
    return no, yes


def lasted_ms(experiment: Experiment[Any], plan: Plan) -> int:
    """How long the last fault of a plan lasts when it is played: a world plays some for a part of what is planned."""
    played = run_plan(experiment, plan, lines_kept=0).played
    band = played.findings.bands[-1] if played is not None and played.findings.bands else None
    return plan.events[-1].duration_ms if band is None or band.end_ms is None else band.end_ms - band.at_ms
