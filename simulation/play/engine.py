"""A run in steps: to any moment, one event, to its end; touched on the way, and shown.

A touch is a fault of the plan. It happens at a whole millisecond that has not been played and has no other fault, so
that the plan with it from the start on makes the same run.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

from lockstep.simulation.lab.experiment import Experiment, FaultEvent, PlayedWorld
from lockstep.simulation.lab.faults.table import why_idle
from lockstep.simulation.lab.faults.text import FaultError, check_hosts, fault_text, read_fault
from lockstep.simulation.lab.recorded_cluster import RecordedCluster
from lockstep.simulation.lab.runner import Run, opened, run_of
from lockstep.simulation.lab.said import say
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.run import Simulation

__all__ = ["Engine"]


class Engine:
    """A run of a plan. It is a context manager: one may be open in a process.

    Args:
        on_built: called with the world before it runs, for observers.
    """

    def __init__(
        self,
        experiment: Experiment[Any],
        plan: Any,
        *,
        on_built: Callable[[PlayedWorld], object] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.played: PlayedWorld | None = None  # None: it could not be built
        self.result: Run | None = None  # None: it is not over
        self.now_ms = 0  # all that is due up to it has happened
        self._on_built = on_built
        self._opening = opened(experiment, plan, on_built=self._built)
        self._open: AbstractContextManager[Simulation[None]] | None = None
        self._run: Simulation[None]

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """Build the world."""
        self._run = self._opening.__enter__()
        self._open = self._opening
        self.advance_to(0)

    def _built(self, played: PlayedWorld) -> None:
        self.played = played
        self._on_built(played)

    def close(self) -> None:
        """End it where it is. Its trace and its findings stay."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None

    # Time ----------------------------------------------------------------------------------------------------

    def advance_to(self, ms: int, pauses: Callable[[], bool] | None = None) -> bool:
        """Play up to a moment, or to the end of the run.

        Args:
            ms: virtual, since the start.
            pauses: asked before each turn of the loop whether to stop here.

        Returns:
            False: it paused before.
        """
        if self.result is not None or ms < self.now_ms:
            return True
        try:
            arrived = self._run.advance_to(ms, pauses)
        except Exception as error:
            self._end(error)
            return True
        if self._run.is_over:
            self._end(None)
        else:
            self.now_ms = ms if arrived else self._run.world.elapsed_ms
        return arrived

    def one_event(self) -> None:
        """Play to the next event of the trace."""
        trace = self._run.world.trace
        before = trace.last
        self.advance_to(self.plan.limit_ms, lambda: trace.last is not before)

    def finish(self) -> Run:
        """Play to the end."""
        self.advance_to(self.plan.limit_ms)
        assert self.result is not None
        return self.result

    def _end(self, error: Exception | None) -> None:
        if error is None:
            try:
                self._run.finish()
            except Exception as failure:
                error = failure
        self.close()
        self.now_ms = self._run.world.elapsed_ms
        self.result = run_of(self.plan, self._run, self.played, error)

    @property
    def hash(self) -> str:
        """Of the trace so far: equal for equal runs at equal moments."""
        return self._run.world.trace.digest

    # Touches -------------------------------------------------------------------------------------------------

    @property
    def can_touch(self) -> bool:
        """Whether faults of the table can be added; worlds have faults of their own."""
        return self.played is not None and isinstance(self.played.cluster, StoryCluster | RecordedCluster)

    def read_touch(self, line: str, at_ms: int = 0) -> FaultEvent:
        """A touch as a line without a time, at the next moment that is free. Raises FaultError.

        Args:
            at_ms: not before this moment.
        """
        if not self.can_touch:
            raise FaultError("this run draws its faults from the seed; it can be watched, not touched")
        at_ms = max(self._run.world.elapsed_ms + 1, self.now_ms + 1, at_ms)
        taken = {event.at_ms for event in self.plan.events}
        while at_ms in taken:
            at_ms += 1
        event = read_fault(line, now_ms=at_ms)
        assert self.played is not None
        cluster = self.played.cluster
        check_hosts(event, cluster.known_hosts)
        # What is planned for the next moments may change what this one finds.
        is_next = not any(self.now_ms < ms <= at_ms for ms in taken) and not cluster.is_starting
        if is_next and (why := why_idle(cluster, event)):
            raise FaultError(f"{line.strip()}: {why}, so nothing would happen")
        return event

    def touch(self, event: FaultEvent) -> None:
        """Add a fault to the plan of the run. Raises FaultError: it is too late for it."""
        if self.result is not None or not self.now_ms < event.at_ms < self.plan.life_ms:
            text = "{line}: that is after the life of the run, when all is healed"
            raise FaultError(say(text, line=fault_text(event)))
        assert self.played is not None
        self.plan = replace(self.plan, events=(*self.plan.events, event))
        self.played.cluster.plan_fault(event)
