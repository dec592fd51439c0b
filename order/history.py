"""The history of one queue in one consumer group and one store, record by record.

A history needs the records of its queue in time order, and the data that all histories have in common (`Shared`).
Memory grows with keys and ownership periods, not with messages: sets of offsets are kept as runs.
"""

from collections import defaultdict
from itertools import islice

from lockstep.order.across import Across, GroupTopic, QueueSeen
from lockstep.order.clocks import Clocks
from lockstep.order.kinds import Cause, Confidence, Kind
from lockstep.order.offset_set import OffsetSet
from lockstep.order.ownership import Ownership, name_of, same_period
from lockstep.order.period import Period, StoredCommits, stamp_ns
from lockstep.order.reader import Record
from lockstep.order.report import Findings, Handover
from lockstep.order.rewinds import Rewinds
from lockstep.protocol.model import MessageQueue

__all__ = ["QueueHistory", "Shared"]

FAILED = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER")
_EARLY_KEPT_MAX = 100


class Shared:
    """The data that all histories of one check share: findings, clocks, and when each client wrote its last record."""

    def __init__(self, clocks: Clocks) -> None:
        self.findings = Findings()
        self.clocks = clocks
        self.across = Across(self.findings)
        self.last_seen_ns: dict[str, int] = {}
        self.unordered: set[str] = set()  # groups with concurrent consumption
        self.grants: defaultdict[str, dict[str, int]] = defaultdict(dict)  # group, client id -> lowest granted period


