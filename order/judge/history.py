"""The history of one queue in one consumer group and one store, record by record.

A history needs the records of its queue in time order, and the facts of the survey (survey.py). Memory grows with keys
and ownership periods, not with messages: sets of offsets are kept as runs.
"""

from collections import Counter
from functools import partial

from lockstep.order.judge.across import FirstHandled, QueueSeen
from lockstep.order.judge.commits import CommitRules, UnlessReset
from lockstep.order.judge.ownership import Ownership, name_of, same_period
from lockstep.order.judge.period import Period, StoredCommits, stamp_ns
from lockstep.order.judge.rewinds import Rewinds
from lockstep.order.judge.sent import SentQueue, digest
from lockstep.order.judge.sequence import came_after
from lockstep.order.judge.survey import Facts
from lockstep.order.kinds import Cause, Confidence, Kind
from lockstep.order.offset_set import OffsetSet
from lockstep.order.report import Findings, Handover
from lockstep.order.traces.reader import Record

__all__ = ["FAILED", "QueueHistory"]

FAILED = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER")


class QueueHistory:
    """Judges the records of one group and one queue, in time order."""

    def __init__(
        self, seen: QueueSeen, sent: SentQueue, facts: Facts, findings: Findings, first_handled: FirstHandled
    ) -> None:
        """`first_handled` is called with each message that is handled for the first time (across.py)."""
        self.group = seen.group
        self.queue = seen.queue
        self.findings = findings
        self.attempted = OffsetSet()  # the listener was called
        self.done = OffsetSet()  # the listener succeeded, or the message went to the dead-letter topic
        self.skipped = OffsetSet()  # skipped by a reset
        self._passed_over = OffsetSet()  # skipped by any reset, or before the first position
        self.last_of_key: dict[str | None, Record] = {}
        self.start = -1  # the lowest first offset of all periods
        self.periods: dict[tuple[str, int], Period] = {}
        self._facts = facts
        self._is_unordered = seen.group in facts.unordered
        self._seen = seen
        self._sent = sent
        self._first_handled = first_handled
        self._ownership = Ownership(seen.name, findings, facts.clocks)
        self._newest: Period | None = None  # the period that was granted last
        self._owner: Period | None = None  # the period that was positioned last
        self._commits = StoredCommits()
        self._last_commit: Record | None = None  # or a later reset or position
        self._last_commit_clock = 0
        self._unless_reset = UnlessReset(facts.clocks, findings)
        self._rule_d = CommitRules(seen.name, findings, self.attempted, self.done, self.skipped, self._unless_reset)
        self._rewinds = Rewinds(seen.group, seen.queue, findings, facts.clocks, facts.members)
        self._reset = False  # there was a reset after the last period was positioned
        self._crash: tuple[Record, int] | None = None  # a broker's last `reset` after a crash, and its clock

    def acquired(self, record: Record, time_ns: int, clock: int) -> None:
        """Take an `acquired` record: a lock was granted and a period begins."""
        period = self._period(record, time_ns, clock)
        period.granted = True

    def positioned(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `positioned` record: the broker answered the first offset of a period."""
        period = self._period(record, time_ns, clock)
        self._position(period, record, time_ns)
        if not self._is_unordered:
            self._ownership.positioned(period, record)
        elif period.position is None:
            period.position = record

    def ended(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `dropped` record: the owner ended its period."""
        period = self._period(record, time_ns, clock)
        period.ended = True
        if period.ended_record is None:
            period.ended_record = record

    def lost(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `lock_lost` record: the owner is alive, but must begin no further call in this period."""
        period = self._period(record, time_ns, clock)
        if period.ended_record is None:
            period.ended_record = record

    def handled(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `handled` record: the listener returned. Checks the rules (a), (b) and (c)."""
        period = self._period(record, time_ns, clock)
        if period.next_offset < 0:
            self._position(period, record, time_ns)
        offset, ordering = record["offset"], record.get("ordering") or "queue"
        begin, stale, failed = record.get("begin_mono_ns"), False, record["status"] in FAILED
        # The first time the listener saw the offset. Any later time is a repeat, which needs a cause: rule (b).
        if self.attempted.add(offset):
            self._take_first(period, record, offset, ordering)
        else:
            self._sent.repeated(self.group, record, offset)
            if ordering == "queue":
                stale = self._explain_repeat(period, record, offset)
            else:
                self._explain_repeat_in_scope(period, record, offset, ordering)
        if ordering == "none":
            if not failed:
                period.own_done.add(offset)
            if begin is not None:
                self._ownership.call_times(record, begin)
        elif begin is not None:
            self._ownership.call(period, record, begin, repeated_stale=stale)
        if not failed:
            self.done.add(offset)
        period.note_attempt(record, offset)
        if ordering != "queue":
            period.scopes.note(record, offset, failed)

    def taken_care_of(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `dead_lettered` or `sent_back` record: the broker stored the message in a topic of the group."""
        self.done.add(record["offset"])
        if "epoch" in record:
            self._ownership.epoch(record, clock)

    def committed(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `committed` record. Rule (d): a commit neither goes back nor passes unhandled messages."""
        period = self._period(record, time_ns, clock)
        offset = record["offset"]
        last = self._last_commit
        # After a crash of the broker a lower commit may be the right one: the crash undid the higher ones.
        if last is not None and offset < last["offset"] and not self._may_be_lost(record, clock):
            self._went_back(period, record, last, clock)
        self._last_commit, self._last_commit_clock = record, clock
        if not self._may_be_lost(record, clock):
            self._commits.sent(record, time_ns, clock)
        # First the rules about the last commit, then this one: it is the last one for the next record.
        period.note_commit(offset)
        self._rule_d.committed(record, period.start)

    def _went_back(self, period: Period, record: Record, last: Record, clock: int) -> None:
        same = last["event"] == "committed" and same_period(record, last)
        # Either the owner went back itself, or a former owner committed late.
        stale = period is not self._owner or (last["event"] == "committed" and not same)
        if stale and self._is_unordered:
            # A concurrent group uses no locks: a queue may have two owners for a moment.
            return
        kind = Kind.STALE_COMMIT if stale else Kind.COMMIT_REGRESS
        sure = came_after(self._facts.clocks, last, self._last_commit_clock, record, clock)
        if sure is not None:
            text = (
                f"{name_of(record)} moved the commit of {self.queue} back from {last['offset']} to {record['offset']}"
            )
            size = last["offset"] - record["offset"]
            finding = partial(self.findings.violation, kind, text, last, record, confidence=sure, size=size)
            self._unless_reset.report(record, clock, finding)

    def stored(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `stored` record: the broker, or a client with the broker's answer, reports a stored commit."""
        is_sure = not self._may_be_lost(record, clock)
        self._rule_d.stored(record, clock, is_judged=is_sure and not self._is_unordered)
        if is_sure:
            self._commits.stored(record, clock)
        if "epoch" in record:
            self._ownership.epoch(record, clock)

    def reset(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `reset` record: a user moved the offset, or the broker corrected an illegal one."""
        offset = record["offset"]
        passed = self._last_commit["offset"] if self._last_commit else max(self.start, 0)
        # What an earlier reset skipped is consumed after all.
        self.skipped.cut(offset)
        if "client_id" in record:
            self.skipped.add_range(passed, offset)
            self._passed_over.add_range(passed, offset)
        else:
            # Nothing is skipped: it says which commits are left.
            self._crash = (record, clock)
        self._rule_d.reset(record, clock, passed)
        self._unless_reset.reset(record, clock)
        self._commits.known(record, clock)
        self._last_commit, self._last_commit_clock = record, clock
        self._reset = True

    @property
    def highest_commit(self) -> int:
        """The highest commit or stored offset; 0 without one."""
        return self._rule_d.highest

    @property
    def overlaps(self) -> Counter[tuple[str, int]]:
        """The overlaps by client and period: each counts for both periods."""
        return self._ownership.overlaps

    @property
    def outlived_count(self) -> int:
        """Calls that ran on beyond the lease of their fenced lock."""
        return self._ownership.outlived_count

    def lost_below_commit(self, exists: OffsetSet | None) -> OffsetSet:
        """Rule (d): report and return the offsets between the start and the highest commit that were not handled."""
        return self._rule_d.lost(self.start, exists)

    def finish(self, end: int | None) -> None:
        """Report the findings that need the whole history. Call it after `lost_below_commit`.

        Args:
            end: The end of the queue by the traces of producers; None if there is no such trace.
        """
        self._rule_d.finish(self.start, end)
        self._rewinds.finish(self._facts.activity)
        self._unless_reset.finish()
        if not self._is_unordered:
            granted = self._facts.grants.get(self.group, {})
            self._ownership.finish(list(self.periods.values()), granted.get, knows_grants=bool(granted))

    def _may_be_lost(self, record: Record, clock: int) -> bool:
        """Whether a commit may have come before the last crash of the broker, and the crash may have undone it."""
        if self._crash is None:
            return False
        crash, crash_clock = self._crash
        return self._facts.clocks.gap_ns(clock, stamp_ns(record), crash_clock, stamp_ns(crash))[1] >= 0

    def _period(self, record: Record, time_ns: int, clock: int) -> Period:
        """The period of a record; a new one is created."""
        name = (record["client_id"], record.get("period", 0))
        period = self.periods.get(name)
        if period is None:
            period = self.periods[name] = Period(*name, last_time_ns=time_ns, born_ns=time_ns, clock=clock)
            self._ownership.began(period, record, self._newest)
            self._newest = period
        elif not period.ended:
            period.last_time_ns = time_ns
        period.until_ns = time_ns
        if "epoch" in record:
            self._ownership.epoch(record, clock)
        return period

    def _position(self, period: Period, record: Record, time_ns: int) -> None:
        offset = record["offset"]
        self._commits.settle(self._facts.activity, time_ns)
        commits = self._commits
        period.floor, period.floor_record, period.floor_clock = commits.floor, commits.record, commits.clock
        period.may_have_missed = self._commits.may_stand_at(offset)
        period.begin(offset, self.attempted.end, Cause.RESET if self._reset else Cause.TAKEOVER)
        period.resets_before = self._unless_reset.count
        if record["event"] == "positioned":
            self._commits.known(record, period.clock)
            self._last_commit, self._last_commit_clock = record, period.clock
        self._reset = False
        if self.start < 0 or offset < self.start:
            self._passed_over.add_range(offset, self.start)
            self.start = offset
        previous, self._owner = self._owner, period
        # A handover lasts from the last sign of the old owner to the first offset of the new one.
        if previous is not None and previous.client_id != period.client_id:
            alive = previous.last_time_ns
            if not previous.ended:
                alive = max(alive, self._facts.activity.seen_ns(previous.client_id, time_ns))
            waited_ms = max(0, time_ns - alive) / 1e6
            self.findings.handovers.append(
                Handover(self.group, self.queue, previous.client_id, period.client_id, waited_ms, time_ns)
            )

    def _take_first(self, period: Period, record: Record, offset: int, ordering: str) -> None:
        last = self.last_of_key.get(key := record.get("key"))
        if ordering != "none":
            self._check_key_order(period, record, offset, key, last)
        self._seen.last_new_wall_ms = record["wall_ms"]
        msg_id = record.get("msg_id")
        if msg_id is not None:
            self._sent.handled(self.group, record, offset, digest(msg_id))
        if msg_id is not None or key is not None:
            self._first_handled(record, offset, ordering, last if key is not None else None)

    def _check_key_order(
        self, period: Period, record: Record, offset: int, key: str | None, last: Record | None
    ) -> None:
        if last is None or offset >= last["offset"]:
            self.last_of_key[key] = record
            return
        begin = record.get("begin_mono_ns")
        was_reset = period.resets_before < self._unless_reset.count
        if begin is not None and was_reset and begin <= last.get("begin_mono_ns", -1):
            # The call was running when the offset was reset.
            return
        if period.cause is Cause.RESET and offset in self._passed_over and not same_period(last, record):
            # An earlier reset had skipped it, and a later one went back.
            return
        sure = came_after(self._facts.clocks, last, self._clock_of(last), record, period.clock)
        if sure is not None:
            whose = f"of key {key!r}" if key is not None else "without a key"
            self.findings.violation(
                Kind.NONMONOTONIC_POLL,
                f"{name_of(record)} first handled offset {offset} {whose} of {self.queue} "
                f"after offset {last['offset']}",
                last,
                record,
                confidence=sure,
                size=last["offset"] - offset,
            )

    def _clock_of(self, record: Record) -> int:
        return self.periods[record["client_id"], record.get("period", 0)].clock

    def _explain_repeat(self, period: Period, record: Record, offset: int) -> bool:
        """Rule (b): count the cause of a repeat, or report it. Returns whether a STALE_REPEAT covers this offset."""
        kind: Kind | None = None
        evidence, sentence, sure = period.last_handled, "", Confidence.CERTAIN
        expected = period.next_offset
        if not period.started and offset < period.floor:
            kind, evidence = Kind.REWIND_BELOW_COMMIT, period.floor_record
            sure, sentence = self._rewinds.judge(period, self.periods, record)
            self._again(
                period,
                period.known_before,
                Cause.UNEXPLAINED if sentence and sure is Confidence.CERTAIN else period.cause,
            )
            kind = kind if sure is Confidence.CERTAIN else None
        elif offset < expected:
            if 0 <= period.may_rewind_to <= offset:
                self._again(period, expected, Cause.SUSPEND)
            else:
                kind = Kind.UNEXPLAINED_REPEAT
                self._again(period, expected, Cause.UNEXPLAINED)
                sentence = f"went back from offset {expected} to {offset} though no attempt had failed"
        elif offset > expected and self.attempted.touches(expected, offset):
            kind = Kind.POLL_SKIP
            sentence = f"repeated offset {offset} but left out some from {expected} on"
        elif period is not self._newest and "outlived_ms" in record and "epoch" in record:
            self._again(period, offset + 1, Cause.TAKEOVER)  # the fence refuses its commit
        elif (
            period is not self._newest
            and offset >= max(period.known_before, period.again_until)
            and self._ownership.is_replaced(period, record)
        ):
            kind = Kind.STALE_REPEAT
            evidence = self.last_of_key.get(record.get("key"))
            self._again(period, self.attempted.end, Cause.UNEXPLAINED)
            sentence = f"repeated offset {offset} although its ownership was over"
        if kind:
            size = abs(expected - offset)
            text = f"{name_of(record)} {sentence}, in {self.queue}"
            self._report(period, kind, text, evidence, record, sure, size)
        self.findings.duplicates[period.repeat_cause(offset) if kind is not Kind.POLL_SKIP else Cause.UNEXPLAINED] += 1
        if kind is Kind.STALE_REPEAT:
            period.stale_until = period.again_until
        return offset < period.stale_until

    def _report(
        self,
        period: Period,
        kind: Kind,
        text: str,
        evidence: Record | None,
        record: Record,
        sure: Confidence,
        size: int,
    ) -> None:
        finding = partial(self.findings.violation, kind, text, evidence, record, confidence=sure, size=size)
        if kind is Kind.REWIND_BELOW_COMMIT and period.position is not None:
            self._unless_reset.report(period.position, period.clock, finding, period.resets_before)
        else:
            finding()

    def _explain_repeat_in_scope(self, period: Period, record: Record, offset: int, ordering: str) -> None:
        """Rule (b) for calls that keep the order of a key only, or no order: see repeats.py."""
        if period.scopes.is_second_attempt(record, offset):
            self.findings.duplicates[Cause.SUSPEND] += 1
            return
        stands_at = period.scopes.stands_at(record, offset)
        kind, evidence, sentence, sure = Kind.UNEXPLAINED_REPEAT, period.last_handled, "", Confidence.CERTAIN
        if offset < period.floor:
            kind, evidence = Kind.REWIND_BELOW_COMMIT, period.floor_record
            sure, sentence = Confidence.UNDECIDED, ""
            if not period.rewind_is_reported:
                sure, sentence = self._rewinds.judge(period, self.periods, record)
                period.rewind_is_reported = sure is Confidence.UNDECIDED
        elif offset in period.own_done if ordering == "none" else offset < stands_at:
            sentence = f"went back from offset {max(stands_at, offset + 1)} to {offset} though no attempt had failed"
        if sentence:
            text = f"{name_of(record)} {sentence}, in {self.queue}"
            self._report(period, kind, text, evidence, record, sure, max(stands_at - offset, 1))
        unexplained = sentence and sure is not Confidence.UNDECIDED
        self.findings.duplicates[Cause.UNEXPLAINED if unexplained else period.cause] += 1

    @staticmethod
    def _again(period: Period, until: int, cause: Cause) -> None:
        period.again_until = until
        period.again_cause = cause
