"""One client's ownership of one queue from lock to loss, as the trace shows it: where it stands, what it may repeat."""

from dataclasses import dataclass, field
from typing import Any

from lockstep.order.kinds import Cause
from lockstep.order.offset_set import OffsetSet
from lockstep.order.reader import Record
from lockstep.order.repeats import Lanes

__all__ = ["GRACE_NS", "Period", "StoredCommits", "stamp_ns"]

GRACE_NS = 1_000_000_000
"""A commit is recorded before it is sent, so the last one of a killed process may never have left it. Where no
`stored` records say what arrived, a commit counts as stored once its writer was seen alive this much later."""


def stamp_ns(record: Record) -> int:
    """When a record was written, on its own clock."""
    mono = record.get("mono_ns")
    return int(record["wall_ms"]) * 1_000_000 if mono is None else int(mono)


@dataclass(slots=True)
class Period:
    """An ownership period. `number` counts up per client process."""

    client_id: str
    number: int
    last_time_ns: int
    born_ns: int = 0
    clock: int = 0
    ended: bool = False
    ended_record: Record | None = None  # dropped, or lock_lost: no call begins after it
    grant: Record | None = None  # acquired; without one, its first record
    granted: bool = False
    position: Record | None = None
    next: "Period | None" = None  # the one that was granted after it
    first_call: Record | None = None
    last_call: Record | None = None  # the one that began last
    last_begin_ns: int = -(1 << 63)
    last_end_ns: int = -(1 << 63)
    blamed: bool = False  # a finding says already that it went on
    resets_before: int = 0
    own_done: OffsetSet = field(default_factory=OffsetSet)  # without order: what it has handled itself
    next_offset: int = -1  # -1: not positioned yet
    start: int = 0
    started: bool = False  # something was handled
    known_before: int = 0  # offsets below it may have been handled by earlier periods
    floor: int = -1  # the last stored commit when this period began
    floor_record: Record | None = None
    rewound_told: bool = False
    may_have_missed: bool = False  # the floor may never have been stored: its commits were lost on the way
    cause: Cause = Cause.TAKEOVER
    again_until: int = 0  # below it repeats have `again_cause`: the last rewind inside this period
    again_cause: Cause = Cause.SUSPEND
    stale_until: int = 0  # below it a finding says already that the period was replaced
    may_rewind_to: int = -1  # set by a failed attempt; -1: no rewind is due
    uncommitted_from: int = 0
    call_begin: Any = None
    call_first: int = 0
    last_handled: Record | None = None
    lanes: Lanes = field(default_factory=Lanes)

    def begin(self, offset: int, known_before: int, cause: Cause) -> None:
        """Stand at the first offset that this period will pull."""
        self.next_offset = self.start = self.uncommitted_from = offset
        self.known_before = known_before
        self.cause = cause

    def note_attempt(self, record: Record, offset: int) -> None:
        """Move past a handled message; a failed attempt opens the way back to where RocketMQ redelivers from."""
        begin = record.get("begin_mono_ns")
        if begin is None or begin != self.call_begin:
            self.call_begin = begin
            self.call_first = offset
        status = record["status"]
        if status == "SUSPEND_CURRENT_QUEUE_A_MOMENT":
            self.may_rewind_to = self.call_first
        elif status == "ROLLBACK":
            self.may_rewind_to = self.uncommitted_from
        else:
            self.may_rewind_to = -1
            if status == "COMMIT":
                self.uncommitted_from = offset + 1
        self.next_offset = offset + 1
        self.started = True
        self.last_handled = record

    def note_commit(self, offset: int) -> None:
        """What this client itself has committed it never handles again in this period."""
        if offset > self.uncommitted_from:
            self.uncommitted_from = offset
        if -1 < self.may_rewind_to < offset:
            self.may_rewind_to = offset

    def repeat_cause(self, offset: int) -> Cause:
        """Why an offset that this period stands at was handled before."""
        return self.again_cause if offset < self.again_until else self.cause


class StoredCommits:
    """What the broker had surely stored for one group and queue at a moment of the history."""

    def __init__(self) -> None:
        self.floor = -1
        self.record: Record | None = None
        self.is_acknowledged = False  # brokers say what they stored
        self._base = -1  # the last offset that the broker surely had stored
        self._earlier: list[int] = []  # commits since then that the newest one counted as stored has passed
        self._pending: list[tuple[int, Record]] = []

    def sent(self, record: Record, time_ns: int) -> None:
        """A commit is about to be sent."""
        if not self.is_acknowledged:
            self._pending.append((time_ns, record))
            if len(self._pending) > 256:
                del self._pending[:128]

    def stored(self, record: Record) -> None:
        """A commit was stored: the broker, or a client that awaited the answer, says so."""
        self.is_acknowledged = True
        self._stands_at(record)

    def known(self, record: Record) -> None:
        """The stored offset was moved by a reset, or read by a new period: what was in flight no longer counts."""
        self._stands_at(record)

    def may_stand_at(self, offset: int) -> bool:
        """Whether the stored offset may be this one, if the newest commits never arrived, as in a partition."""
        return not self.is_acknowledged and (offset == self._base or offset in self._earlier)

    def _stands_at(self, record: Record) -> None:
        self._pending.clear()
        self._earlier.clear()
        self._base = self.floor = record["offset"]
        self.record = record

    def settle(self, last_seen_ns: dict[str, int]) -> None:
        """Take up the newest commit whose writer outlived it by the grace."""
        for place in range(len(self._pending) - 1, -1, -1):
            time_ns, record = self._pending[place]
            if last_seen_ns.get(record["client_id"], 0) >= time_ns + GRACE_NS:
                passed = [self.floor, *(one["offset"] for _, one in self._pending[:place])]
                self._earlier = (self._earlier + passed)[-256:]
                self.floor = record["offset"]
                self.record = record
                del self._pending[: place + 1]
                return
