"""Fewer of many: the parts of a tuple that delta debugging tries."""

from collections.abc import Iterator
from typing import TypeVar

__all__ = ["fewer"]

T = TypeVar("T")


def fewer(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """The tuple without all of its items, without each half, without each quarter ... and without each single one."""
    size = len(items)
    while size:
        for first in range(0, len(items), size):
            yield items[:first] + items[first + size :]
        size //= 2
