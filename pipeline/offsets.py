"""Offsets in options and in checkpoints, as plain values; no broker is asked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from lockstep.protocol.model import MessageQueue

__all__ = [
    "ANY_BROKER",
    "EARLIEST",
    "LATEST",
    "Assignment",
    "OffsetSpec",
    "Offsets",
    "from_checkpoint",
    "from_json",
    "parse_assignment",
    "parse_offsets",
    "parse_timestamps",
    "share",
    "to_checkpoint",
]

EARLIEST: Final = -2
LATEST: Final = -1
ANY_BROKER: Final = ""
"""The broker name of a queue that an option names as Kafka does, without a broker."""
_INT64_MAX: Final = 2**63 - 1

Offsets = dict[MessageQueue, int]
"""Next offset to read, by queue."""
Assignment = tuple[tuple[str, str | None, int], ...]
"""(topic, broker name or None for each broker that has it, queue id)."""
Kind = Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """`by_queue` has offsets (also EARLIEST and LATEST) or epoch milliseconds, by kind.

    `timestamp_ms` is for all queues.
    """

    kind: Kind
    by_queue: Mapping[MessageQueue, int] = field(default_factory=dict)
    timestamp_ms: int = 0


def parse_offsets(text: str) -> OffsetSpec:
    """ "earliest", "latest" or JSON {"topic":{"broker":{"queue":offset}}}.

    Kafka's shape {"topic":{"queue":offset}} names no broker: its queues have the broker name ANY_BROKER.

    Raises ValueError with the reason.
    """
    word = text.strip().lower()
    if word == "earliest":
        return OffsetSpec("earliest")
    if word == "latest":
        return OffsetSpec("latest")
    return OffsetSpec("offsets", _by_queue(text, EARLIEST))


def parse_timestamps(text: str) -> OffsetSpec:
    """JSON of the same shape, with epoch milliseconds. Raises ValueError."""
    return OffsetSpec("timestamps", _by_queue(text, 0))


def _by_queue(text: str, minimum: int) -> Offsets:
    result = {}
    for topic, held in _object(_json(text), "the whole").items():
        brokers = _object(held, f"what {topic!r} holds")
        if brokers and not any(isinstance(queues, dict) for queues in brokers.values()):
            brokers = {ANY_BROKER: brokers}
        for broker, queues in brokers.items():
            for queue_id, value in _object(queues, f"what {broker!r} of {topic!r} holds").items():
                queue = MessageQueue(topic, broker, _queue_id(queue_id))
                if type(value) is not int or not minimum <= value <= _INT64_MAX:
                    raise ValueError(f"queue {queue} has {value!r}, which is no whole number of {minimum} or more")
                result[queue] = value
    if not result:
        raise ValueError("it names no queue")
    return result


def parse_assignment(text: str) -> Assignment:
    """JSON {"topic":[0,1]}: those queues of each broker, or {"topic":{"broker":[0,1]}}. Raises ValueError."""
    result: dict[tuple[str, str | None, int], None] = {}
    for topic, held in _object(_json(text), "the whole").items():
        by_broker: dict[str | None, Any] = held if isinstance(held, dict) else {None: held}
        for broker, queue_ids in by_broker.items():
            if not isinstance(queue_ids, list) or not queue_ids:
                raise ValueError(f"{topic!r} holds {queue_ids!r}, which is no list of queue ids")
            for queue_id in queue_ids:
                if type(queue_id) is not int or queue_id < 0:
                    raise ValueError(f"{topic!r} holds {queue_id!r}, which is no queue id")
                result[topic, broker, queue_id] = None
    if not result:
        raise ValueError("it names no queue")
    return tuple(result)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object, not {value!r}")
    return value


def _queue_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError(f"{text!r} is no queue id")
    return int(text)


def to_checkpoint(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Dicts of primitives for Spark's checkpoint, sorted, in the shape of startingOffsets."""
    result: dict[str, Any] = {}
    for queue in sorted(offsets):
        result.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return result


def from_checkpoint(value: Mapping[str, Any]) -> Offsets:
    """Reverse of `to_checkpoint`. Raises ValueError for anything else."""
    if not value:
        return {}
    offsets = _by_queue(json.dumps(value), 0)
    if any(queue.broker_name == ANY_BROKER for queue in offsets):
        raise ValueError("a checkpoint names the broker of each queue")
    return offsets


def from_json(text: str | None) -> Offsets:
    """The offsets in the progress of a source; none when the source has not read, or is not Lockstep's."""
    try:
        return from_checkpoint(_json(text or "{}"))
    except ValueError:
        return {}


def share(begin: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], limit: int) -> Offsets:
    """Ends that give `limit` messages in all from `begin`, in proportion to the lag of each queue."""
    waiting = {queue: max(0, ends[queue] - begin[queue]) for queue in sorted(ends)}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    result, seen, given = {}, 0, 0
    for queue, count in waiting.items():  # by running sums: rounding neither loses nor adds messages
        seen += count
        upto = limit * seen // total
        result[queue] = begin[queue] + upto - given
        given = upto
    return result
