"""`simulate`: run one scenario with its own loop, network and guard, and check its end; `Simulation`: in steps."""

import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

from lockstep.simulation.errors import LeakError, UnhandledError
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.virtual_time.loop import START_NS, VirtualLoop
from lockstep.simulation.virtual_time.nondeterminism import NondeterminismGuard
from lockstep.simulation.world import Outcome, World

__all__ = ["Simulation", "simulate"]

T = TypeVar("T")
_NOTE_LINES = 12
_DAY_MS = 86_400_000


def simulate(
    scenario: Callable[[World], Coroutine[Any, Any, T]],
    *,
    seed: int = 0,
    limit_ms: int = _DAY_MS,
    options: SimulationOptions | None = None,
    errors_allowed: bool = False,
    modules: tuple[str, ...] = (),
) -> Outcome[T]:
    """Run `scenario` to its end on virtual time. Every failure has the seed and the last events as notes.

    Args:
        limit_ms: Of virtual time.
        modules: Besides that of the scenario, in which clocks and the like that were imported by name are refused.
        errors_allowed: Do not fail for exceptions that were not read.

    Raises:
        SimulationError: Also for a swallowed violation, an unread exception, and anything that is left at the end.
    """
    with Simulation(scenario, seed=seed, limit_ms=limit_ms, options=options, modules=modules) as run:
        value = run.finish(errors_allowed=errors_allowed)
    world, loop = run.world, run.world.loop
    return Outcome(value, world.trace.digest, world.elapsed_ms, loop.steps, world.trace.events)


class Simulation(Generic[T]):
    """A scenario that runs in steps. A run in any steps is the run of `simulate`. Only one may be open in a process.

    The guard is there only while the scenario runs, so that who takes the steps may read a clock between them.
    """

    def __init__(
        self,
        scenario: Callable[[World], Coroutine[Any, Any, T]],
        *,
        seed: int = 0,
        limit_ms: int = _DAY_MS,
        options: SimulationOptions | None = None,
        modules: tuple[str, ...] = (),
    ) -> None:
        """See `simulate`."""
        options = options or SimulationOptions()
        loop = VirtualLoop(
            limit_ns=limit_ms * 1_000_000, instant_steps_max=options.instant_steps_max, debug=options.debug
        )
        self.world = World(loop, seed, options)
        self._scenario = scenario
        self._modules = modules
        self._limit_ms = limit_ms
        self._collector = _collector_paused()

    def __enter__(self) -> Self:
        self._collector.__enter__()
        with self._guarded():
            self._task = self.world.start(self._scenario(self.world), name="scenario")
        return self

    def __exit__(self, *_: object) -> None:
        """Close all that is left."""
        try:
            with self._guarded():
                self.world.loop.close()
        finally:
            self._collector.__exit__(None, None, None)

    def advance_to(self, ms: int, pauses: Callable[[], bool] | None = None) -> bool:
        """Run all that is due up to a virtual time since the start, or to the end of the scenario.

        Args:
            pauses: asked before each turn of the loop whether to stop here.

        Returns:
            False: it paused.

        Raises:
            SimulationError: it cannot go on.
        """
        with self._guarded():
            return self.world.loop.run_up_to(self._task, START_NS + ms * 1_000_000, pauses)

    @property
    def is_over(self) -> bool:
        """The scenario has returned, or raised; `finish` is left."""
        return self._task.done()

    def finish(self, *, errors_allowed: bool = False) -> T:
        """Run the scenario to its end, and check it. Raises what it raised, SimulationError."""
        with self._guarded():
            self.world.loop.run_up_to(self._task, START_NS + self._limit_ms * 1_000_000)
            value = self._task.result()
            _check_end(self.world, errors_allowed=errors_allowed)
        return value

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with NondeterminismGuard(self.world.loop.violations, (self._scenario.__module__, *self._modules)):
                yield
        except BaseException as error:
            _annotate(error, self.world)
            raise


def _check_end(world: World, *, errors_allowed: bool) -> None:
    """Let connections and tasks end; then fail for violations, unread exceptions and leaks."""
    loop = world.loop
    loop.run_while(lambda: bool(world.leaks()), world.options.drain_ms * 1_000_000)
    loop.forget_done()
    gc.collect()  # a failed task reports its exception when it is collected
    if loop.violations:
        raise loop.violations[0]
    if loop.errors and not errors_allowed:
        first = loop.errors[0]
        raise UnhandledError("\n".join(_error_text(error) for error in loop.errors)) from first.get("exception")
    if leaks := world.leaks():
        raise LeakError("left at the end:" + "".join(f"\n  {leak}" for leak in leaks))


def _error_text(error: dict[str, Any]) -> str:
    return f"{error.get('message')}: {error.get('exception')!r}"


def _annotate(error: BaseException, world: World) -> None:
    error.add_note(f"simulation: seed={world.seed} at +{world.elapsed_ms} ms, {world.options}")
    for unhandled in world.loop.errors[:_NOTE_LINES]:
        error.add_note(f"unhandled: {_error_text(unhandled)}")
    for line in world.trace.lines[-_NOTE_LINES:]:
        error.add_note(f"trace: {line}")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Collect garbage only at steps that the loop chooses, not by the count of allocations.

    Objects that exist already are frozen, so that these collections are cheap.
    """
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
