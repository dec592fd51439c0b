"""Errors while a filter is evaluated. Errors while it is compiled are FilterErrors."""

__all__ = ["NoAnswer"]


class NoAnswer(Exception):
    """A filter has no result for a message, as `size > 3` with the size "x". It does not match, also under NOT."""
