"""A test that is a scenario from end to end: `@simulated()` and what it does in a world."""

import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from lockstep.simulation import SimulationOptions, World, simulate

__all__ = ["simulated"]


def simulated(
    *, seeds: Iterable[int] = (0,), options: SimulationOptions | None = None
) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Simulate the test once for each seed."""

    def decorate(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            for seed in seeds:
                simulate(test, seed=seed, options=options)

        del run.__wrapped__  # pytest would look for a fixture named "world"
        return run

    return decorate
