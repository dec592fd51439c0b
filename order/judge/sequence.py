"""Which of two records came first, if the records can show it."""

from lockstep.order.judge.period import stamp_ns
from lockstep.order.kinds import Confidence
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record

__all__ = ["came_after"]


def came_after(clocks: Clocks, last: Record, last_clock: int, record: Record, clock: int) -> Confidence | None:
    """How sure it is that a record came after another one, which the merge put first.

    A process writes its records in order. Of two processes only the time is known: records of one nanosecond have no
    order, and that of the merge is the order of the files.

    Returns:
        CERTAIN or UNDECIDED; None if it came before, or in the same nanosecond.
    """
    if last.get("client_id") == record.get("client_id"):
        same_period = last.get("period", 0) == record.get("period", 0)
        if last_clock == clock or (same_period and "client_id" in record):
            return Confidence.CERTAIN
    least, most = clocks.gap_ns(last_clock, stamp_ns(last), clock, stamp_ns(record))
    if most <= 0:
        return None
    return Confidence.CERTAIN if least > 0 else Confidence.UNDECIDED
