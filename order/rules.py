"""What order means, decided: the one definition behind the demo's report, the virtual-time scenarios and the auditor.

A **violation** is

(a) the first handling of a message of a key before the first handling of an earlier one of that key, by queue
    offset (`nonmonotonic-poll`); messages without a key share one key per queue;
(b) a repeat that is not a contiguous rewind, in a new ownership period, to an offset at or above the last commit
    stored before it (`unexplained-repeat`, `stale-repeat`, `rewind-below-commit`, `poll-skip`). Inside a period a
    repeat is right only after an attempt that failed: a suspended call comes again as a whole, a rollback from
    the last commit. Calls that keep order by key, or none (`ordering`), are judged key by key, or message by
    message, and need not be contiguous: a new period repeats what was handled above the commit, a failed attempt
    comes again in its lane alone, and nothing else does. Of calls without any order (a) and (c) are not asked;
(c) handling intervals of two owners of one queue that overlap (`overlap`): compared on the monotonic clock, so
    within a host only;
(d) loss: a message below a committed offset that nobody handled (`lost-write`; attempts that all failed are no
    handling, the dead-letter topic is), and a commit that went back without a reset (`commit-regress`, or
    `stale-commit` when an owner whose period was over had a part in it).

Every other repeat is a duplicate with a cause: takeover, suspend, reset, or producer retry (two offsets, one msg_id).

**Trace records, version 1.** Each has `event`, `wall_ms`, `mono_ns`, `host`, `client_id`, `group`; Q stands for the
fields `topic`, `broker`, `queue_id`:

    acquired       Q, period           a lock was granted; periods count up per client process
    positioned     Q, period, offset   the first offset that will be pulled
    handled        Q, period, offset, key, msg_id, begin_wall_ms, begin_mono_ns, status, reconsume_times
                                       one per message and listener call; wall_ms and mono_ns are its end.
                                       Optional: ordering, "key" or "none": what the call keeps in order
    committed      Q, period, offset   about to be sent to the broker; the next offset to consume
    stored         Q, offset           optional: the broker has stored it
    reset          Q, offset           the offset was moved on purpose, or because it was illegal. Without a client
                                       it is a broker's after a crash: where the group stands, for commits may be lost
    lock_lost      Q, period           the lock is gone; it may be won back
    dropped        Q, period, why      the period is over
    dead_lettered  Q, offset, key, msg_id
    sent_back      Q, offset, key, msg_id   without order: the broker delivers it again, in the retry topic
    sent           Q, offset, key, msg_id   a producer's; `group` is the producer group
    send_failed    topic, key, msg_id, outcome: "refused" or "unknown"
    broker_restarted   wall_ms, broker (without it: every broker): it came back with an empty store

Where no `stored` records exist, a commit counts as stored once its writer was seen alive one second later: the
last commit of a killed process may never have left it.

**An emptied store** begins every queue at offset 0 again, with other messages. `broker_restarted` starts a new history
of each of its queues: sends belong to it by their time, what a consumer does by the time its ownership period was
born. A period that reads on across the restart without noticing is judged by the old store; a reset that it
writes passes over messages of the new one. Without the marker
the repeats of old offsets count as caused by the `reset` that the broker's rule writes.

A broker does not know who is judged: a group and topic that no client's record names takes no part.

Tag filters are unknown to a trace: check a filtering group with a topic whose messages it all wants.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lockstep.order.history import QueueHistory, Shared
from lockstep.order.offset_set import OffsetSet
from lockstep.order.owned_queue import Losses, OwnedQueue
from lockstep.order.reader import Record, TimedRecord, TraceFile, merge_traces
from lockstep.order.report import OrderReport
from lockstep.protocol.model import MessageQueue

__all__ = ["OrderChecker", "check_files", "check_traces"]

ON_EVENT: dict[str, Callable[[QueueHistory, Record, int], None]] = {
    "acquired": QueueHistory.acquired,
    "positioned": QueueHistory.positioned,
    "handled": QueueHistory.handled,
    "committed": QueueHistory.committed,
    "stored": QueueHistory.stored,
    "reset": QueueHistory.reset,
    "lock_lost": QueueHistory.touched,
    "dropped": QueueHistory.ended,
    "dead_lettered": QueueHistory.taken_care_of,
    "sent_back": QueueHistory.taken_care_of,
}


def check_files(paths: Iterable[Path | str]) -> OrderReport:
    """Check trace files as one history. Raises TraceError for a broken line that is not a file's last, OSError."""
    files = [TraceFile(Path(path)) for path in paths]
    checker = OrderChecker()
    checker.feed_all(merge_traces(files))
    return checker.report(torn_lines=sum(file.torn_lines for file in files))


def check_traces(traces: Sequence[Iterable[Record]]) -> OrderReport:
    """Check traces in memory, one per process, as one history."""
    checker = OrderChecker()
    checker.feed_all(merge_traces(traces))
    return checker.report()


