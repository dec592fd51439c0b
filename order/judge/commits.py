"""Rule (d) for the commits of one queue: what brokers stored, and commits of messages that were not handled."""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice

from lockstep.order.judge.ownership import name_of
from lockstep.order.judge.period import stamp_ns
from lockstep.order.judge.sequence import came_after
from lockstep.order.kinds import Confidence, Kind
from lockstep.order.offset_set import OffsetSet
from lockstep.order.report import Findings
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record

__all__ = ["WAITING_MAX", "CommitRules", "UnlessReset"]

_EARLY_KEPT_MAX = 100
_RESETS_KEPT = 100
WAITING_MAX = 1000


class UnlessReset:
    """Findings of offsets that went back. A reset that is read later may have come before them.

    Records are read in the order of time, so a reset on another clock explains what was found shortly before, and one
    on the same clock what was found in its nanosecond. Of many findings the oldest is reported without waiting longer.
    """

    def __init__(self, clocks: Clocks, findings: Findings) -> None:
        self.clocks = clocks
        self._findings = findings
        self._waiting: deque[tuple[Record, int, tuple[int, int], Callable[[], None]]] = deque()
        self._resets: deque[tuple[int, Record, int]] = deque(maxlen=_RESETS_KEPT)  # number, record, clock
        self.count = 0  # of resets

    def report(self, record: Record, clock: int, finding: Callable[[], None], since: int | None = None) -> None:
        """Report a finding about the offset of a record, later, with the time of now.

        Args:
            since: The number of resets that had been read when the record was; None: as many as now.
        """
        if since is not None and since < self.count:
            behind = [(reset, its) for number, reset, its in self._resets if number > since]
            if any(self._explains(reset, its, record, clock) for reset, its in behind):
                return
        self._waiting.append((record, clock, (self._findings.at_ns, self._findings.source), finding))
        if len(self._waiting) > WAITING_MAX:
            self._tell(*self._waiting.popleft()[2:])

    def reset(self, record: Record, clock: int) -> None:
        """Take a reset. It explains what may have come after it."""
        self.count += 1
        self._resets.append((self.count, record, clock))
        self._waiting = deque(one for one in self._waiting if not self._explains(record, clock, *one[:2]))

    def _explains(self, reset: Record, clock: int, record: Record, other: int) -> bool:
        if reset["offset"] != record["offset"]:
            return False
        most = self.clocks.gap_ns(clock, stamp_ns(reset), other, stamp_ns(record))[1]
        if clock == other:
            return most == 0 and reset.get("client_id") != record.get("client_id")
        return most > 0

    def _tell(self, found_at: tuple[int, int], finding: Callable[[], None]) -> None:
        now = self._findings.at_ns, self._findings.source
        self._findings.at_ns, self._findings.source = found_at
        finding()
        self._findings.at_ns, self._findings.source = now

    def finish(self) -> None:
        """Report what no reset explained."""
        for _, _, found_at, finding in self._waiting:
            self._tell(found_at, finding)


