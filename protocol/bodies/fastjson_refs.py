"""Resolves `{"$ref":path}` in fastjson bodies: a reference to an object elsewhere in the body (wire.md 1.5).

A path is `$` (the whole body), `$.name[0].name`, `@` (the parent object or list of the reference) or `..` (the parent
of that). A reference is replaced by the same object, without a copy.
"""

import re
from typing import Any, Final

__all__ = ["VISITS_MAX", "has_references", "resolve_references"]

# The most members that a walk over a body with resolved references may visit. Without a limit, a few bytes could mean
# billions of members. A circular reference has no end. No RocketMQ body has one; it counts as _ENDLESS_VISITS members.
VISITS_MAX: Final = 200_000
_ENDLESS_VISITS: Final = 50_000

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)++)|\[(\d++)\]|\[(?:\"([^\"]*+)\"|'([^']*+)')\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MISSING: Final = object()

# A container and its parents: (container, parents); None at the top.
_Around = tuple[Any, Any] | None


def has_references(data: bytes) -> bool:
    return b"$ref" in data


def resolve_references(root: Any) -> Any:
    """Replace the references in `root` in place and return it. An invalid path becomes None, like in fastjson.

    Raises ValueError if the references would multiply the members of the body beyond the limit.
    """
    found = False
    waiting: list[tuple[Any, _Around]] = [(root, None)] if isinstance(root, (dict, list)) else []
    members = 0
    while waiting:
        container, around = waiting.pop()
        inner: list[tuple[Any, _Around]] = []
        for key, value in list(_items(container)):
            members += 1
            if not isinstance(value, (dict, list)):
                continue
            path = value.get("$ref") if isinstance(value, dict) and len(value) == 1 else None
            if isinstance(path, str):
                container[key] = _named(root, path, (container, around))
                found = True
            else:
                inner.append((value, (container, around)))
        waiting += reversed(inner)
    if found:
        _check_growth(root, VISITS_MAX + 2 * members)
    return root


def _items(container: Any) -> Any:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _named(root: Any, path: str, around: tuple[Any, _Around]) -> Any:
    if path == "@":
        return around[0]
    if path == "..":
        return around[1][0] if around[1] is not None else None
    if not path.startswith("$"):
        return None
    value, position = root, 1
    while position < len(path):
        step = _STEP.match(path, position)
        value = _stepped(value, step) if step else _MISSING
        if step is None or value is _MISSING:
            return None
        position = step.end()
    return value


def _stepped(value: Any, step: re.Match[str]) -> Any:
    name, index, *quoted = step.groups()
    if isinstance(value, list):
        return value[int(index)] if index is not None and len(index) < 10 and int(index) < len(value) else _MISSING
    if not isinstance(value, dict):
        return _MISSING
    if name is not None:
        return value.get(_ESCAPED.sub(r"\1", name), _MISSING)
    return value.get(index if index is not None else next(q for q in quoted if q is not None), _MISSING)


def _check_growth(root: Any, visits_max: int) -> None:
    """Count the members that a walk from `root` would visit. The count of each container is computed once."""
    visits: dict[int, int] = {}  # 0 while its members are being counted
    waiting = [root]
    while waiting:
        container = waiting[-1]
        if visits.get(id(container)):
            waiting.pop()
            continue
        inner = [value for _, value in _items(container) if isinstance(value, (dict, list))]
        if id(container) not in visits:
            visits[id(container)] = 0
            waiting += [value for value in inner if id(value) not in visits]
            continue
        waiting.pop()
        total = 1 + len(container) + sum(visits[id(value)] or _ENDLESS_VISITS for value in inner)
        visits[id(container)] = min(total, visits_max + 1)
        if total > visits_max:
            raise ValueError("references make the body grow beyond measure")
