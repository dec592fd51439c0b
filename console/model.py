"""What the console knows: brokers, groups, and the owners of queues over time. Times are epoch ms of this machine."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.bodies.client import ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = [
    "HISTORY_MS",
    "BrokerState",
    "GroupReading",
    "GroupState",
    "Handover",
    "Mark",
    "MarkKind",
    "QueueKey",
    "QueueState",
    "Span",
]

HISTORY_MS: Final = 3_600_000  # of owners and of counts that is kept
_SPANS_MAX, _MARKS_MAX, _FLAPS_MAX = 64, 128, 256  # of one queue

QueueKey = tuple[str, MessageQueue]  # consumer group, queue


class MarkKind(StrEnum):
    GRANTED = "granted"
    TAKEN_OVER = "taken_over"  # granted, and the last owner was another
    RELEASED = "released"  # unlocked, or its owner left the group
    EXPIRED = "expired"  # its lease ended, or its connection was lost
    RESET = "reset"  # its owner moved its offset and has another epoch
    REFUSED = "refused"  # another client asked for it


class Span(NamedTuple):
    """One period of ownership. `to_ms`: None: it lasts."""

    from_ms: int
    to_ms: int | None
    owner: str
    epoch: int | None


class Mark(NamedTuple):
    """One event of a queue.

    Args:
        old, new: As in LockChange.
        cause: The broker's word; "seen": members' answers changed (Apache's brokers have no journal).
        rest_ms: Of a takeover: how long the queue rested.
    """

    at_ms: int
    kind: MarkKind
    old: str | None
    new: str | None
    epoch: int | None
    cause: str
    rest_ms: int = 0


class Handover(NamedTuple):
    """A queue got another owner.

    Args:
        cause: Why the last period of ownership ended.
        rest_ms: Since the last sign of the last owner.
    """

    at_ms: int
    group: str
    queue: MessageQueue
    old: str
    new: str
    epoch: int | None
    cause: str
    rest_ms: int


@dataclass(slots=True)
class QueueState:
    """
    Args:
        row: The lock as it was at `row_ms`; None: no client has it, or the broker has gone.
        last_owner, last_cause: Of the last period that ended.
        seen_span: The open span, when a lock table showed it and no journal yet.
        claims: Apache's brokers: the members that say that they own it.
    """

    row: LockTableRow | None = None
    row_ms: int = 0
    seen_ms: int = 0
    look: int = 0
    last_owner: str | None = None
    last_cause: str = ""
    claims: tuple[str, ...] = ()
    seen_span: Span | None = None
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=_SPANS_MAX))
    marks: deque[Mark] = field(default_factory=lambda: deque(maxlen=_MARKS_MAX))
    flaps_ms: deque[int] = field(default_factory=lambda: deque(maxlen=_FLAPS_MAX))

    @property
    def open_span(self) -> Span | None:
        return self.spans[-1] if self.spans and self.spans[-1].to_ms is None else None


class BrokerState(NamedTuple):
    """
    Args:
        is_lockstep: None: not known yet.
        gone_ms: Since when it does not answer; None: it answers.
        error: Why it does not.
        refused_count: Lock requests that it refused since its start; None: it does not say.
        fenced_counts: What its fenced locks refused since its start, by request.
    """

    name: str
    address: str
    is_lockstep: bool | None = None
    answered_ms: int = 0
    gone_ms: int | None = None
    error: str = ""
    refused_count: int | None = None
    fenced_counts: Mapping[str, int] | None = None


class GroupReading(NamedTuple):
    """What was asked of one group at once.

    Args:
        members: None: no member is online.
        infos: By client id; without members that cannot answer.
        offsets: The progress of the group in each queue.
    """

    name: str
    topics: tuple[str, ...] = ()
    members: ConsumerConnection | None = None
    infos: Mapping[str, ConsumerRunningInfo] = {}
    offsets: Mapping[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


@dataclass(slots=True)
class GroupState:
    """`reading` as it was at `at_ms`."""

    reading: GroupReading
    at_ms: int = 0
