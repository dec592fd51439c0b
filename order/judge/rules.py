"""Checks traces against the rules of order. `lockstep trace check`, the demo, the scenarios and the auditor use it.

kinds.py has the table of rules, docs/order.md (part 1) the definition of order, docs/judge.md the evidence that each
kind of finding needs and the limits, order/traces/format.py the records.

**How the work is split.** `survey` reads all traces once, and finds what a judge of one queue needs of the others: the
clocks, when each client wrote, grants, restarts. A `QueueJudge` takes the records of one queue in time order, and keeps
runs of offsets, keys and periods, but no messages. `Across` finds violations between queues. `joined_report` joins the
results. `OrderChecker` runs all of it in one process; pipeline/audit runs it on Spark, with a judge for each queue.

Without `stored` records, a commit counts as stored if its client wrote another record at least one second later. The
reason: a killed process may not have sent its last commit.

**An emptied store** begins every queue at offset 0 again, with other messages (queue_judge.py). A period that continues
across the restart is judged by the old store, but a reset in that period also applies to the new store. Without a
`broker_restarted` record, repeats of old offsets have the cause `reset`, because the broker resets the illegal offset.

A group and topic is judged only if a client's record names it: a broker also records groups that nobody traces.

A trace does not know tag filters. Check a group with a filter only on topics of which it consumes every message.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from lockstep.order.judge.across import Across
from lockstep.order.judge.joined import BROKEN_KEPT, Counts, joined_report
from lockstep.order.judge.queue_judge import QueueJudge
from lockstep.order.judge.sent import digest
from lockstep.order.judge.survey import Facts, survey
from lockstep.order.report import OrderReport
from lockstep.order.traces.clocks import WALL_SKEW_MS, Clocks
from lockstep.order.traces.copies import Copies
from lockstep.order.traces.format import QUEUE_EVENTS, SENT_LATER
from lockstep.order.traces.merge import TimedRecord, merge_traces
from lockstep.order.traces.reader import BrokenLine, Record, TraceFile, checked
from lockstep.protocol.model import MessageQueue

__all__ = ["OrderChecker", "Watcher", "check_files", "check_traces"]

Trace = TypeVar("Trace", bound=Iterable[Record])


class Watcher(Protocol):
    """Reads the records on their way to the judge, such as the timeline of a page."""

    def watch(self, records: Iterable[TimedRecord], clocks: Clocks) -> Iterator[TimedRecord]: ...


def check_files(
    paths: Iterable[Path | str],
    *,
    wall_skew_ms: int = WALL_SKEW_MS,
    on_progress: Callable[[int], None] | None = None,
    timeline: Watcher | None = None,
) -> OrderReport:
    """Check trace files as one history.

    Args:
        paths: The files of all processes: consumers, producers and brokers. A file named twice is read once.
        wall_skew_ms: The largest assumed difference of two machines' wall clocks; causes may prove another (clocks.py).
        on_progress: Called with the number of records read so far, once every 20,000 records.
        timeline: Reads all records, for the plots of a report page.

    Raises:
        OSError: A file cannot be read.
    """
    files = _oldest_first([TraceFile(path) for path in dict.fromkeys(Path(path) for path in paths)])
    with _without_cycles():
        facts = survey(files, wall_skew_ms)
        checker, copies = OrderChecker(facts), Copies()
        records = merge_traces(files, facts.clocks, copies)
        if timeline is not None:
            records = timeline.watch(records, facts.clocks)
        checker.feed_all(_with_progress(records, on_progress) if on_progress is not None else records)
    return checker.report(
        copies,
        torn_lines=sum(file.torn_lines for file in files),
        broken_lines=sum(file.broken_lines for file in files),
        broken=[line for file in files for line in file.broken][:BROKEN_KEPT],
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


def _with_progress(records: Iterable[TimedRecord], on_progress: Callable[[int], None]) -> Iterable[TimedRecord]:
    for number, record in enumerate(records):
        if number % 20_000 == 0:
            on_progress(number)
        yield record


class _Checked:
    """A trace in memory without its invalid records. `broken` are those of the last full pass."""

    def __init__(self, trace: Iterable[Record], name: str) -> None:
        self._trace = list(trace) if iter(trace) is trace else trace  # an iterator can be read once only
        self._name = name
        self.broken: list[BrokenLine] = []

    def __iter__(self) -> Iterator[Record]:
        self.broken = []
        return checked(self._trace, self._name, self.broken)


def check_traces(traces: Sequence[Iterable[Record]], *, wall_skew_ms: int = WALL_SKEW_MS) -> OrderReport:
    """Check traces in memory, one per process, as one history. An invalid record counts as a broken line.

    Args:
        traces: Each is read twice; no record is kept but those of an iterator.
        wall_skew_ms: The largest assumed difference of two machines' wall clocks.
    """
    each = [_Checked(trace, f"trace {number}") for number, trace in enumerate(traces, 1)]
    ordered = _oldest_first(list(each))
    facts = survey(ordered, wall_skew_ms)
    checker, copies = OrderChecker(facts), Copies()
    checker.feed_all(merge_traces(ordered, facts.clocks, copies))
    broken = [line for trace in each for line in trace.broken]
    return checker.report(copies, broken_lines=len(broken), broken=broken[:BROKEN_KEPT])


class OrderChecker:
    """Checks a history in one process. Feed it all records in time order, then call `report`."""

    def __init__(self, facts: Facts) -> None:
        """`facts` is the result of `survey` for the same traces."""
        self._facts = facts
        self._across = Across()
        self._queues: dict[tuple[str, str, int], QueueJudge] = {}
        self._events: Counter[str] = Counter()
        self._send_failures: Counter[str] = Counter()
        self._failed_ids: set[int] = set()

    def feed_all(self, records: Iterable[TimedRecord]) -> None:
        """Take a whole history."""
        feed = self.feed
        for time_ns, source, clock, record in records:
            feed(record, time_ns, clock, source)

    def feed(self, record: Record, time_ns: int, clock: int = 0, source: int = 0) -> None:
        """Take the next record of the history. Unknown events are counted and ignored."""
        event = record["event"]
        self._events[event] += 1
        if event in QUEUE_EVENTS or event == "sent":
            name = (record["topic"], record["broker"], record["queue_id"])
            judge = self._queues.get(name)
            if judge is None:
                judge = self._queues[name] = QueueJudge(MessageQueue(*name), self._facts, self._across.of)
            judge.feed(record, time_ns, clock, source)
        elif event == "send_failed":
            if record["outcome"] != SENT_LATER:
                self._send_failures[record["outcome"]] += 1
            if record.get("msg_id") is not None:
                self._failed_ids.add(digest(record["msg_id"]))

    def report(
        self,
        copies: Copies | None = None,
        torn_lines: int = 0,
        broken_lines: int = 0,
        broken: Sequence[BrokenLine] = (),
    ) -> OrderReport:
        """The verdict. Call it once, after the last record. `copies`: what the merge has left out."""
        results = [self._queues[name].finish() for name in sorted(self._queues)]
        unseen: list[str] = []
        self._across.finish(lambda seen: self._queues[seen.queue].sent[seen.generation], unseen)
        explained = self._explained({record["msg_id"] for one in results for record in one.unsent_records()})
        twice = Copies() if copies is None else copies
        counts = Counts(
            self._events, self._send_failures, twice.count, twice.one_process, torn_lines, broken_lines, tuple(broken)
        )
        return joined_report(self._facts, results, (self._across.findings, explained, unseen), counts)

    def _explained(self, msg_ids: set[str]) -> set[str]:
        """The ids that may be stored without an answer, or that were sent to another offset: delayed messages."""
        digests = {digest(msg_id) for msg_id in msg_ids}
        if not digests:
            return set()
        sent = [one.sent_of(digests) for judge in self._queues.values() for one in judge.sent.values()]
        known = self._failed_ids.union(*sent)
        return {msg_id for msg_id in msg_ids if digest(msg_id) in known or self._across.repeated(msg_id)}
