"""Attributes of topics, as RocketMQ 5 has them: which there are, and how a request changes them (docs/wire.md 13)."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from lockstep.protocol.bodies.codec import as_table, take
from lockstep.protocol.errors import LocalProtocolError, short_text

__all__ = [
    "FIFO",
    "MESSAGE_TYPE",
    "MESSAGE_TYPES",
    "MIXED",
    "NORMAL",
    "Attributes",
    "altered",
    "from_wire",
    "parse_changes",
]

Attributes = tuple[tuple[str, str], ...]  # names and values, sorted by name

MESSAGE_TYPE: Final = "message.type"
NORMAL: Final = "NORMAL"
FIFO: Final = "FIFO"
# A topic of this type would take messages of all types; RocketMQ's default is to refuse it.
MIXED: Final = "MIXED"
MESSAGE_TYPES: Final = ("UNSPECIFIED", NORMAL, FIFO, "DELAY", "TRANSACTION")
_VALUES: Final[Mapping[str, Collection[str]]] = {MESSAGE_TYPE: MESSAGE_TYPES}


def parse_changes(text: str) -> dict[str, str]:
    """Read `+name=value,-name`: what to set, and what to delete, each with its sign.

    Raises:
        LocalProtocolError: With RocketMQ's remark.
    """
    changes: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, sets, value = part.partition("=")
        if not name.startswith("+" if sets else "-"):
            what = "add/alter" if sets else "delete"
            raise LocalProtocolError(f"{what} attribute format is wrong: {_shown(name)}")
        if name in changes:
            raise LocalProtocolError(f"key duplication: {_shown(name)}")
        changes[name] = value
    return changes


def altered(now: Attributes, changes: Mapping[str, str], *, is_new: bool) -> Attributes:
    """The attributes after a change.

    Args:
        is_new: There is no topic yet, so that nothing can be deleted.

    Raises:
        LocalProtocolError: With RocketMQ's remark.
    """
    after = dict(now)
    for signed, value in changes.items():
        name, shown = signed[1:], _shown(signed[1:])
        if signed.startswith("-"):
            if is_new:
                raise LocalProtocolError(f"only add attribute is supported while creating topic. key: {shown}")
            if name not in after:
                raise LocalProtocolError(f"attempt to delete a nonexistent key: {shown}")
            del after[name]
            continue
        allowed = _VALUES.get(name)
        if allowed is None:
            raise LocalProtocolError(f"unsupported key: {shown}")
        if value not in allowed:
            raise LocalProtocolError(f"value is not in set: [{', '.join(allowed)}]")
        after[name] = value
    return tuple(sorted(after.items()))


def _shown(name: str) -> str:
    return short_text(name).strip("'")


def from_wire(wire: Mapping[str, Any]) -> Attributes:
    """The member `attributes` of a topic; brokers of RocketMQ 4 have none."""
    table = as_table(wire.get("attributes") or {}, "attributes")
    return tuple(sorted((name, take(table, name, str)) for name in table))
