"""An ownership period: one client owns one queue, from the lock to its loss. Holds its position and allowed repeats."""

from dataclasses import dataclass, field
from typing import Any

from lockstep.order.judge.activity import Activity
from lockstep.order.judge.repeats import Scopes
from lockstep.order.kinds import Cause
from lockstep.order.offset_set import OffsetSet
from lockstep.order.traces.reader import Record

__all__ = ["GRACE_NS", "Period", "StoredCommits", "stamp_ns"]

GRACE_NS = 1_000_000_000
"""A commit is recorded before it is sent, so a killed process may not have sent its last one. Without `stored` records,
a commit counts as stored if its client wrote another record at least this much later."""


def stamp_ns(record: Record) -> int:
    """The time of a record in nanoseconds, on the clock of its machine."""
    mono = record.get("mono_ns")
    return int(record["wall_ms"]) * 1_000_000 if mono is None else int(mono)


@dataclass(slots=True)
class Period:
    """An ownership period. `number` increases within a client process."""

    client_id: str
    number: int
    last_time_ns: int  # of its last record before its end
    until_ns: int = 0  # of its last record of all
    attempts: int = 0
    first_offset: int = -1  # the lowest and the highest one that it handled
    last_offset: int = -1
    born_ns: int = 0
    clock: int = 0
    ended: bool = False
    ended_record: Record | None = None  # `dropped` or `lock_lost`: no call may begin after it
    grant: Record | None = None  # `acquired`; if missing, the first record
    granted: bool = False
    position: Record | None = None
    next: "Period | None" = None  # the next period of the queue
    first_call: Record | None = None
    last_call: Record | None = None  # the call with the latest begin
    last_begin_ns: int = -(1 << 63)
    last_end_ns: int = -(1 << 63)
    blamed: bool = False  # a finding already reports calls after its end
    resets_before: int = 0
    own_done: OffsetSet = field(default_factory=OffsetSet)  # for ordering "none": the offsets that this period handled
    next_offset: int = -1  # -1: not positioned yet
    start: int = 0
    started: bool = False  # it handled a message
    known_before: int = 0  # offsets below it may have been handled by earlier periods
    floor: int = -1  # the last stored commit when this period began
    floor_record: Record | None = None
    floor_clock: int = 0
    rewind_is_reported: bool = False
    may_have_missed: bool = False  # the broker may not have stored the floor: commits were lost on the way
    cause: Cause = Cause.TAKEOVER
    again_until: int = 0  # repeats below it have `again_cause`: set by the last rewind in this period
    again_cause: Cause = Cause.SUSPEND
    stale_until: int = 0  # repeats below it are covered by a STALE_REPEAT finding
    may_rewind_to: int = -1  # set by a failed attempt; -1: no rewind is allowed
    uncommitted_from: int = 0
    call_begin: Any = None
    call_first: int = 0
    last_handled: Record | None = None
    scopes: Scopes = field(default_factory=Scopes)

    @property
    def gave_up(self) -> bool:
        """Whether the owner ended the period on its own, and not because the broker refused to renew the lock."""
        return self.ended_record is not None and self.ended_record["event"] == "dropped"

    def begin(self, offset: int, known_before: int, cause: Cause) -> None:
        """Set the first offset that this period pulls."""
        self.next_offset = self.start = self.uncommitted_from = offset
        self.known_before = known_before
        self.cause = cause

    def note_attempt(self, record: Record, offset: int) -> None:
        """Move past a handled message. A failed attempt allows a rewind to where RocketMQ redelivers from."""
        self.attempts += 1
        if offset > self.last_offset:
            self.last_offset = offset
        if offset < self.first_offset or self.first_offset < 0:
            self.first_offset = offset
        begin = record.get("begin_mono_ns", record.get("begin_wall_ms"))
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
        """Forbid rewinds below a commit: a client does not repeat its own committed messages in the same period."""
        if offset > self.uncommitted_from:
            self.uncommitted_from = offset
        if -1 < self.may_rewind_to < offset:
            self.may_rewind_to = offset

    def repeat_cause(self, offset: int) -> Cause:
        """Why a message at this offset was handled before."""
        return self.again_cause if offset < self.again_until else self.cause


class StoredCommits:
    """The offset that the broker has surely stored for one group and queue, at the current point of the history."""

    def __init__(self) -> None:
        self.floor = -1
        self.record: Record | None = None
        self.clock = 0  # of `record`
        self.is_acknowledged = False  # the history has `stored` records
        self._base = -1  # the last offset that the broker surely had stored
        self._earlier: list[int] = []  # commits after `_base` and below the newest one that counts as stored
        self._pending: list[tuple[int, Record, int]] = []

    def sent(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `committed` record: the client sends it next."""
        if not self.is_acknowledged:
            self._pending.append((time_ns, record, clock))
            if len(self._pending) > 256:
                del self._pending[:128]

    def stored(self, record: Record, clock: int) -> None:
        """Take a `stored` record: the broker, or a client with the broker's answer, reports it."""
        self.is_acknowledged = True
        last = self.record
        if last is not None and self.clock == clock and _are_one_moment(last, record):
            record = min(last, record, key=_offset_of)
        self._stands_at(record, clock)

    def known(self, record: Record, clock: int) -> None:
        """Take the stored offset from a reset, or from a new period that read it. Pending commits are discarded."""
        self._stands_at(record, clock)

    def may_stand_at(self, offset: int) -> bool:
        """Whether this may be the stored offset if the newest commits never arrived, for example in a partition."""
        return not self.is_acknowledged and (offset == self._base or offset in self._earlier)

    def _stands_at(self, record: Record, clock: int) -> None:
        self._pending.clear()
        self._earlier.clear()
        self._base = self.floor = record["offset"]
        self.record, self.clock = record, clock

    def settle(self, activity: Activity, now_ns: int) -> None:
        """Count as stored the newest commit whose client lived on for GRACE_NS, or ended in an orderly shutdown."""
        for place in range(len(self._pending) - 1, -1, -1):
            time_ns, record, clock = self._pending[place]
            client_id = record["client_id"]
            if activity.had_closed(client_id, now_ns) or activity.seen_ns(client_id, now_ns) >= time_ns + GRACE_NS:
                passed = [self.floor, *(one["offset"] for _, one, _ in self._pending[:place])]
                self._earlier = (self._earlier + passed)[-256:]
                same = [one for _, one, its in self._pending[:place] if its == clock and _are_one_moment(one, record)]
                self.record, self.clock = min(record, *same, key=_offset_of) if same else record, clock
                self.floor = self.record["offset"]
                del self._pending[: place + 1]
                return


def _are_one_moment(one: Record, other: Record) -> bool:
    """Whether two processes wrote these records in one nanosecond: which came last is not known."""
    return stamp_ns(one) == stamp_ns(other) and one.get("client_id") != other.get("client_id")


def _offset_of(record: Record) -> int:
    return int(record["offset"])
