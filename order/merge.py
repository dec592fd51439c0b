"""Many traces merged into one history: every record with its time on the common axis, its trace and its clock."""

import heapq
from collections.abc import Iterable, Iterator, Sequence

from lockstep.order.clocks import Clocks, Stretches, survey
from lockstep.order.reader import Record

__all__ = ["TimedRecord", "merge_traces"]

TimedRecord = tuple[int, int, int, Record]
"""(time_ns, source, clock, record): the time on the common axis, the number of the trace, and that of the clock."""


def merge_traces(traces: Sequence[Iterable[Record]], clocks: Clocks | None = None) -> Iterator[TimedRecord]:
    """All records of all traces in time order. Order within a trace is always kept; ties go by the trace's number.

    Args:
        traces: Each can be read twice, as a `TraceFile` or a list can.
        clocks: What `survey` found of them; None: it is called here.

    Raises:
        OSError: A file cannot be read.
    """
    found = survey(traces) if clocks is None else clocks
    timed = [_timed(source, trace, found) for source, trace in enumerate(traces)]
    return timed[0] if len(timed) == 1 else heapq.merge(*timed)


def _timed(source: int, trace: Iterable[Record], clocks: Clocks) -> Iterator[TimedRecord]:
    """One trace with times that never step back; a record without a monotonic clock stands at its wall time.

    A broker's `reset` with a wall clock alone stands as early as clocks allow; `QueueHistory` doubts what is near it.
    """
    latest = -(1 << 63)
    if clocks.is_one(source):
        clock = clocks.of(source, 0)
        axis = clocks.axis_ns[clock]
        for record in trace:
            time_ns = record["mono_ns"] + axis
            if time_ns > latest:
                latest = time_ns
            yield latest, source, clock, record
        return
    stretches = Stretches()
    for record in trace:
        clock = clocks.of(source, stretches.of(record))
        mono = record.get("mono_ns")
        if mono is not None:
            time_ns = mono + clocks.axis_ns[clock]
        else:
            time_ns = record["wall_ms"] * 1_000_000 + clocks.axis_ns[clock]
            if record["event"] == "reset" and "client_id" not in record:
                time_ns -= clocks.skew_ns
        if time_ns > latest:
            latest = time_ns
        yield latest, source, clock, record
