"""Receipts of POP: what names one delivery of one message, and the texts of a pop's answer (docs/wire.md 18.2).

A client joins the fields of the answer to one text a message, and sends it with the acknowledgement. Brokers, clients
and tools of RocketMQ read the first eight fields by their place; more may follow.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lockstep.protocol.errors import BodyError, short_text
from lockstep.protocol.tuples import new_tuple

__all__ = [
    "ORDERED",
    "Receipt",
    "SpanOfQueue",
    "TopicKind",
    "encode_counts",
    "encode_offsets",
    "encode_starts",
    "parse_spans",
]

# The revive queue in receipts of groups in order: they have none.
ORDERED: Final = 999
_FIELDS_MIN: Final = 8
_DIGITS_MAX: Final = 19
_INT64_MAX: Final = (1 << 63) - 1
_NUMBER: Final = f"(-?[0-9]{{1,{_DIGITS_MAX}}})"
_RECEIPT: Final = re.compile(f"{' '.join([_NUMBER] * 5)} ([^ ]*) {_NUMBER} {_NUMBER}(?: |\\Z)")


class TopicKind:
    """Where a popped message lies."""

    TOPIC: Final = 0
    RETRY: Final = 1  # of the topic and the group: %RETRY%group_topic
    RETRY_V2: Final = 2  # likewise: %RETRY%group+topic


class Receipt(NamedTuple):
    """One delivery of one message.

    Args:
        start_offset: Of the first message of its delivery in this queue.
        pop_ms: When it was delivered, in epoch ms by the broker's clock; it names the delivery.
        revive_queue_id: `ORDERED`, or where its checkpoint is.
        topic_kind: One of `TopicKind`.
    """

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    topic_kind: int
    broker_name: str
    queue_id: int
    queue_offset: int

    def encode(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> "Receipt":
        """Read a receipt, also one with more fields. Raises BodyError.

        Source: wire.md 18.2
        """
        # One search instead of a check of each field: each acknowledgement has a receipt.
        found = _RECEIPT.match(text)
        if found is None:
            count = text.count(" ") + 1
            if count < _FIELDS_MIN:
                raise BodyError(f"a receipt has {_FIELDS_MIN} fields or more, not {count}: {short_text(text)}")
            raise BodyError(f"a field of a receipt is no number: {short_text(text)}")
        start, pop_ms, invisible_ms, revive, kind, name, queue_id, offset = found.groups()
        numbers = (int(start), int(pop_ms), int(invisible_ms), int(revive), int(kind), name, int(queue_id), int(offset))
        return new_tuple(cls, numbers)


def _is_number(field: str) -> bool:
    """Whether Java reads it as a number of 64 bits, but for the last digit."""
    digits = field.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX


class SpanOfQueue(NamedTuple):
    """What a pop's answer has of one queue. `times_before`: by queue offset, without messages that are new."""

    topic_kind: int
    queue_id: int
    start_offset: int
    offsets: Sequence[int]
    times_before: dict[int, int]


def encode_starts(spans: Iterable[SpanOfQueue]) -> str:
    """startOffsetInfo: kind, queue and first offset of each queue."""
    return ";".join(f"{span.topic_kind} {span.queue_id} {span.start_offset}" for span in spans)


def encode_offsets(spans: Iterable[SpanOfQueue]) -> str:
    """msgOffsetInfo: kind, queue and the offsets of its messages."""
    return ";".join(f"{span.topic_kind} {span.queue_id} {','.join(map(str, span.offsets))}" for span in spans)


def encode_counts(spans: Iterable[SpanOfQueue]) -> str:
    """orderCountInfo: how often each message was delivered before, and the lowest count of each queue."""
    parts = list[str]()
    for kind, queue_id, _, offsets, times in spans:
        parts += [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in times.items()]
        # Older clients read the count of the queue alone: a message that is new makes it 0.
        lowest = min(times.values()) if times and len(times) == len(offsets) else 0
        parts.append(f"{kind} {queue_id} {lowest}")
    return ";".join(parts)


def parse_spans(starts: str, offsets: str, counts: str = "") -> list[SpanOfQueue]:
    """What a pop's answer has of each queue: the reverse of `encode_starts`, `encode_offsets` and `encode_counts`.

    Raises:
        BodyError: A part cannot be read, or the texts name different queues.
    """
    first_of, given, times = _table(starts), _table(offsets), _table(counts)
    if first_of.keys() != given.keys():
        raise BodyError(f"different queues in {short_text(starts)} and {short_text(offsets)}")
    spans = list[SpanOfQueue]()
    for (kind, queue_id), first in first_of.items():
        offsets_here = [_number(text) for text in given[kind, queue_id].split(",")]
        # The count of the queue is for messages without one of their own.
        of_queue = times.get((kind, queue_id), "0")
        counted = {at: _number(times.get((kind, f"qo{queue_id}%{at}"), of_queue)) for at in offsets_here}
        times_before = {at: count for at, count in counted.items() if count}
        spans.append(SpanOfQueue(_number(kind), _number(queue_id), _number(first), offsets_here, times_before))
    return spans


def _table(text: str) -> dict[tuple[str, str], str]:
    """The third field of each part, by the other two."""
    table = dict[tuple[str, str], str]()
    for part in text.split(";") if text else ():
        kind, space, rest = part.partition(" ")
        queue, second_space, value = rest.partition(" ")
        if not (space and second_space) or (kind, queue) in table:
            raise BodyError(f"a pop's answer has a part that is unreadable or repeated: {short_text(part)}")
        table[kind, queue] = value
    return table


def _number(text: str) -> int:
    if not _is_number(text) or not 0 <= int(text) <= _INT64_MAX:
        raise BodyError(f"a field of a pop's answer is no number of 63 bits: {short_text(text)}")
    return int(text)
