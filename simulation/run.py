"""`simulate`: run one scenario with its own loop, network and guard, and check its end."""

import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lockstep.simulation.errors import LeakError, UnhandledError
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.virtual_time.loop import VirtualLoop
from lockstep.simulation.virtual_time.nondeterminism import NondeterminismGuard
from lockstep.simulation.world import Outcome, World

__all__ = ["simulate"]

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
    options = options or SimulationOptions()
    loop = VirtualLoop(limit_ns=limit_ms * 1_000_000, instant_steps_max=options.instant_steps_max, debug=options.debug)
    world = World(loop, seed, options)
    with _collector_paused():
        try:
            with NondeterminismGuard(loop.violations, (scenario.__module__, *modules)):
                try:
                    value = loop.run_until_complete(world.start(scenario(world), name="scenario"))
                    _check_end(world, errors_allowed=errors_allowed)
                finally:
                    loop.close()
        except BaseException as error:
            _annotate(error, world)
            raise
    return Outcome(value, world.trace.digest, world.elapsed_ms, loop.steps, world.trace.events)


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
