"""Which tests `make test` runs, and which `make test-all` adds.

`--tier=quick` proves the product in a few minutes: every test once, and not what takes long by nature. `--tier=rest`
is what quick left out, so that CI runs both and nothing twice. Without the option all tests run.

A test that runs under several event loops or header encodings runs under one of them in quick, by turns: which one
is drawn from its name, so that both are met all over the suite and a test keeps its own from run to run. Tests of
hypothesis run in both, with few examples in quick and with all of them in the rest.
"""

import zlib
from collections.abc import Sequence
from enum import Enum

import pytest

__all__ = ["COLLECTED", "Tier", "select"]

VARIANTS = frozenset({"asyncio", "uvloop", "JSON", "MSGPACK"})  # parts of a parametrized test's id
COLLECTED = pytest.StashKey[list[pytest.Item]]()  # in pytest's config: all that was collected, whatever the tier
LONG = ("spark", "determinism", "realtime", "long")  # markers of what quick leaves out, unless marked `smoke`


class Tier(Enum):
    QUICK = "quick"
    REST = "rest"
    ALL = "all"


def select(items: Sequence[pytest.Item], tier: Tier) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The items that a tier runs, and those that it leaves out, each in their order."""
    if tier is Tier.ALL:
        return list(items), []
    quick = _quick(items)
    chosen: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        runs = item.nodeid in quick if tier is Tier.QUICK else item.nodeid not in quick or _draws_examples(item)
        (chosen if runs else left).append(item)
    return chosen, left


def _quick(items: Sequence[pytest.Item]) -> set[str]:
    variants: dict[str, list[str]] = {}
    for item in items:
        if not _is_long(item):
            variants.setdefault(_without_variant(item.nodeid), []).append(item.nodeid)
    return {names[zlib.crc32(name.encode()) % len(names)] for name, names in variants.items()}


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in LONG) and item.get_closest_marker("smoke") is None


def _without_variant(nodeid: str) -> str:
    """A test's name without the loop and the encoding it runs under."""
    name, bracket, parameters = nodeid.partition("[")
    kept = [part for part in parameters.removesuffix("]").split("-") if part not in VARIANTS]
    return f"{name}{bracket}{'-'.join(kept)}"


def _draws_examples(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))
