"""Maps with message queues as keys. fastjson writes the queue object as the member name (wire.md 1.5)."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lockstep.protocol.bodies.broker import queue_from_wire, queue_to_wire
from lockstep.protocol.bodies.codec import as_int, as_table
from lockstep.protocol.bodies.fastjson import ObjectKeyed, dump_canonical
from lockstep.protocol.errors import BodyError, short_text
from lockstep.protocol.model import MessageQueue

__all__ = ["as_queue_offsets", "as_queue_table", "queue_from_key", "queue_key", "queue_table"]

V = TypeVar("V")


def queue_key(queue: MessageQueue) -> str:
    """The member name of a queue in a map: `{"brokerName":"b","queueId":0,"topic":"T"}`."""
    return dump_canonical(queue_to_wire(queue))


def queue_from_key(key: str) -> MessageQueue:
    """Read a queue from its member name. Raises BodyError."""
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        raise BodyError(f"{short_text(key)} is not a message queue") from None
    return queue_from_wire(value)


def queue_table(table: Mapping[MessageQueue, V], to_wire: Callable[[V], Any] = lambda value: value) -> ObjectKeyed:
    return ObjectKeyed({queue_key(queue): to_wire(value) for queue, value in table.items()})


def as_queue_table(value: Any, what: str, from_wire: Callable[[Any], V]) -> dict[MessageQueue, V]:
    """Read a map with queues as keys. A missing map counts as empty. Raises BodyError."""
    if value is None:
        return {}
    entries = value.entries if isinstance(value, ObjectKeyed) else as_table(value, what)
    return {queue_from_key(key): from_wire(inner) for key, inner in entries.items()}


def as_queue_offsets(value: Any, what: str) -> dict[MessageQueue, int]:
    return as_queue_table(value, what, lambda offset: as_int(offset, f"an offset of {what}"))