class QueueHistory:
    """Judges the records of one group and one queue, in time order."""

    def __init__(self, group: str, queue: MessageQueue, shared: Shared, topic: GroupTopic, seen: QueueSeen) -> None:
        self.group = group
        self.queue = queue
        self.attempted = OffsetSet()  # the listener was called
        self.done = OffsetSet()  # the listener succeeded, or the message went to the dead-letter topic
        self.skipped = OffsetSet()  # skipped by a reset
        self.last_of_key: dict[str | None, Record] = {}
        self.start = -1  # the lowest first offset of all periods
        self._shared = shared
        self._findings = shared.findings
        self._last_seen_ns = shared.last_seen_ns
        self._topic = topic
        self._seen = seen
        self._ownership = Ownership(str(queue), shared.findings, shared.clocks)
        self._periods: dict[tuple[str, int], Period] = {}
        self._newest: Period | None = None  # the period that was granted last
        self._owner: Period | None = None  # the period that was positioned last
        self._commits = StoredCommits()
        self._last_commit: Record | None = None  # or a later reset or position
        self._last_stored: Record | None = None  # since the last reset; None: none
        self._highest_commit: Record | None = None
        self._rewinds = Rewinds(queue, shared.findings, shared.clocks)
        self._early: list[tuple[Record, int, int]] = []  # commits of unhandled messages: record, start, end
        self._reset = False  # there was a reset after the last period was positioned
        self._resets = 0
        self._doubt_until_ns = -1  # a broker crashed: until then commits may be lost

    def acquired(self, record: Record, time_ns: int, clock: int) -> None:
        """Take an `acquired` record: a lock was granted and a period begins."""
        period = self._period(record, time_ns, clock)
        period.granted = True
        lowest = self._shared.grants[self.group]
        client = period.client_id
        lowest[client] = min(period.number, lowest.get(client, period.number))

    def positioned(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `positioned` record: the broker answered the first offset of a period."""
        period = self._period(record, time_ns, clock)
        self._position(period, record, time_ns)
        if self.group not in self._shared.unordered:
            self._ownership.positioned(period, record)

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
        if self.attempted.add(offset):
            if ordering != "none":
                self._check_key_order(period, record, offset)
            self._shared.across.first_handled(self._topic, self._seen, record, offset, ordering)
        elif ordering == "queue":
            stale = self._explain_repeat(period, record, offset)
        else:
            self._explain_lane_repeat(period, record, offset, ordering)
        if ordering == "none":
            self._shared.unordered.add(self.group)
            if not failed:
                period.own_done.add(offset)
        elif begin is not None:
            self._ownership.call(period, record, begin, repeated_stale=stale)
        if not failed:
            self.done.add(offset)
        period.note_attempt(record, offset)
        if ordering != "queue":
            period.lanes.note(record, offset, failed)

    def taken_care_of(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `dead_lettered` or `sent_back` record: the broker stored the message in a topic of the group."""
        self.done.add(record["offset"])

    def committed(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `committed` record. Rule (d): a commit neither goes back nor passes unhandled messages."""
        period = self._period(record, time_ns, clock)
        offset = record["offset"]
        last = self._last_commit
        if last is not None and offset < last["offset"] and time_ns > self._doubt_until_ns:
            self._went_back(period, record, last)
        self._last_commit = record
        if self._highest_commit is None or offset > self._highest_commit["offset"]:
            self._highest_commit = record
        if time_ns > self._doubt_until_ns:
            self._commits.sent(record, time_ns)
        period.note_commit(offset)
        if 0 <= period.start < offset and offset > self.done.end:
            self._note_early(record, period.start, offset)

    def _went_back(self, period: Period, record: Record, last: Record) -> None:
        same = last["event"] == "committed" and same_period(record, last)
        stale = period is not self._owner or (last["event"] == "committed" and not same)
        if stale and self.group in self._shared.unordered:
            return  # a concurrent group uses no locks: a queue may have two owners for a moment
        kind, sure = (
            (Kind.STALE_COMMIT, self._came_after(last, record)) if stale else (Kind.COMMIT_REGRESS, Confidence.CERTAIN)
        )
        if sure is not None:
            self._findings.violation(
                kind,
                f"{name_of(record)} moved the commit of {self.queue} back from {last['offset']} to {record['offset']}",
                last,
                record,
                confidence=sure,
                size=last["offset"] - record["offset"],
            )

    def _note_early(self, record: Record, start: int, offset: int) -> None:
        """Keep a commit beyond the last handled message. It is wrong even if the messages are handled later."""
        start = max(start, self.done.end)
        gap = next(islice(self.skipped.missing(start, offset), 1), None)
        if gap is not None and len(self._early) < _EARLY_KEPT_MAX:
            self._early.append((record, *gap))

    def stored(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `stored` record: the broker, or a client with the broker's answer, reports a stored commit."""
        last = self._last_stored
        if last is not None and record["offset"] < last["offset"]:
            self._findings.violation(
                Kind.STORED_REGRESS,
                f"the stored offset of {self.queue} went back from {last['offset']} to {record['offset']}",
                last,
                record,
                size=last["offset"] - record["offset"],
            )
        self._last_stored = record
        self._commits.stored(record)
        if "epoch" in record:
            self._ownership.epoch(record, clock)

    def reset(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `reset` record: a user moved the offset, or the broker corrected an illegal one."""
        offset = record["offset"]
        self._resets += 1
        self._last_stored = None
        if "client_id" not in record and "mono_ns" not in record:
            self._doubt_until_ns = time_ns + 2 * self._shared.clocks.skew_ns
        passed = self._last_commit["offset"] if self._last_commit else max(self.start, 0)
        self.skipped.add_range(passed, offset)
        self._commits.known(record)
        self._last_commit = record
        self._reset = True

    def lost_below_commit(self, exists: OffsetSet | None) -> OffsetSet:
        """Rule (d): report and return the offsets between the start and the highest commit that were not handled.

        Only offsets in `exists` (those that were sent) count. None means that no producer trace is known: then every
        offset counts, because a queue has no holes.
        """
        highest = self._highest_commit
        lost = OffsetSet()
        if highest is None or self.start < 0:
            return lost
        lost.add_range(self.start, highest["offset"])
        lost = lost.minus(self.done, self.skipped)
        if exists is not None:
            lost = lost.minus(lost.minus(exists))
        for start, end in lost.runs():
            self._early = [one for one in self._early if not (one[1] < end and start < one[2])]
            what = f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"
            attempts = " but in attempts that failed" if self.attempted.touches(start, end) else ""
            self._findings.violation(
                Kind.LOST_WRITE,
                f"{highest['client_id']} committed {self.queue} up to {highest['offset']}, "
                f"but nobody handled {what}{attempts}",
                highest,
                size=end - start,
            )
        return lost

    def finish(self, end: int | None, *, knows_grants: bool) -> None:
        """Report the findings that need the whole history. Call it after `lost_below_commit`.

        Args:
            end: The end of the queue by the traces of producers; None if there is no such trace.
            knows_grants: Whether the group's traces have any record of a grant.
        """
        highest = self._highest_commit
        known_end = max(self.attempted.end, self.skipped.end, self.start, end or 0)
        if end is not None and highest is not None and highest["offset"] > known_end:
            self._findings.violation(
                Kind.COMMIT_BEYOND_END,
                f"{name_of(highest)} committed {self.queue} up to {highest['offset']}, and it ends at {known_end}",
                highest,
                size=highest["offset"] - known_end,
            )
        for record, start, stop in self._early:
            if self.attempted.touches(start, stop):
                self._findings.violation(
                    Kind.COMMIT_UNHANDLED,
                    f"{name_of(record)} committed {self.queue} up to {record['offset']} before {start} was handled",
                    record,
                    size=stop - start,
                )
        self._rewinds.finish(self._last_seen_ns)
        if self.group not in self._shared.unordered:
            granted = self._shared.grants[self.group].get
            self._ownership.finish(list(self._periods.values()), granted, knows_grants=knows_grants)

    def _period(self, record: Record, time_ns: int, clock: int) -> Period:
        """The period of a record; a new one is created."""
        name = (record["client_id"], record.get("period", 0))
        period = self._periods.get(name)
        if period is None:
            period = self._periods[name] = Period(*name, last_time_ns=time_ns, born_ns=time_ns, clock=clock)
            self._ownership.began(period, record, self._newest)
            self._newest = period
        elif not period.ended:
            period.last_time_ns = time_ns
        if "epoch" in record:
            self._ownership.epoch(record, clock)
        return period

    def _position(self, period: Period, record: Record, time_ns: int) -> None:
        offset = record["offset"]
        self._commits.settle(self._last_seen_ns)
        period.floor, period.floor_record = self._commits.floor, self._commits.record
        period.may_have_missed = self._commits.may_stand_at(offset)
        period.begin(offset, self.attempted.end, Cause.RESET if self._reset else Cause.TAKEOVER)
        period.resets_before = self._resets
        if record["event"] == "positioned":
            self._commits.known(record)
            self._last_commit = record
        self._reset = False
        if self.start < 0 or offset < self.start:
            self.start = offset
        previous, self._owner = self._owner, period
        if previous is not None and previous.client_id != period.client_id:
            alive = previous.last_time_ns
            if not previous.ended:
                alive = max(alive, self._last_seen_ns.get(previous.client_id, 0))
            waited_ms = max(0, time_ns - alive) / 1e6
            self._findings.handovers.append(
                Handover(self.group, self.queue, previous.client_id, period.client_id, waited_ms, time_ns)
            )

    def _check_key_order(self, period: Period, record: Record, offset: int) -> None:
        key = record.get("key")
        last = self.last_of_key.get(key)
        if last is None or offset >= last["offset"]:
            self.last_of_key[key] = record
            return
        begin = record.get("begin_mono_ns")
        if begin is not None and period.resets_before < self._resets and begin <= last.get("begin_mono_ns", -1):
            return  # the call was running when the offset was reset
        sure = Confidence.CERTAIN if same_period(last, record) else self._came_after(last, record)
        if sure is not None:
            whose = f"of key {key!r}" if key is not None else "without a key"
            self._findings.violation(
                Kind.NONMONOTONIC_POLL,
                f"{name_of(record)} first handled offset {offset} {whose} of {self.queue} "
                f"after offset {last['offset']}",
                last,
                record,
                confidence=sure,
                size=last["offset"] - offset,
            )

    def _came_after(self, last: Record, record: Record) -> Confidence | None:
        """The confidence that `record` came after `last`, which the merge put first. None: it came before."""
        one, other = self._clock_of(last), self._clock_of(record)
        if one == other:
            return Confidence.CERTAIN
        least, most = self._shared.clocks.gap_ns(one, stamp_ns(last), other, stamp_ns(record))
        if most < 0:
            return None
        return Confidence.CERTAIN if least >= 0 else Confidence.UNDECIDED

    def _clock_of(self, record: Record) -> int:
        period = self._periods.get((record.get("client_id", ""), record.get("period", 0)))
        return period.clock if period is not None else -1

    def _explain_repeat(self, period: Period, record: Record, offset: int) -> bool:
        """Rule (b): count the cause of a repeat, or report it. Returns whether a STALE_REPEAT covers this offset."""
        kind: Kind | None = None
        evidence, sentence, sure = period.last_handled, "", Confidence.CERTAIN
        expected = period.next_offset
        if not period.started and offset < period.floor:
            kind, evidence = Kind.REWIND_BELOW_COMMIT, period.floor_record
            sure, sentence = self._rewinds.judge(period, self._periods, record)
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
        elif (
            period is not self._newest
            and offset >= max(period.known_before, period.again_until)
            and self._is_replaced(period, record)
        ):
            kind = Kind.STALE_REPEAT
            evidence = self.last_of_key.get(record.get("key"))
            self._again(period, self.attempted.end, Cause.UNEXPLAINED)
            sentence = f"repeated offset {offset} although its ownership was over"
        if kind:
            size = abs(expected - offset)
            text = f"{name_of(record)} {sentence}, in {self.queue}"
            self._findings.violation(kind, text, evidence, record, confidence=sure, size=size)
        self._findings.duplicates[period.repeat_cause(offset) if kind is not Kind.POLL_SKIP else Cause.UNEXPLAINED] += 1
        if kind is Kind.STALE_REPEAT:
            period.stale_until = period.again_until
        return offset < period.stale_until

    def _is_replaced(self, period: Period, record: Record) -> bool:
        """Whether the record surely came after the next period was granted."""
        after = period.next
        if after is None or after.grant is None or after.clock == period.clock:
            return True
        return self._shared.clocks.gap_ns(after.clock, stamp_ns(after.grant), period.clock, stamp_ns(record))[0] > 0

    def _explain_lane_repeat(self, period: Period, record: Record, offset: int, ordering: str) -> None:
        """Rule (b) for calls that keep the order of a key only, or no order: see repeats.py."""
        if period.lanes.is_second_attempt(record, offset):
            self._findings.duplicates[Cause.SUSPEND] += 1
            return
        stands_at = period.lanes.stands_at(record, offset)
        kind, evidence, sentence, sure = Kind.UNEXPLAINED_REPEAT, period.last_handled, "", Confidence.CERTAIN
        if offset < period.floor:
            kind, evidence = Kind.REWIND_BELOW_COMMIT, period.floor_record
            sure, sentence = Confidence.UNDECIDED, ""
            if not period.rewound_told:
                sure, sentence = self._rewinds.judge(period, self._periods, record)
                period.rewound_told = sure is Confidence.UNDECIDED
        elif offset in period.own_done if ordering == "none" else offset < stands_at:
            sentence = f"went back from offset {max(stands_at, offset + 1)} to {offset} though no attempt had failed"
        if sentence:
            text = f"{name_of(record)} {sentence}, in {self.queue}"
            self._findings.violation(kind, text, evidence, record, confidence=sure, size=max(stands_at - offset, 1))
        unexplained = sentence and sure is not Confidence.UNDECIDED
        self._findings.duplicates[Cause.UNEXPLAINED if unexplained else period.cause] += 1

    @staticmethod
    def _again(period: Period, until: int, cause: Cause) -> None:
        period.again_until = until
        period.again_cause = cause
