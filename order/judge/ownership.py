"""Rule (c): a queue has one owner at a time. Checked with grants, ends of periods, calls and, if present, epochs.

Two records may have different clocks. A finding is CERTAIN if it holds for every possible difference of the clocks
(see clocks.py), UNDECIDED if it holds for some, and dropped if it holds for none. A handover between two machines is
correct if the calls of the old owner surely began before the new owner read its first offset.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from lockstep.order.judge.period import Period, stamp_ns
from lockstep.order.kinds import Confidence, Kind
from lockstep.order.report import Findings
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record
from lockstep.protocol.epochs import parse_epoch

__all__ = ["Ownership", "name_of", "same_period"]

_UNDER_EPOCH = frozenset({"acquired", "positioned", "handled", "committed", "stored", "dead_lettered", "sent_back"})


def name_of(record: Record) -> str:
    """The client and period of a record, as text."""
    return f"{record['client_id']} (period {record.get('period', 0)})"


class Ownership:
    """Checks the owners of one queue in one group and one store. `queue` is its name in reports."""

    def __init__(self, queue: str, findings: Findings, clocks: Clocks) -> None:
        self._queue = queue
        self._findings = findings
        self._clocks = clocks
        self._newest_calls: dict[int, tuple[Record | None, Record | None]] = {}  # newest two by clock (two owners)
        self._epoch: tuple[int, Record, int] | None = None  # the highest epoch, its first record, the clock
        self._doubted_epochs: set[int] = set()
        self._shared_epochs: set[Any] = set()
        self._ungranted: list[tuple[Period, Record]] = []
        self.overlaps: Counter[tuple[str, int]] = Counter()  # by client and period
        self.outlived_count = 0  # calls that ran on beyond the lease of their fenced lock

    # Periods -------------------------------------------------------------------------------------------------

    def began(self, period: Period, record: Record, newest: Period | None) -> None:
        """Take the first record of a period. `newest` is the previous period of the queue."""
        period.grant = record
        period.granted = record["event"] == "acquired"
        if newest is not None and newest.next is None:
            newest.next = period

    def positioned(self, period: Period, record: Record) -> None:
        """Check that a period took its position before another client was granted the queue."""
        if period.position is not None:
            return
        period.position = record
        after = self._successor(period)
        if after is None or after.client_id == period.client_id or after.grant is None:
            return
        least, _ = self._gap(after, stamp_ns(after.grant), period, stamp_ns(record))
        if least > 0 and self._comes_later(after, period):
            self._findings.violation(
                Kind.TWO_GRANTS,
                f"{name_of(record)} took its position in {self._queue} after {name_of(after.grant)} was granted it",
                after.grant,
                record,
                size=least / 1e6,
            )

    # Calls ---------------------------------------------------------------------------------------------------

    def call(self, period: Period, record: Record, begin: int, *, repeated_stale: bool) -> None:
        """Check a message of an ordered call. `repeated_stale`: a STALE_REPEAT finding already covers it."""
        end = stamp_ns(record)
        first_of_call = begin != period.call_begin or self._is_another_key(period, record)
        if not period.granted and period.first_call is None:
            self._ungranted.append((period, record))
        if period.first_call is None:
            period.first_call = record
        if end < begin:
            if first_of_call:
                self.call_times(record, begin)
            return
        overlaps = self._overlaps(period, record, begin)
        if first_of_call:
            self.outlived_count += "outlived_ms" in record
            if self._runs_beside(period, record, begin):
                self._two_at_once(period, record, begin)
            if not (overlaps or repeated_stale):
                self._check_stale(period, record, begin)
            else:
                period.blamed = True
        if begin > period.last_begin_ns:
            period.last_begin_ns, period.last_call = begin, record
        if end > period.last_end_ns:
            period.last_end_ns = end

    def call_times(self, record: Record, begin: int) -> None:
        """Check that a call ended after it began."""
        late_ms = (begin - stamp_ns(record)) / 1e6
        if late_ms > 0:
            self._findings.violation(
                Kind.ENDS_BEFORE_BEGIN,
                f"the call of {name_of(record)} for offset {record['offset']} of {self._queue} "
                f"ended {late_ms:.3f} ms before it began",
                record,
                size=late_ms,
            )

    @staticmethod
    def _is_another_key(period: Period, record: Record) -> bool:
        """Whether a record with the begin of the one before it is another call: by key, each call has one key."""
        last = period.last_handled
        return last is not None and record.get("ordering") == "key" and record.get("key") != last.get("key")

    @staticmethod
    def _runs_beside(period: Period, record: Record, begin: int) -> bool:
        if record.get("ordering", "queue") == "queue":
            return begin < period.last_end_ns
        return period.scopes.runs_beside(record, record["offset"], begin)

    def _two_at_once(self, period: Period, record: Record, begin: int) -> None:
        self._findings.violation(
            Kind.CONCURRENT_CALLS,
            f"{name_of(record)} began offset {record['offset']} of {self._queue} while another call of it ran",
            period.last_handled,
            record,
            size=(period.last_end_ns - begin) / 1e6,
        )

    def _overlaps(self, period: Period, record: Record, begin: int) -> bool:
        """Report overlapping calls of other owners. Calls arrive by their end, so only the newest ones matter."""
        clock, found = period.clock, False
        calls = self._newest_calls
        for other_clock, (newest, other) in calls.items():
            one = newest if newest is not None and not same_period(newest, record) else other
            if one is None:
                continue
            if other_clock == clock:
                least = one["mono_ns"] - begin if "mono_ns" in one else 0
            else:
                least = self._clocks.gap_ns(clock, begin, other_clock, stamp_ns(one))[0]
            late = int(least) if least > 0 and self._meet(one, other_clock, record, clock) else 0
            if late > 0 and not _outlived(one, record):
                found = True
                self._overlap(one, record, late / 1e6, ordered=other_clock == clock)
        newest, other = calls.get(clock, (None, None))
        if newest is not None and not same_period(newest, record):
            other = newest
        calls[clock] = (record, other)
        return found

    def _meet(self, one: Record, one_clock: int, record: Record, clock: int) -> bool:
        """Whether the call `one` surely began before the call `record` ended."""
        begin = one.get("begin_mono_ns", stamp_ns(one))
        return self._clocks.gap_ns(one_clock, begin, clock, stamp_ns(record))[0] > 0

    def _overlap(self, one: Record, record: Record, late_ms: float, *, ordered: bool) -> None:
        first, second = one, record
        for call in (one, record):
            self.overlaps[call["client_id"], call.get("period", 0)] += 1
        if ordered:
            first, second = sorted((one, record), key=lambda call: call.get("begin_mono_ns", call.get("mono_ns", 0)))
        self._findings.violation(
            Kind.OVERLAP,
            f"{name_of(first)} was still handling offset {first['offset']} of {self._queue} "
            f"when {name_of(second)} began offset {second['offset']}",
            first,
            second,
            size=late_ms,
        )

    def _check_stale(self, period: Period, record: Record, begin: int) -> None:
        """Report a call that began after its period was dropped, lost or replaced.

        A call that begins in the nanosecond of the drop may have begun before it: no record is written at its begin.
        """
        end = period.ended_record
        if end is not None and begin > stamp_ns(end):
            word = "lost" if end["event"] == "lock_lost" else "dropped"
            self._stale(period, record, (begin - stamp_ns(end)) / 1e6, f"after its period was {word}", end)
            return
        after = self._successor(period)
        if after is None or after.grant is None or self._under_newer_epoch(record):
            return
        least, _ = self._gap(after, stamp_ns(after.grant), period, begin)
        if least > 0 and self._comes_later(after, period):
            text = f"after {name_of(after.grant)} was granted the queue"
            self._stale(period, record, least / 1e6, text, after.grant)

    def _stale(self, period: Period, record: Record, late_ms: float, when: str, proof: Record) -> None:
        period.blamed = True
        self._findings.violation(
            Kind.STALE_OWNER,
            f"{name_of(record)} began offset {record['offset']} of {self._queue} at least {late_ms:.3f} ms {when}",
            proof,
            record,
            size=late_ms,
        )

    # Epochs --------------------------------------------------------------------------------------------------

    def epoch(self, record: Record, clock: int) -> None:
        """Report a record of an epoch that came after a later epoch was seen."""
        number = _epoch_of(record["epoch"])
        if number is None or record["event"] not in _UNDER_EPOCH:
            return
        if self._epoch is None or number > self._epoch[0]:
            self._epoch = (number, record, clock)
            return
        highest, later, later_clock = self._epoch
        if number == highest:
            self._one_epoch(later, record)
            return
        when = record.get("begin_mono_ns", stamp_ns(record))
        least, most = self._clocks.gap_ns(later_clock, stamp_ns(later), clock, when)
        if most <= 0 or (least <= 0 and number in self._doubted_epochs):
            return
        confidence = Confidence.CERTAIN
        if least <= 0:
            confidence = Confidence.UNDECIDED
            self._doubted_epochs.add(number)
        self._findings.violation(
            Kind.STALE_EPOCH,
            f"{record['event']} of offset {record.get('offset', '-')} of {self._queue} under epoch {record['epoch']} "
            f"came {_between(least, most)} after epoch {later['epoch']} was seen",
            later,
            record,
            confidence=confidence,
            size=highest - number,
        )

    def _one_epoch(self, one: Record, other: Record) -> None:
        """Report an epoch that two clients were granted, once."""
        names = one.get("client_id"), other.get("client_id")
        if None in names or names[0] == names[1] or other["epoch"] in self._shared_epochs:
            return
        self._shared_epochs.add(other["epoch"])
        self._findings.violation(
            Kind.TWO_GRANTS,
            f"{name_of(one)} and {name_of(other)} were granted {self._queue} under one epoch, {other['epoch']}",
            one,
            other,
        )

    def _under_newer_epoch(self, record: Record) -> bool:
        """Whether no later epoch than the record's was seen. Then a later grant proves nothing against the record."""
        number = _epoch_of(record.get("epoch"))
        return number is not None and self._epoch is not None and number >= self._epoch[0]

    # The end -------------------------------------------------------------------------------------------------

    def finish(self, periods: list[Period], granted: Callable[[str], int | None], *, knows_grants: bool) -> None:
        """Report the findings that need the whole history.

        Args:
            periods: All periods of the queue.
            granted: Returns the lowest period number that a client was granted in any queue.
            knows_grants: Whether the group's traces have any record of a grant.
        """
        for period, record in self._ungranted if knows_grants else ():
            lowest = granted(period.client_id)
            surely = period.position is period.grant or (lowest is not None and lowest < period.number)
            text = "" if surely else "; the trace may begin in the middle of it"
            self._findings.violation(
                Kind.NO_GRANT,
                f"{name_of(record)} handled offset {record['offset']} of {self._queue} without a grant{text}",
                record,
                confidence=Confidence.CERTAIN if surely else Confidence.UNDECIDED,
            )
        if len(self._clocks) > 1:
            for period in periods:
                self._doubt_handover(period)

    def _doubt_handover(self, period: Period) -> None:
        """Report a handover between two clocks as UNDECIDED if a call may have been too late."""
        after, last = self._successor(period), period.last_call
        if after is None or period.blamed or after.blamed or after.clock == period.clock:
            return
        if last is None:
            self._doubt_grants(period, after)
            return
        start = after.position or after.grant
        if start is None or self._under_newer_epoch(last):
            return
        least, most = self._gap(after, stamp_ns(start), period, period.last_begin_ns)
        kind, when, proof = Kind.STALE_OWNER, "began", start
        if most <= 0:
            call = after.first_call
            if call is not None and "begin_mono_ns" in call:
                kind, when, proof = Kind.OVERLAP, "ended", call
                least, most = self._gap(after, call["begin_mono_ns"], period, period.last_end_ns)
            if most <= 0:
                self._doubt_causes(period, after, last, start)
                return
        if most > 0 and not (kind is Kind.OVERLAP and _outlived(last, proof)):
            self._findings.violation(
                kind,
                f"the last call of {name_of(last)}, offset {last['offset']} of {self._queue}, {when} "
                f"{_between(least, most)} after {name_of(proof)} took over",
                last,
                proof,
                confidence=Confidence.UNDECIDED,
                size=most / 1e6,
            )

    def _doubt_causes(self, period: Period, after: Period, last: Record, start: Record) -> None:
        """Report a handover as UNDECIDED if causes alone exclude two owners at once, and wall clocks show them.

        A cause is an offset that one owner committed and the next one read. That the first one had released the queue
        by then is what is to be judged.
        """
        if self._clocks.is_later_boot(after.clock, period.clock):
            return
        call, kind, when, proof = after.first_call, Kind.STALE_OWNER, "began", start
        late_ms = last.get("begin_wall_ms", last["wall_ms"]) - start["wall_ms"]
        if late_ms <= 0 and call is not None and "begin_wall_ms" in call:
            kind, when, proof = Kind.OVERLAP, "ended", call
            late_ms = last["wall_ms"] - call["begin_wall_ms"]
        if late_ms > 0 and not (kind is Kind.OVERLAP and _outlived(last, proof)):
            self._findings.violation(
                kind,
                f"by the wall clocks, the last call of {name_of(last)}, offset {last['offset']} of {self._queue}, "
                f"{when} {late_ms} ms after {name_of(proof)} took over; only offsets that one owner committed and "
                "another one read say that it did not",
                last,
                proof,
                confidence=Confidence.UNDECIDED,
                size=late_ms,
            )

    def _doubt_grants(self, period: Period, after: Period) -> None:
        """Report an owner without a call as UNDECIDED if it may have been granted the queue beside a working one."""
        if period.ended or period.grant is None or after.last_call is None or after.grant is None:
            return
        least, most = self._gap(after, stamp_ns(after.grant), period, stamp_ns(period.grant))
        if most > 0:
            self._findings.violation(
                Kind.TWO_GRANTS,
                f"{name_of(period.grant)} was granted {self._queue} {_between(least, most)} after "
                f"{name_of(after.grant)}, which worked on",
                after.grant,
                period.grant,
                confidence=Confidence.UNDECIDED,
                size=most / 1e6,
            )

    def is_replaced(self, period: Period, record: Record) -> bool:
        """Whether the record surely came after the next period was granted."""
        after = self._successor(period)
        if after is None or after.grant is None:
            return period.next is None
        return self._gap(after, stamp_ns(after.grant), period, stamp_ns(record))[0] > 0 and self._comes_later(
            after, period
        )

    def _successor(self, period: Period) -> Period | None:
        """The next period. One that ended without a call, and may have been granted earlier, is passed over."""
        after = period.next
        while after is not None and after.ended and after.first_call is None and not self._comes_later(after, period):
            after = after.next
        return after

    def _comes_later(self, after: Period, period: Period) -> bool:
        """Whether a period was surely granted after another one.

        The merge only guesses that between two clocks, and between two clients in one nanosecond.
        """
        if after.grant is None or period.grant is None:
            return True
        if after.clock == period.clock and after.client_id == period.client_id:
            return True
        return self._gap(period, stamp_ns(period.grant), after, stamp_ns(after.grant))[0] > 0

    def _gap(self, one: Period, one_ns: int, other: Period, other_ns: int) -> tuple[float, float]:
        return self._clocks.gap_ns(one.clock, one_ns, other.clock, other_ns)


def same_period(one: Record, other: Record) -> bool:
    """Whether two records of a queue belong to the same ownership period."""
    return bool(one["client_id"] == other["client_id"] and one.get("period", 0) == other.get("period", 0))


def _outlived(one: Record, other: Record) -> bool:
    """Whether one call ran on beyond its lease while the other had a later epoch: the fence refuses its effects."""
    first, second = sorted((one, other), key=lambda record: _epoch_of(record.get("epoch")) or 0)
    return "outlived_ms" in first and (_epoch_of(first.get("epoch")) or 0) < (_epoch_of(second.get("epoch")) or 0)


def _between(least: float, most: float) -> str:
    if least == most:
        return f"{least / 1e6:.3f} ms"
    return f"between {least / 1e6:.1f} and {most / 1e6:.1f} ms"


def _epoch_of(value: Any) -> int | None:
    """An epoch as a number that grows with it; None for a value that is no epoch."""
    try:
        return parse_epoch(value)
    except ValueError:
        return None