class OrderChecker:
    """Takes a history record by record, in time order, and reports at its end."""

    def __init__(self) -> None:
        self._shared = Shared()
        self._restarts: Counter[str | None] = Counter()  # by broker; None: of every broker
        self._owned: dict[tuple[str, str, str, int], OwnedQueue] = {}
        self._took_part: set[tuple[str, str]] = set()  # group, topic: of some client's records
        self._sent: dict[tuple[str, str, int, int], OffsetSet] = {}  # topic, broker, queue id, restarts before
        self._send_failures: Counter[str] = Counter()

    def feed_all(self, records: Iterable[TimedRecord]) -> None:
        """Take a whole history."""
        for time_ns, _, record in records:
            self.feed(record, time_ns)

    def feed(self, record: Record, time_ns: int) -> None:
        """Take the next record of the history. Events that this version does not know are counted and passed over."""
        event = record["event"]
        self._shared.findings.events[event] += 1
        if "client_id" in record:
            self._shared.last_seen_ns[record["client_id"]] = time_ns
        handle = ON_EVENT.get(event)
        if handle is not None:
            history = self._history(record)
            handle(history, record, time_ns)
            if event == "reset":
                self._reset_present_store(history, record, time_ns)
        elif event == "sent":
            self._sent_offsets(record).add(record["offset"])
        elif event == "send_failed":
            self._send_failures[record["outcome"]] += 1
        elif event == "broker_restarted":
            self._restarts[record.get("broker")] += 1

    def report(self, torn_lines: int = 0) -> OrderReport:
        """The verdict. Call it once, after the last record."""
        findings = self._shared.findings
        for unjudged in [name for name in self._owned if name[:2] not in self._took_part]:
            del self._owned[unjudged]  # known by a broker's records alone
        histories = [history for owned in self._owned.values() for history in owned.histories.values()]
        losses = Losses()
        for name, sent in self._sent.items():
            self._weigh_sent(name, sent, losses)
        known_topics = {name[0] for name in self._sent}
        for history in histories:
            if history.queue.topic not in known_topics:
                losses.lost += len(history.lost_below_commit(None))
                losses.skipped += len(history.skipped.minus(history.done))
        return OrderReport(
            sent=sum(map(len, self._sent.values())),
            send_failures=dict(self._send_failures),
            handled=sum(len(history.done) for history in histories),
            attempts=findings.events["handled"],
            dead_lettered=findings.events["dead_lettered"],
            duplicates=dict(findings.duplicates),
            lost=losses.lost,
            before_start=losses.before_start,
            skipped=losses.skipped,
            emptied=losses.emptied,
            queues=sum(
                any(history.attempted for history in owned.histories.values()) for owned in self._owned.values()
            ),
            keys=sum(owned.key_count() for owned in self._owned.values()),
            handovers=tuple(findings.handovers),
            violations=tuple(findings.violations),
            violation_counts=dict(findings.violation_counts),
            torn_lines=torn_lines,
            events=dict(findings.events),
        )

    def _weigh_sent(self, name: tuple[str, str, int, int], sent: OffsetSet, losses: Losses) -> None:
        """What became of the messages sent to one queue of one store, in each group that reads the topic."""
        topic, broker, queue_id, generation = name
        groups = dict.fromkeys(group for group, owned_topic, _, _ in self._owned if owned_topic == topic)
        for group in groups or [""]:
            owned = self._owned.get((group, topic, broker, queue_id))
            history = owned.histories.get(generation) if owned else None
            losses.weigh(sent, history, emptied=generation < self._generation(broker))

    def _history(self, record: Record) -> QueueHistory:
        """The history a consumer's record belongs to: that of its period's birth, or the present one."""
        broker = record["broker"]
        name = (record["group"], record["topic"], broker, record["queue_id"])
        if "client_id" in record:
            self._took_part.add(name[:2])
        owned = self._owned.get(name)
        if owned is None:
            owned = self._owned[name] = OwnedQueue(record["group"], MessageQueue(*name[1:]), self._shared)
        if "period" not in record:
            return owned.history(self._generation(broker))
        period = (record["client_id"], record["period"])
        home = owned.homes.get(period)
        if home is None:
            home = owned.homes[period] = owned.history(self._generation(broker))
        return home

    def _reset_present_store(self, home: QueueHistory, record: Record, time_ns: int) -> None:
        """A reset is the answer of the broker that is there now, however old the period that asked."""
        name = (record["group"], record["topic"], record["broker"], record["queue_id"])
        present = self._owned[name].history(self._generation(record["broker"]))
        if present is not home:
            present.reset(record, time_ns)

    def _sent_offsets(self, record: Record) -> OffsetSet:
        broker = record["broker"]
        name = (record["topic"], broker, record["queue_id"], self._generation(broker))
        sent = self._sent.get(name)
        if sent is None:
            sent = self._sent[name] = OffsetSet()
        return sent

    def _generation(self, broker: str) -> int:
        """How often the broker's store was emptied so far."""
        return self._restarts[broker] + self._restarts[None] if self._restarts else 0
