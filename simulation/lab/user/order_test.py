"""`@order_test(seeds=200)`: a test of pytest, or of any runner, that runs an application with many seeds."""

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from lockstep.client import Message
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.faults.text import fault_text
from lockstep.simulation.lab.report import error_text, failed_sends, listener_failures
from lockstep.simulation.lab.runner import Run, outcome_of
from lockstep.simulation.lab.user.app import app_of
from lockstep.simulation.lab.user.file import more_folders, user_modules
from lockstep.simulation.lab.user.story import ALL_FAULTS, Story, experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

__all__ = ["SeedFailedError", "order_test"]

_SMALL: Final = {"consumers": 2, "queues": 2, "rate": 0.5, "life": "2m", "store": "sync"}
_FOUND_SHOWN: Final = 3


class SeedFailedError(AssertionError):
    """The text has the seed, what was found, and the command that runs the seed again."""


def order_test(
    *,
    seeds: int = 100,
    first_seed: int = 1,
    lock_mode: str = "fenced",
    swarm: Sequence[str] = ALL_FAULTS,
    faults: int = 3,
    events: Sequence[str] = (),
    message: Callable[..., Message] | None = None,
    **setup: Any,
) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Make a test of a function that returns an application, or of an `async def` story (see `experiment`).

    A plain function is called for each seed, and what it returns is what the consumers run: a listener, or what makes
    one or a PushConsumer. A story gets the cluster, starts it with `await cluster.start(listener)`, waits with `await
    cluster.finish()` until everything is handled, and may assert what it likes.

    Args:
        seeds: how many; the test ends with the first one that fails.
        swarm, faults, events: as of `experiment`.
        message: makes a message of its number, or of that and the numbers that were given up, with the reason; None:
            the number as text, with keys in turn.
        setup: arguments of Setup; by default two consumers, two queues, a message in two seconds, two
            minutes, a broker that syncs.

    Raises:
        SeedFailedError: raised by the test, for a violation of order, a message that is not handled, or an exception.
    """

    def decorate(function: Callable[..., Any]) -> Callable[[], None]:
        path = Path(inspect.getfile(function))
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        story = experiment(
            name=f"{shown}:{function.__name__}",
            swarm=swarm,
            faults=faults,
            events=events,
            modules=user_modules(path),
            fails_in=tuple(LockMode),
            message=message,
            **{**_SMALL, "lock_mode": lock_mode, **setup},
        )(function if inspect.iscoroutinefunction(function) else _starting(function))

        def test() -> None:
            __tracebackhide__ = True
            for seed in range(first_seed, first_seed + seeds):
                run = story.run(seed=seed)
                if story.fails(outcome_of(run)):
                    raise SeedFailedError(_failure(story, run)) from run.error

        vars(test).update(vars(function), story=story)  # marks of pytest, too
        test.__name__, test.__qualname__ = function.__name__, function.__qualname__
        test.__module__, test.__doc__ = function.__module__, function.__doc__
        return test

    return decorate


def _starting(function: Callable[[], Any]) -> Any:
    async def body(cluster: StoryCluster) -> None:
        app_of(app := function())  # None would be the listener of the lab
        await cluster.start(app)

    body.__doc__, body.__module__ = function.__doc__, function.__module__
    return body


def _python_path(story: Story) -> str:
    """What a command must be told to import what this process imports; empty: nothing."""
    folders = more_folders(Path(story.name.rpartition(":")[0]))
    return f"PYTHONPATH={os.pathsep.join(folders)} " if folders else ""


def _failure(story: Story, run: Run) -> str:
    plan = run.plan
    lines = [f"seed {plan.seed} failed"]
    if run.played is not None:
        lines += [f"{found.kind}: {found.text}" for found in run.played.findings.wrong[:_FOUND_SHOWN]]
        lines += failed_sends(run.played.cluster) + listener_failures(run.played.cluster)
    if run.error is not None:
        lines.append(error_text(run))
    lines.append(f"faults: {', '.join(map(fault_text, plan.events)) or 'none'}")
    lines.append(
        f"again:  {_python_path(story)}lockstep-sim run {story.name} --seed {plan.seed} --lock-mode {plan.lock_mode}"
    )
    return "\n".join(lines)
