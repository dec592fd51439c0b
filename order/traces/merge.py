"""Merges traces into one history: each record with its time on the common axis, its trace and its clock."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from lockstep.order.traces.clocks import Clocks, Stretches
from lockstep.order.traces.copies import Copies
from lockstep.order.traces.reader import Record

__all__ = ["TimedRecord", "merge_traces", "timed"]

TimedRecord = tuple[int, int, int, Record]
"""(time_ns, source, clock, record): the time on the common axis, and the numbers of the trace and the clock."""


def merge_traces(
    traces: Sequence[Iterable[Record]], clocks: Clocks, copies: Copies | None = None
) -> Iterator[TimedRecord]:
    """Yield the records of all traces in time order, each once. A trace keeps its own order; ties go by its number.

    Args:
        traces: Each must be readable twice, like a `TraceFile` or a list.
        clocks: Those of these traces, as `survey` finds them.
        copies: Takes and counts the records that were delivered twice.

    Raises:
        OSError: A file cannot be read.
    """
    each = [_in_order(source, trace, clocks) for source, trace in enumerate(traces)]
    is_copy = (Copies() if copies is None else copies).has
    return (timed for timed in heapq.merge(*each) if not is_copy(timed[0], timed[1], timed[3]))


def _in_order(source: int, trace: Iterable[Record], clocks: Clocks) -> Iterator[TimedRecord]:
    """One trace in time order. One that goes back is sorted in memory: a part of it was delivered late, or again."""
    records = timed(source, trace, clocks)
    return iter(sorted(records, key=itemgetter(0))) if clocks.goes_back(source) else records


def timed(source: int, trace: Iterable[Record], clocks: Clocks) -> Iterator[TimedRecord]:
    """Yield one trace with times that never decrease. A record without a monotonic clock gets its wall-clock time.

    In a trace that goes back (`Clocks.goes_back`) each record has its own time, whatever stands before it.

    A broker's `reset` after a crash gets the earliest possible time, so no commit after it is taken for one before it.
    `QueueHistory` distrusts commits that may have come before it.
    """
    latest = -(1 << 63)
    if clocks.is_one(source) and not clocks.goes_back(source):
        clock = clocks.of(source, 0)
        axis = clocks.axis_ns[clock]
        several = len(clocks) > 1
        for record in trace:
            time_ns = record["mono_ns"] + axis
            if several and record["event"] == "reset" and "client_id" not in record:
                time_ns -= clocks.skew_ns
            if time_ns > latest:
                latest = time_ns
            yield latest, source, clock, record
        return
    goes_back = clocks.goes_back(source)
    stretches = Stretches()
    for record in trace:
        clock = clocks.of(source, stretches.of(record))
        mono = record.get("mono_ns")
        if mono is not None:
            time_ns = mono + clocks.axis_ns[clock]
        else:
            time_ns = record["wall_ms"] * 1_000_000 + clocks.axis_ns[clock]
        if goes_back and time_ns < latest:
            latest = time_ns
        if record["event"] == "reset" and "client_id" not in record:
            time_ns -= clocks.skew_ns
        if time_ns > latest:
            latest = time_ns
        yield latest, source, clock, record
