"""Checks traces against the rules of order. `lockstep trace check`, the demo, the scenarios and the auditor use it.

kinds.py has the table of rules, docs/order.md (part 1) the definition of order, docs/judge.md the evidence that each
kind of finding needs and the limits, docs/trace.md the records.

**How the work is split.** A `QueueHistory` judges one queue in one group: it takes the records of that queue in time
order, and keeps runs of offsets, keys and periods, but no messages. `Across` finds violations between queues from a few
columns of each message that is handled for the first time. `OrderChecker` runs both in one process. A cluster can group
records by (group, topic, broker, queue_id), sort them by time and run the same `QueueHistory` on each group.

Without `stored` records, a commit counts as stored if its client wrote another record at least one second later. The
reason: a killed process may not have sent its last commit.

**An emptied store** begins every queue at offset 0 again, with other messages. A `broker_restarted` record starts a new
history of each queue of the broker. A send belongs to a history by its time; a consumer's record belongs to the history
in which its ownership period began. So a period that continues across the restart is judged by the old store, but a
reset in that period also applies to the new store. Without a `broker_restarted` record, repeats of old offsets have the
cause `reset`, because the broker resets the illegal offset.

A group and topic is judged only if a client's record names it: a broker also records groups that nobody traces.

A trace does not know tag filters. Check a group with a filter only on topics of which it consumes every message.
"""

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from lockstep.order.clocks import WALL_SKEW_MS, Clocks, survey
from lockstep.order.format import EVENTS
from lockstep.order.history import QueueHistory, Shared
from lockstep.order.merge import TimedRecord, merge_traces
from lockstep.order.offset_set import OffsetSet
from lockstep.order.owned_queue import Losses, OwnedQueue
from lockstep.order.page.timeline import Timeline
from lockstep.order.reader import BrokenLine, Record, TraceFile, checked
from lockstep.order.report import OrderReport
from lockstep.order.sent import SentQueue, digest
from lockstep.protocol.model import MessageQueue

__all__ = ["OrderChecker", "check_files", "check_traces"]