class CommitRules:
    """Checks commits and stored offsets against the sets of offsets that `QueueHistory` keeps."""

    def __init__(
        self,
        queue: str,
        findings: Findings,
        attempted: OffsetSet,
        done: OffsetSet,
        skipped: OffsetSet,
        unless_reset: UnlessReset,
    ) -> None:
        self._queue = queue
        self._findings = findings
        self._attempted = attempted
        self._done = done
        self._skipped = skipped
        self._unless_reset = unless_reset
        self._highest: Record | None = None  # the highest commit, or stored offset
        self._last_stored: tuple[Record, int] | None = None  # with its clock
        # Commits on their way may be stored before this one.
        self._reset_to = -1
        self._early: list[tuple[Record, int, int]] = []  # commits of unhandled messages: record, start, end

    @property
    def highest(self) -> int:
        """The highest commit or stored offset; 0 without one."""
        return self._highest["offset"] if self._highest is not None else 0

    def committed(self, record: Record, start: int) -> None:
        """Take a commit of a period that began at offset `start`; -1: it has no position."""
        offset = record["offset"]
        if self._highest is None or offset > self._highest["offset"]:
            self._highest = record
        if 0 <= start < offset and len(self._early) < _EARLY_KEPT_MAX:
            for gap in islice(self._done.missing(start, offset), _EARLY_KEPT_MAX):
                unhandled = next(self._skipped.missing(*gap), None)
                if unhandled is not None:
                    self._early.append((record, *unhandled))
                    break

    def stored(self, record: Record, clock: int, *, is_judged: bool) -> None:
        """Take a stored offset. It goes back only after a reset, or if the group is concurrent (not `is_judged`)."""
        last, offset = self._last_stored, record["offset"]
        if self._highest is None or offset > self._highest["offset"]:
            self._highest = record
        self._last_stored = (record, clock) if is_judged else None
        if is_judged and last is not None and offset < last[0]["offset"] and offset != self._reset_to:
            sure = came_after(self._unless_reset.clocks, *last, record, clock)
            if sure is not None:
                self._went_back(last[0], record, clock, sure)

    def _went_back(self, last: Record, record: Record, clock: int, sure: Confidence) -> None:
        text = f"the stored offset of {self._queue} went back from {last['offset']} to {record['offset']}"
        size = last["offset"] - record["offset"]
        finding = partial(self._findings.violation, Kind.STORED_REGRESS, text, last, record, confidence=sure, size=size)
        self._unless_reset.report(record, clock, finding)

    def reset(self, record: Record, clock: int, passed: int) -> None:
        """Take a reset. `passed` is the last commit: it may be stored later than the reset is recorded."""
        self._reset_to = record["offset"]
        own, last = (record, clock), self._last_stored
        marks = [own, last] if last is not None else [own] if self._reset_to <= passed else []
        self._last_stored = min(marks, key=lambda mark: int(mark[0]["offset"]), default=None)

    def lost(self, start: int, exists: OffsetSet | None) -> OffsetSet:
        """Report and return the offsets between `start` and the highest commit that were not handled.

        Only offsets in `exists` (those that were sent) count. None means that no producer trace is known: then every
        offset counts, because a queue has no holes.
        """
        highest = self._highest
        lost = OffsetSet()
        if highest is None or start < 0:
            return lost
        lost.add_range(start, highest["offset"])
        lost = lost.minus(self._done, self._skipped)
        if exists is not None:
            lost = lost.minus(lost.minus(exists))
        for first, end in lost.runs():
            self._early = [one for one in self._early if not (one[1] < end and first < one[2])]
            what = f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
            attempts = " but in attempts that failed" if self._attempted.touches(first, end) else ""
            self._findings.violation(
                Kind.LOST_WRITE,
                f"{_who(highest)} {self._queue} up to {highest['offset']}, but {what} had no handling{attempts}",
                highest,
                size=end - first,
                around=first,
            )
        return lost

    def finish(self, start: int, end: int | None) -> None:
        """Report commits beyond the end, and commits before the handling. Call it after `lost`.

        Args:
            start: The lowest position of all periods.
            end: The end of the queue by the traces of producers; None if there is no such trace.
        """
        highest = self._highest
        known_end = max(self._attempted.end, self._skipped.end, start, end or 0)
        if end is not None and highest is not None and highest["offset"] > known_end:
            self._findings.violation(
                Kind.COMMIT_BEYOND_END,
                f"{_who(highest)} {self._queue} up to {highest['offset']}, and it ends at {known_end}",
                highest,
                size=highest["offset"] - known_end,
            )
        for record, first, stop in self._early:
            if self._attempted.touches(first, stop):
                self._findings.violation(
                    Kind.COMMIT_UNHANDLED,
                    f"{name_of(record)} committed {self._queue} up to {record['offset']} before {first} was handled",
                    record,
                    size=stop - first,
                    around=first,
                )


def _who(record: Record) -> str:
    return f"{record['client_id']} committed" if record["event"] == "committed" else "the broker stored"
