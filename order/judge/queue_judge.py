"""The judge of one queue: all its consumer groups and all stores of its broker, in one pass over its records.

A `broker_restarted` record starts a new history of each queue of the broker. A send belongs to a store by its time, a
consumer's record to the store in which its ownership period began.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

from lockstep.order.judge.across import FirstHandled, QueueSeen
from lockstep.order.judge.deliveries import DeliveredHistory
from lockstep.order.judge.history import QueueHistory
from lockstep.order.judge.period import Period
from lockstep.order.judge.sent import SentQueue, UnsentMessages
from lockstep.order.judge.survey import Facts
from lockstep.order.offset_set import OffsetSet
from lockstep.order.report import Findings
from lockstep.order.traces.reader import Record
from lockstep.protocol.model import MessageQueue

__all__ = ["GroupResult", "Losses", "QueueJudge", "QueueResult"]

_NEVER_NS = 1 << 63
_ON_EVENT: dict[str, Callable[[QueueHistory, Record, int, int], None]] = {
    "acquired": QueueHistory.acquired,
    "positioned": QueueHistory.positioned,
    "handled": QueueHistory.handled,
    "committed": QueueHistory.committed,
    "stored": QueueHistory.stored,
    "reset": QueueHistory.reset,
    "lock_lost": QueueHistory.lost,
    "dropped": QueueHistory.ended,
    "dead_lettered": QueueHistory.taken_care_of,
    "sent_back": QueueHistory.taken_care_of,
}
_ON_DELIVERY: dict[str, Callable[[DeliveredHistory, Record, int, int], None]] = {
    "delivered": DeliveredHistory.delivered,
    "handled": DeliveredHistory.handled,
    "acked": DeliveredHistory.acked,
    "refused": DeliveredHistory.refused,
    "renewed": DeliveredHistory.renewed,
    "stored": DeliveredHistory.stored,
    "reset": DeliveredHistory.reset,
    "dead_lettered": DeliveredHistory.taken_care_of,
}


@dataclass(slots=True)
class Losses:
    """Counts of messages that were sent but not handled, by reason (see OrderReport)."""

    lost: int = 0
    before_start: int = 0
    skipped: int = 0
    emptied: int = 0

    def __iadd__(self, other: "Losses") -> Self:
        self.lost += other.lost
        self.before_start += other.before_start
        self.skipped += other.skipped
        self.emptied += other.emptied
        return self

    def weigh(self, sent: OffsetSet, history: QueueHistory | None, emptied: bool) -> None:
        """Add the messages of one queue in one store. `history` is None if the group never used the queue."""
        if history is None:
            if emptied:
                self.emptied += len(sent)
            else:
                self.lost += len(sent)
            return
        unhandled = sent.minus(history.done)
        open_ends = unhandled.minus(history.skipped)
        self.skipped += len(unhandled) - len(open_ends)
        early = OffsetSet()
        early.add_range(0, history.start)
        late = open_ends.minus(early)
        self.before_start += len(open_ends) - len(late)
        below_commit = history.lost_below_commit(sent)
        self.lost += len(below_commit)
        rest = len(late.minus(below_commit))
        if emptied:
            self.emptied += rest
        else:
            self.lost += rest


@dataclass(slots=True)
class GroupResult:
    """What one consumer group did with the queue. `keys`: the number of keys in it; `periods`: of all stores."""

    findings: Findings = field(default_factory=Findings)
    handled: int = 0
    keys: int = 0
    attempted: bool = False
    seen: list[QueueSeen] = field(default_factory=list)
    periods: list[Period] = field(default_factory=list)
    overlaps: Counter[tuple[str, int]] = field(default_factory=Counter)  # by client and period


@dataclass(slots=True)
class QueueResult:
    """The verdict over one queue.

    Attributes:
        groups: Of the groups that are judged.
        sent: The number of messages that are known to have been in the queue.
        losses: For each group of the topic, or once if no group consumes it.
        unsent_messages: The handled messages that no producer sent.
        unseen: Sentences about what these traces cannot show.
        outlived: The number of calls that ran on beyond the lease of their fenced lock.
    """

    queue: MessageQueue
    groups: dict[str, GroupResult] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    sent: int = 0
    losses: Losses = field(default_factory=Losses)
    unsent_messages: list[UnsentMessages] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    outlived: int = 0

    def unsent_records(self) -> Iterator[Record]:
        """The records of messages that no producer sent."""
        return (record for one in self.unsent_messages for record in one.records)


class QueueJudge:
    """Takes the records of one queue in time order. Memory grows with its keys and periods, and by 8 bytes a send."""

    def __init__(self, queue: MessageQueue, facts: Facts, across: Callable[[QueueSeen], FirstHandled]) -> None:
        """`across` gives what takes the first handlings of each group and store (across.py)."""
        self.sent: dict[int, SentQueue] = {}  # by the number of earlier stores
        self.content: OffsetSet | None = None  # the offsets that the topic has in the end, if it was read
        self._queue = queue
        self._facts = facts
        self._across = across
        self._restarts_ns = [(one.at_ns, one.source) for one in facts.restarts_of(queue.broker_name)]
        self._generation = 0
        self._next_restart_ns = self._restarts_ns[0][0] if self._restarts_ns else _NEVER_NS
        self._histories: dict[tuple[str, int], QueueHistory] = {}  # group, store
        self._homes: dict[tuple[str, str, int], QueueHistory] = {}  # group, client, period
        self._groups: dict[str, GroupResult] = {}
        self._first_wall_ms: dict[str, int] = {}
        self._findings = Findings()

    def feed(self, record: Record, time_ns: int, clock: int, source: int) -> None:
        """Take the next record: of a group and this queue, or `sent`."""
        if time_ns >= self._next_restart_ns:
            self._restart(time_ns, source)
        event = record["event"]
        if event == "sent":
            self._sent_queue().sent(record)
            return
        group = record["group"]
        period = record.get("period")
        if period is None and self._restarts_ns:
            # A delivery of the old store stays in its history. There are many: without a restart none is kept.
            period = record.get("pop_ms")
        home = self._homes.get((group, record.get("client_id", ""), period)) if period is not None else None
        if home is None:
            home = self._present(group, record)
            if period is not None:
                self._homes[group, record.get("client_id", ""), period] = home
        findings = home.findings
        findings.at_ns = time_ns
        findings.source = source
        if isinstance(home, DeliveredHistory):
            if (take := _ON_DELIVERY.get(event)) is not None:
                take(home, record, time_ns, clock)
        elif (handle := _ON_EVENT.get(event)) is not None:
            handle(home, record, time_ns, clock)
        if event == "reset":
            # The current broker answered it, even if the period is older.
            present = self._present(group, record)
            if present is not home:
                present.reset(record, time_ns, clock)

    def _restart(self, time_ns: int, source: int) -> None:
        while self._generation < len(self._restarts_ns) and self._restarts_ns[self._generation] <= (time_ns, source):
            self._generation += 1
        rest = self._restarts_ns[self._generation :]
        self._next_restart_ns = rest[0][0] if rest else _NEVER_NS

    def _sent_queue(self) -> SentQueue:
        sent = self.sent.get(self._generation)
        if sent is None:
            sent = self.sent[self._generation] = SentQueue()
            # In later stores only the time says to which one a send belongs. Without sends no message waits for one.
            sent.compares = not self._generation and self._queue.topic in self._facts.sent_topics
        return sent

    def _present(self, group: str, record: Record) -> QueueHistory:
        """The history of a group in the current store."""
        name = group, self._generation
        history = self._histories.get(name)
        if history is None:
            first_wall_ms = self._first_wall_ms.setdefault(group, record["wall_ms"])
            result = self._groups.setdefault(group, GroupResult())
            seen = QueueSeen(group, self._queue, self._generation, first_wall_ms)
            result.seen.append(seen)
            kind = DeliveredHistory if group in self._facts.popped else QueueHistory
            history = self._histories[name] = kind(
                seen, self._sent_queue(), self._facts, result.findings, self._across(seen)
            )
        return history

    def keys(self) -> Iterator[tuple[str, str]]:
        """The keys in the queue: group, key."""
        return (
            (group, key)
            for (group, _), history in self._histories.items()
            for key in history.last_of_key
            if key is not None
        )

    def repeats(self, group: str) -> int:
        """How often a group handled a message of this queue again, so far."""
        result = self._groups.get(group)
        return sum(result.findings.duplicates.values()) if result is not None else 0

    def finish(self) -> QueueResult:
        """The verdict. Call it once, after the last record."""
        queue, facts = self._queue, self._facts
        result = QueueResult(queue, findings=self._findings)
        judged = sorted(group for group, topic in facts.took_part if topic == queue.topic)
        for findings in (self._findings, *(one.findings for one in self._groups.values())):
            findings.at_the_end()
        exists = self._exists()
        for generation, offsets in exists.items():
            result.sent += len(offsets)
            emptied = generation < len(self._restarts_ns)
            for group in judged or [""]:
                history = self._histories.get((group, generation))
                result.losses.weigh(self._aged(history, offsets) if not emptied else offsets, history, emptied)
        for (group, generation), history in self._histories.items():
            if group not in judged:  # only a broker recorded it
                continue
            if queue.topic not in facts.sent_topics:
                result.losses.lost += len(history.lost_below_commit(None))
                result.losses.skipped += len(history.skipped.minus(history.done))
            known = exists.get(generation)
            history.finish(known.end if known is not None else None)
            one = result.groups.setdefault(group, self._groups[group])
            one.handled += len(history.done)
            result.outlived += history.outlived_count
            one.attempted |= bool(history.attempted)
            one.periods += history.periods.values()
            one.overlaps += history.overlaps
        for group, _ in dict.fromkeys(self.keys()):
            if group in result.groups:
                result.groups[group].keys += 1
        for sent in self.sent.values():
            unsent_messages = sent.finish(self._findings, result.unseen)
            if unsent_messages is not None:
                result.unsent_messages.append(unsent_messages)
        return result

    def _exists(self) -> dict[int, OffsetSet]:
        """The messages that are known, by store. What the topic has in the end is in its last store."""
        exists = {generation: sent.offsets for generation, sent in self.sent.items() if sent.offsets}
        if self.content:
            last = exists.setdefault(len(self._restarts_ns), OffsetSet())
            for start, end in self.content.runs():
                last.add_range(start, end)
        return exists

    def _aged(self, history: QueueHistory | None, offsets: OffsetSet) -> OffsetSet:
        """With the messages below a commit that the broker has removed: a queue has no holes."""
        if not self.content or history is None or history.start < 0:
            return offsets
        whole = offsets.minus()
        whole.add_range(history.start, min(history.highest_commit, self.content.start))
        return whole
