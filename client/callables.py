"""Functions that a user gives: checked when they are given, and what becomes of their exceptions."""

import asyncio
import inspect
from functools import partial
from typing import Any

from lockstep.client.errors import ConsumerError
from lockstep.remoting.logs import EventLog, log_exception

__all__ = ["check_function", "log_or_raise", "must_propagate", "why_no_function"]


def why_no_function(function: Any, *parameters: str) -> str | None:
    """Say why an object cannot be called with so many arguments; None: it can.

    Args:
        parameters: their names, for the text.
    """
    if inspect.isclass(function):
        return "it is a class; give an object of it"
    if not callable(function):
        return f"a {type(function).__name__} cannot be called"
    called = function.func if isinstance(function, partial) else function
    for one in (called, getattr(called, "__call__", None)):  # noqa: B004 - an object with such a __call__
        if inspect.isasyncgenfunction(one) or inspect.isgeneratorfunction(one):
            return "it has `yield`, so that a call of it runs none of its lines; use return"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # a function of C may have none
    try:
        signature.bind(*parameters)
    except TypeError:
        return f"it has the parameters {signature}; it gets ({', '.join(parameters)})"
    return None


def check_function(what: str, function: Any, *parameters: str) -> None:
    """Raise ConsumerError for an object that is no function of these parameters: it would fail in each call."""
    if why := why_no_function(function, *parameters):
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise ConsumerError(f"{what} {name}: {why}")


def must_propagate(error: BaseException) -> bool:
    """Return whether an exception out of the user's code ends the program, or the task that called this code.

    All others are failures of that code only: also a CancelledError of its own making, and errors that are no
    Exception, such as a panic in a library that is written in Rust. A task that would end by one of them would leave
    its queue standing.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task() if _loop_runs() else None
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        # Python closes a coroutine of a loop that ended. While a loop runs, the user's code raised it.
        return not _loop_runs()
    return isinstance(error, KeyboardInterrupt | SystemExit)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def log_or_raise(log: EventLog, event: str, error: BaseException, **fields: Any) -> None:
    """Log an exception out of the user's code, or raise it again if it `must_propagate`. Called where it is caught."""
    if must_propagate(error):
        raise error
    log_exception(log, event, error, **fields)
