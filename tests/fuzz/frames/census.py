"""How many entries the tables of a server have, found by walking its objects, not by knowing them."""

from collections import deque
from typing import Any, Final

__all__ = ["largest_table"]

_CONTAINERS: Final = (dict, list, set, deque, frozenset, tuple)
_DEPTH_MAX: Final = 12
_ENTRIES_LOOKED_AT: Final = 200


def largest_table(root: object) -> tuple[int, str]:
    """The entries of the largest container that can be reached from `root`, and the way to it.

    Bytes are not counted; messages are bounded by their bytes, so the tables of stores are left out.
    """
    seen: set[int] = set()
    largest = (0, "")
    pending: list[tuple[object, str, int]] = [(root, type(root).__name__, 0)]
    while pending:
        value, path, depth = pending.pop()
        if id(value) in seen or depth > _DEPTH_MAX:
            continue
        seen.add(id(value))
        if isinstance(value, _CONTAINERS):
            if len(value) > largest[0]:
                largest = (len(value), path)
            pending += [(each, f"{path}[]", depth + 1) for each in _entries(value)]
        elif type(value).__module__.startswith("lockstep.") and not type(value).__module__.startswith(
            "lockstep.store."
        ):
            pending += [(each, f"{path}.{name}", depth + 1) for name, each in _attributes(value)]
    return largest


def _entries(value: Any) -> list[object]:
    some = list(value.values() if isinstance(value, dict) else value)
    return some[:_ENTRIES_LOOKED_AT] + some[-_ENTRIES_LOOKED_AT:]


def _attributes(value: object) -> list[tuple[str, object]]:
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return list(found.items())
