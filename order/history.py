"""The history of one queue in one consumer group and one store: the rules of order.py, applied record by record."""

from collections import defaultdict

from lockstep.order.offset_set import OffsetSet
from lockstep.order.period import Period, StoredCommits
from lockstep.order.reader import Record
from lockstep.order.report import Cause, Findings, Handover, Kind
from lockstep.protocol.model import MessageQueue

__all__ = ["QueueHistory", "Shared"]

FAILED = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER")


class Shared:
    """What the histories of one check have in common: the findings, who was seen alive when, and the ids seen."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.last_seen_ns: dict[str, int] = {}
        self.message_ids: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # by group and topic


class QueueHistory:
    """What one group did with one queue. Records come in time order; memory grows with keys, not with messages."""

    def __init__(self, group: str, queue: MessageQueue, shared: Shared) -> None:
        self.group = group
        self.queue = queue
        self.attempted = OffsetSet()  # a listener was called
        self.done = OffsetSet()  # and did not fail, or the message went to the dead-letter topic
        self.skipped = OffsetSet()  # passed over by a reset
        self.last_of_key: dict[str | None, Record] = {}
        self.start = -1  # the lowest first position of any period
        self._findings = shared.findings
        self._last_seen_ns = shared.last_seen_ns
        self._message_ids = shared.message_ids[group, queue.topic]
        self._periods: dict[tuple[str, int], Period] = {}
        self._newest: Period | None = None  # the latest born
        self._owner: Period | None = None  # the latest that was positioned
        self._commits = StoredCommits()
        self._last_commit: Record | None = None  # or the reset or position that took its place
        self._highest_commit: Record | None = None
        self._reset = False  # since the last period was positioned
        # By host: the newest call, and the newest of any other owner than that one's.
        self._newest_calls: dict[str, tuple[Record | None, Record | None]] = {}

    def acquired(self, record: Record, time_ns: int) -> None:
        """A lock was granted: a period is born."""
        self._period(record, time_ns)

    def positioned(self, record: Record, time_ns: int) -> None:
        """A period stands at its first offset, as the broker answered it."""
        self._position(self._period(record, time_ns), record, time_ns)

    def ended(self, record: Record, time_ns: int) -> None:
        """A period was dropped: its owner knows that it is over."""
        self._period(record, time_ns).ended = True

    def touched(self, record: Record, time_ns: int) -> None:
        """A record that only shows that its owner lives, such as a lost lock that may be won back."""
        self._period(record, time_ns)

    def handled(self, record: Record, time_ns: int) -> None:
        """A listener returned. The rules (a), (b) and (c)."""
        period = self._period(record, time_ns)
        if period.next_offset < 0:
            self._position(period, record, time_ns)
        offset, ordering = record["offset"], record.get("ordering", "queue")
        if self.attempted.add(offset):
            if ordering != "none":
                self._check_key_order(record, offset)
            self._check_message_id(record)
        elif ordering == "queue":
            self._explain_repeat(period, record, offset)
        else:
            self._explain_lane_repeat(period, record, offset)
        if ordering != "none":
            self._check_overlap(record)
        failed = record["status"] in FAILED
        if not failed:
            self.done.add(offset)
        period.note_attempt(record, offset)
        if ordering != "queue":
            period.lanes.note(record, offset, failed)

    def taken_care_of(self, record: Record, time_ns: int) -> None:
        """The broker keeps the message in the group's dead-letter topic, or in its retry topic."""
        self.done.add(record["offset"])

    def committed(self, record: Record, time_ns: int) -> None:
        """An offset is about to be sent to the broker. Rule (d): it never goes back."""
        period = self._period(record, time_ns)
        offset = record["offset"]
        last = self._last_commit
        if last and offset < last["offset"]:
            stale = period is not self._owner or (last["event"] == "committed" and not _same_period(record, last))
            self._findings.violation(
                Kind.STALE_COMMIT if stale else Kind.COMMIT_REGRESS,
                f"{self._who(record)} moved the commit of {self.queue} back from {last['offset']} to {offset}",
                last,
                record,
            )
        self._last_commit = record
        if self._highest_commit is None or offset > self._highest_commit["offset"]:
            self._highest_commit = record
        self._commits.sent(record, time_ns)
        period.note_commit(offset)

    def stored(self, record: Record, time_ns: int) -> None:
        """The broker, or a client that awaited the answer, says that a commit was stored."""
        self._commits.stored(record)

    def reset(self, record: Record, time_ns: int) -> None:
        """The offset was moved on purpose, or by the broker's rule for illegal offsets."""
        offset = record["offset"]
        passed = self._last_commit["offset"] if self._last_commit else max(self.start, 0)
        self.skipped.add_range(passed, offset)
        self._commits.known(record)
        self._last_commit = record
        self._reset = True

    def lost_below_commit(self, exists: OffsetSet | None) -> OffsetSet:
        """Rule (d) at the end: what lies between the start and the highest commit, exists, and nobody handled.

        `exists` are the offsets known to have been sent; None where the history knows no producer: then every offset of
        that stretch exists, as a queue has no holes.
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
            what = f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"
            attempts = " but in attempts that failed" if self.attempted.touches(start, end) else ""
            self._findings.violation(
                Kind.LOST_WRITE,
                f"{highest['client_id']} committed {self.queue} up to {highest['offset']}, "
                f"but nobody handled {what}{attempts}",
                highest,
            )
        return lost

    def _period(self, record: Record, time_ns: int) -> Period:
        """The period of a record; one that was not seen before is born here."""
        name = (record["client_id"], record.get("period", 0))
        period = self._periods.get(name)
        if period is None:
            period = self._periods[name] = Period(*name, last_time_ns=time_ns)
            self._newest = period
        elif not period.ended:
            period.last_time_ns = time_ns
        return period

    def _position(self, period: Period, record: Record, time_ns: int) -> None:
        offset = record["offset"]
        self._commits.settle(self._last_seen_ns)
        period.floor, period.floor_record = self._commits.floor, self._commits.record
        period.begin(offset, self.attempted.end, Cause.RESET if self._reset else Cause.TAKEOVER)
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
                Handover(self.group, self.queue, previous.client_id, period.client_id, waited_ms)
            )

    def _check_key_order(self, record: Record, offset: int) -> None:
        key = record["key"]
        last = self.last_of_key.get(key)
        if last is not None and offset < last["offset"]:
            whose = f"of key {key!r}" if key is not None else "without a key"
            self._findings.violation(
                Kind.NONMONOTONIC_POLL,
                f"{self._who(record)} first handled offset {offset} {whose} of {self.queue} "
                f"after offset {last['offset']}",
                last,
                record,
            )
        else:
            self.last_of_key[key] = record

    def _check_message_id(self, record: Record) -> None:
        """Two offsets with one id are one message that its producer sent twice."""
        message_id = record.get("msg_id")
        if message_id is None:
            return
        digest = hash(message_id)  # half the memory of the id itself, and only equality is asked
        if digest in self._message_ids:
            self._findings.duplicates[Cause.PRODUCER_RETRY] += 1
        else:
            self._message_ids.add(digest)

    def _explain_repeat(self, period: Period, record: Record, offset: int) -> None:
        """Rule (b): a repeat has a cause, or it is a violation."""
        kind: Kind | None = None
        evidence, sentence = period.last_handled, ""
        expected = period.next_offset
        if not period.started and offset < period.floor:
            kind, evidence = Kind.REWIND_BELOW_COMMIT, period.floor_record
            self._again(period, period.known_before, Cause.UNEXPLAINED)
            sentence = f"began at offset {offset}, below the stored commit {period.floor}"
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
        elif period is not self._newest and offset >= max(period.known_before, period.again_until):
            kind = Kind.STALE_REPEAT
            evidence = self.last_of_key.get(record["key"])
            self._again(period, self.attempted.end, Cause.UNEXPLAINED)
            sentence = f"repeated offset {offset} although its ownership was over"
        if kind:
            self._findings.violation(kind, f"{self._who(record)} {sentence}, in {self.queue}", evidence, record)
        self._findings.duplicates[period.repeat_cause(offset) if kind is not Kind.POLL_SKIP else Cause.UNEXPLAINED] += 1

    def _explain_lane_repeat(self, period: Period, record: Record, offset: int) -> None:
        """Rule (b) where a key, or a message, is repeated for itself: see lanes.py."""
        if period.lanes.is_second_attempt(record, offset):
            self._findings.duplicates[Cause.SUSPEND] += 1
            return
        stands_at = period.lanes.stands_at(record, offset)
        kind, evidence, sentence = Kind.UNEXPLAINED_REPEAT, period.last_handled, ""
        if offset < period.floor:
            kind, evidence = Kind.REWIND_BELOW_COMMIT, period.floor_record
            sentence = f"began at offset {offset}, below the stored commit {period.floor}"
        elif offset < stands_at or offset >= period.known_before:
            sentence = f"went back from offset {max(stands_at, offset + 1)} to {offset} though no attempt had failed"
        if sentence:
            self._findings.violation(kind, f"{self._who(record)} {sentence}, in {self.queue}", evidence, record)
        self._findings.duplicates[Cause.UNEXPLAINED if sentence else period.cause] += 1

    @staticmethod
    def _again(period: Period, until: int, cause: Cause) -> None:
        period.again_until = until
        period.again_cause = cause

    def _check_overlap(self, record: Record) -> None:
        """Rule (c). Records arrive by the end of their calls: only the newest of another owner needs a look."""
        begin = record.get("begin_mono_ns")
        if begin is None:
            return
        host = record["host"]
        newest, other = self._newest_calls.get(host, (None, None))
        if newest is not None and not _same_period(newest, record):
            other = newest
        if other is not None and other["mono_ns"] > begin:
            first, second = sorted((other, record), key=lambda call: call.get("begin_mono_ns", call["mono_ns"]))
            self._findings.violation(
                Kind.OVERLAP,
                f"{self._who(first)} was still handling offset {first['offset']} of {self.queue} "
                f"when {self._who(second)} began offset {second['offset']}",
                first,
                second,
            )
        self._newest_calls[host] = (record, other)

    @staticmethod
    def _who(record: Record) -> str:
        return f"{record['client_id']} (period {record.get('period', 0)})"


def _same_period(one: Record, other: Record) -> bool:
    return bool(one["client_id"] == other["client_id"] and one.get("period", 0) == other.get("period", 0))
