"""Functions that a user gives: looked at when they are given, because a wrong one would fail in each call."""

import inspect
from functools import partial
from typing import Any

from lockstep.client.errors import ConsumerError

__all__ = ["check_function", "why_no_function"]


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
    """Raise ConsumerError for an object that is no function of these parameters."""
    if why := why_no_function(function, *parameters):
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise ConsumerError(f"{what} {name}: {why}")