ON_EVENT: dict[str, Callable[[QueueHistory, Record, int, int], None]] = {
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
Trace = TypeVar("Trace", bound=Iterable[Record])
EVENT_NAMES = frozenset(event.name for event in EVENTS)
_BROKEN_KEPT = 20


def check_files(
    paths: Iterable[Path | str],
    *,
    wall_skew_ms: int = WALL_SKEW_MS,
    on_progress: Callable[[int], None] | None = None,
    timeline: Timeline | None = None,
) -> OrderReport:
    """Check trace files as one history.

    Args:
        paths: The files of all processes: consumers, producers and brokers. A file named twice is read once.
        wall_skew_ms: The largest assumed difference of two machines' wall clocks; causes may prove another (clocks.py).
        on_progress: Called with the number of records read so far, once every 20,000 records.
        timeline: Collects what the plots of a report page show.

    Raises:
        OSError: A file cannot be read.
    """
    files = _oldest_first([TraceFile(path) for path in dict.fromkeys(Path(path) for path in paths)])
    with _without_cycles():
        clocks = survey(files, wall_skew_ms)
        checker = OrderChecker(clocks)
        records = merge_traces(files, clocks)
        if timeline is not None:
            records = timeline.watch(records, clocks)
        checker.feed_all(_told(records, on_progress) if on_progress is not None else records)
    return checker.report(
        torn_lines=sum(file.torn_lines for file in files),
        broken_lines=sum(file.broken_lines for file in files),
        broken=[line for file in files for line in file.broken][:_BROKEN_KEPT],
    )


def _oldest_first(traces: list[Trace]) -> list[Trace]:
    """Sort traces by their first records: of two records with one time, that in the older rotated file comes first."""
    first = {id(trace): next(iter(trace), None) for trace in traces}
    return sorted(traces, key=lambda trace: record["wall_ms"] if (record := first[id(trace)]) else 0)


@contextmanager
def _without_cycles() -> Iterator[None]:
    """Disable the garbage collector: records have no reference cycles, and its search takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _told(records: Iterable[TimedRecord], on_progress: Callable[[int], None]) -> Iterable[TimedRecord]:
    for number, record in enumerate(records):
        if number % 20_000 == 0:
            on_progress(number)
        yield record


def check_traces(traces: Sequence[Iterable[Record]], *, wall_skew_ms: int = WALL_SKEW_MS) -> OrderReport:
    """Check traces in memory, one per process, as one history. An invalid record counts as a broken line."""
    broken: list[BrokenLine] = []
    lists = _oldest_first([list(checked(trace, f"trace {number}", broken)) for number, trace in enumerate(traces, 1)])
    clocks = survey(lists, wall_skew_ms)
    checker = OrderChecker(clocks)
    checker.feed_all(merge_traces(lists, clocks))
    return checker.report(broken_lines=len(broken), broken=broken[:_BROKEN_KEPT])


class OrderChecker:
    """Checks a history. Feed it all records in time order, then call `report`."""

    def __init__(self, clocks: Clocks) -> None:
        """`clocks` is the result of `survey` for the same traces."""
        self._clocks = clocks
        self._shared = Shared(clocks)
        self._restarts: Counter[str | None] = Counter()  # by broker; None: all brokers
        self._owned: dict[tuple[str, str, str, int], OwnedQueue] = {}
        self._took_part: set[tuple[str, str]] = set()  # (group, topic) of the clients' records
        self._sent: dict[tuple[str, str, int, int], SentQueue] = {}  # by (topic, broker, queue id, earlier restarts)
        self._send_failures: Counter[str] = Counter()
        self._failed_ids: set[int] = set()
        self._senders: set[str | None] = set()

    def feed_all(self, records: Iterable[TimedRecord]) -> None:
        """Take a whole history."""
        feed = self.feed
        for time_ns, source, clock, record in records:
            feed(record, time_ns, clock, source)

    def feed(self, record: Record, time_ns: int, clock: int = 0, source: int = 0) -> None:
        """Take the next record of the history. Unknown events are counted and ignored."""
        event = record["event"]
        self._shared.findings.events[event] += 1
        client_id = record.get("client_id")
        if client_id is not None:
            self._shared.last_seen_ns[client_id] = time_ns
        handle = ON_EVENT.get(event)
        if handle is not None:
            if client_id is not None:
                self._shared.members.note(record, client_id, source, clock)
            history = self._history(record)
            handle(history, record, time_ns, clock)
            if event == "reset":
                self._reset_present_store(history, record, time_ns, clock)
        elif event == "sent":
            self._sent_queue(record["topic"], record["broker"], record["queue_id"]).sent(record)
            self._senders.add(client_id)
        elif event == "send_failed":
            self._send_failures[record["outcome"]] += 1
            self._senders.add(client_id)
            if record.get("msg_id") is not None:
                self._failed_ids.add(digest(record["msg_id"]))
        elif event == "broker_restarted":
            self._restarts[record.get("broker")] += 1
        elif event == "closed" and client_id is not None:
            self._shared.closed.add(client_id)
            self._shared.members.closed(record, source, clock)

    def report(
        self, torn_lines: int = 0, broken_lines: int = 0, broken: Sequence[BrokenLine] = ()
    ) -> OrderReport:  # fmt: skip
        """The verdict. Call it once, after the last record."""
        findings = self._shared.findings
        for unjudged in [name for name in self._owned if name[:2] not in self._took_part]:
            del self._owned[unjudged]  # only a broker recorded it
        losses = Losses()
        sent = {name: queue for name, queue in self._sent.items() if queue.offsets}
        for name, queue in sent.items():
            self._weigh_sent(name, queue.offsets, losses)
        known_topics = {name[0] for name in sent}
        unseen: list[str] = []
        for (group, topic, broker, queue_id), owned in self._owned.items():
            for generation, history in owned.histories.items():
                producers = sent.get((topic, broker, queue_id, generation))
                if topic not in known_topics:
                    losses.lost += len(history.lost_below_commit(None))
                    losses.skipped += len(history.skipped.minus(history.done))
                end = producers.offsets.end if producers is not None else None
                history.finish(end, knows_grants=bool(self._shared.grants.get(group)))
        self._finish_across(unseen)
        self._say_unseen(known_topics, unseen)
        return OrderReport(
            sent=sum(len(queue.offsets) for queue in sent.values()),
            send_failures=dict(self._send_failures),
            handled=sum(len(history.done) for owned in self._owned.values() for history in owned.histories.values()),
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
            violations=findings.kept(undecided=False),
            violation_counts=dict(findings.violation_counts),
            torn_lines=torn_lines,
            events=dict(findings.events),
            undecided=findings.kept(undecided=True),
            undecided_counts=dict(findings.undecided_counts),
            broken_lines=broken_lines,
            broken=tuple(broken),
            unseen=tuple(unseen),
            clocks=tuple(self._clocks.lines()),
        )

    def _finish_across(self, unseen: list[str]) -> None:
        across = self._shared.across
        explained = self._failed_ids.union(*(topic.twice_ids for topic in across.topics.values()))
        unnamed = set().union(*(queue.unnamed() for queue in self._sent.values()))
        if unnamed:  # delayed messages: their `sent` records name another offset
            explained = explained.union(*(queue.sent_of(unnamed) for queue in self._sent.values()))
        for queue in self._sent.values():
            queue.finish(self._shared.findings, explained, unseen, all_closed=self._senders <= self._shared.closed)
        across.finish(unseen)
        self._shared.members.finish(self._shared.findings)

    def _say_unseen(self, known_topics: set[str], unseen: list[str]) -> None:
        """Add sentences about what these traces cannot show."""
        events, shared = self._shared.findings.events, self._shared
        if not events["handled"]:
            unseen.append("no message was handled in these traces: there is nothing to judge")
        groups: defaultdict[str, set[str]] = defaultdict(set)
        for group, topic, _, _ in self._owned:
            groups[group].add(topic)
        blind = sorted({topic for topics in groups.values() for topic in topics} - known_topics)
        if blind:
            unseen.append(
                f"no producer trace of {_some(blind)}: messages lost before a group's first position or after its last "
                "commit, and messages that were never sent, cannot be seen"
            )
        ungranted = sorted(group for group in groups if not shared.grants.get(group))
        if ungranted:
            unseen.append(
                f"no record of a grant in group {_some(ungranted)}: when an owner was replaced cannot be seen"
            )
        if events["committed"] and not events["stored"]:
            unseen.append(
                "no record of what brokers stored: a commit counts as stored when its writer lived on for a second"
            )
        unordered = sorted(shared.unordered & groups.keys())
        if unordered:
            unseen.append(
                f"group {_some(unordered)} is concurrent: it keeps no order of keys, and its owners may overlap"
            )
        unclosed = shared.members.unclosed()
        if unclosed:
            unseen.append(
                f"no `closed` record of {_some(unclosed)}: killed, or still running; what they did last may be missing"
            )
        strange = sorted(event for event in events if event not in EVENT_NAMES)
        if strange:
            unseen.append(f"events of {_some(strange)} mean nothing to this version")

    def _weigh_sent(self, name: tuple[str, str, int, int], sent: OffsetSet, losses: Losses) -> None:
        """Count the losses among the messages sent to one queue of one store, for each group of the topic."""
        topic, broker, queue_id, generation = name
        groups = dict.fromkeys(group for group, owned_topic, _, _ in self._owned if owned_topic == topic)
        for group in groups or [""]:
            owned = self._owned.get((group, topic, broker, queue_id))
            history = owned.histories.get(generation) if owned else None
            losses.weigh(sent, history, emptied=generation < self._generation(broker))

    def _history(self, record: Record) -> QueueHistory:
        """The history of a consumer's record: the one in which its period began; without a period, the current one."""
        broker = record["broker"]
        name = (record["group"], record["topic"], broker, record["queue_id"])
        if "client_id" in record:
            self._took_part.add(name[:2])
        owned = self._owned.get(name)
        if owned is None:
            queue = MessageQueue(*name[1:])
            owned = self._owned[name] = OwnedQueue(record["group"], queue, self._shared, record["wall_ms"])
        if "period" not in record:
            return self._present(owned, name)
        period = (record.get("client_id", ""), record["period"])
        home = owned.homes.get(period)
        if home is None:
            home = owned.homes[period] = self._present(owned, name)
        return home

    def _present(self, owned: OwnedQueue, name: tuple[str, str, str, int]) -> QueueHistory:
        """The history of a queue in the current store."""
        return owned.history(self._generation(name[2]), self._sent_queue(*name[1:]))

    def _reset_present_store(self, home: QueueHistory, record: Record, time_ns: int, clock: int) -> None:
        """Apply a reset to the current store too: the current broker answered it, even if the period is older."""
        name = (record["group"], record["topic"], record["broker"], record["queue_id"])
        present = self._present(self._owned[name], name)
        if present is not home:
            present.reset(record, time_ns, clock)

    def _sent_queue(self, topic: str, broker: str, queue_id: int) -> SentQueue:
        name = (topic, broker, queue_id, self._generation(broker))
        sent = self._sent.get(name)
        if sent is None:
            sent = self._sent[name] = SentQueue()
        return sent

    def _generation(self, broker: str) -> int:
        """How many times the broker's store was emptied so far."""
        return self._restarts[broker] + self._restarts[None] if self._restarts else 0


def _some(names: Sequence[str]) -> str:
    """Up to five names."""
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
