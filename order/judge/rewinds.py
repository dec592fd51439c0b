"""Judges a new period that begins below the last commit: a wrong rewind, or commits that never reached the broker.

The commits of an owner behind a network partition do not arrive. When its lock expires, the next owner begins at an
older commit. Without `stored` records this looks like a rewind. If the old owner stayed alive and lost the queue
without releasing it, there was a partition and no violation. If it died meanwhile, the rewind is UNDECIDED.
"""

from collections.abc import Mapping

from lockstep.order.judge.activity import Activity
from lockstep.order.judge.members import Members
from lockstep.order.judge.ownership import name_of
from lockstep.order.judge.period import GRACE_NS, Period, stamp_ns
from lockstep.order.kinds import Confidence, Kind
from lockstep.order.report import Findings
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record
from lockstep.protocol.model import MessageQueue

__all__ = ["Rewinds"]

_KEPT_MAX = 100
# The shortest time from an owner's last record to the end of its lock.
_CUT_OFF_NS = 5_000_000_000


class Rewinds:
    """Judges the rewinds of one queue in one group and one store."""

    def __init__(self, group: str, queue: MessageQueue, findings: Findings, clocks: Clocks, members: Members) -> None:
        self._group = group
        self._members = members
        self._queue = queue
        self._findings = findings
        self._clocks = clocks
        self._doubted: list[tuple[Period, Period, Record]] = []  # new period, period of the commit, repeated record
        self._open: list[tuple[Period, Record, str]] = []  # new period, repeated record, why it is undecided

    def judge(
        self, period: Period, periods: Mapping[tuple[str, int], Period], record: Record
    ) -> tuple[Confidence, str]:
        """Judge a repeat below the floor. Returns CERTAIN and a sentence, or UNDECIDED: then `finish` decides."""
        commit, grant = period.floor_record, period.grant
        if grant is not None and self._members.was_idle(self._group, grant, period.clock):
            why = "and an administrator may have moved it: no consumer of the group ran"
            return self._leave_open(period, record, why)
        start = period.position or grant
        if commit is not None and start is not None:
            least, _ = self._clocks.gap_ns(period.floor_clock, stamp_ns(commit), period.clock, stamp_ns(start))
            own = period.floor_clock == period.clock and commit.get("client_id") == period.client_id
            if least <= 0 and not own:
                return self._leave_open(period, record, f"which may be up to {-least / 1e6:.1f} ms younger")
        before = None if commit is None else periods.get((commit.get("client_id", ""), commit.get("period", 0)))
        sentence = f"began at offset {record['offset']}, below the stored commit {period.floor}"
        if before is None or grant is None or commit is None or not period.may_have_missed:
            return Confidence.CERTAIN, sentence
        if self._before(before, commit, period) < _CUT_OFF_NS or (
            before.ended
            and before.gave_up
            and before.ended_record
            and self._before(before, before.ended_record, period) <= GRACE_NS
        ):
            return Confidence.CERTAIN, sentence
        if len(self._doubted) < _KEPT_MAX:
            self._doubted.append((period, before, record))
        return Confidence.UNDECIDED, ""

    def finish(self, activity: Activity) -> None:
        """Report the undecided rewinds, except those that a partition surely explains."""
        for period, before, record in self._doubted:
            lived = activity.last_ns(before.client_id) > period.born_ns
            end = before.ended_record
            gave_up = end is not None and before.gave_up and self._before(before, end, period) > 0
            refused = end is not None and not before.gave_up
            if not lived or gave_up or (before.client_id == period.client_id and not refused):
                self._doubt(period, record, "which may never have reached the broker")
        for period, record, why in self._open:
            self._doubt(period, record, why)

    def _leave_open(self, period: Period, record: Record, why: str) -> tuple[Confidence, str]:
        if len(self._open) < _KEPT_MAX:
            self._open.append((period, record, why))
        return Confidence.UNDECIDED, ""

    def _doubt(self, period: Period, record: Record, why: str) -> None:
        self._findings.violation(
            Kind.REWIND_BELOW_COMMIT,
            f"{name_of(record)} began at offset {record['offset']} of {self._queue}, below the commit "
            f"{period.floor}, {why}",
            period.floor_record,
            record,
            confidence=Confidence.UNDECIDED,
            size=period.floor - period.start,
        )

    def _before(self, old: Period, record: Record, new: Period) -> float:
        """The least nanoseconds from a record of the old period to the grant of the new period; 0 without a grant."""
        grant = new.grant
        return self._clocks.gap_ns(old.clock, stamp_ns(record), new.clock, stamp_ns(grant))[0] if grant else 0
