"""When each client wrote records: spans of time without a long pause, which are few however many records there are."""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

__all__ = ["Activity", "Spans"]

# A shorter pause does not end a span.
PAUSE_NS = 10_000_000
# Of one client in one trace; above, pauses twice as long are ignored.
_SPANS_MAX = 100_000


class Spans:
    """The spans of one client in one trace, in nanoseconds of one clock. Memory is 16 bytes a span, at most 1.6 MB."""

    __slots__ = ("_pause_ns", "begins", "ends")

    def __init__(self) -> None:
        self.begins = array("q")
        self.ends = array("q")
        self._pause_ns = PAUSE_NS

    def note(self, now_ns: int) -> None:
        """Take the time of the next record."""
        ends = self.ends
        if ends and self.begins[-1] <= now_ns <= ends[-1] + self._pause_ns:
            if now_ns > ends[-1]:
                ends[-1] = now_ns
            return
        self.begins.append(now_ns)
        ends.append(now_ns)
        if len(ends) > _SPANS_MAX:
            self._pause_ns *= 2
            self.begins, self.ends = _joined(zip(self.begins, ends, strict=True), self._pause_ns)


class Activity:
    """When each client was last seen, on the common time axis: exact to `PAUSE_NS`, and the same however it is read."""

    def __init__(self) -> None:
        self.closed_ns: dict[str, int] = {}  # when clients first closed a trace in an orderly shutdown
        self._spans: dict[str, tuple[array[int], array[int]]] = {}

    @classmethod
    def of(cls, spans: Iterable[tuple[str, int, Spans]]) -> "Activity":
        """Join the spans of all traces: client, what to add to their times for the common axis, spans."""
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for client_id, axis_ns, one in spans:
            found[client_id] += [
                (begin + axis_ns, end + axis_ns) for begin, end in zip(one.begins, one.ends, strict=True)
            ]
        activity = cls()
        activity._spans = {client_id: _joined(each, 0) for client_id, each in found.items()}
        return activity

    def seen_ns(self, client_id: str, now_ns: int) -> int:
        """When the client wrote its last record up to `now_ns`; 0 if it wrote none. Within a span: `now_ns`."""
        spans = self._spans.get(client_id)
        if spans is None:
            return 0
        place = bisect_right(spans[0], now_ns) - 1
        return min(now_ns, spans[1][place]) if place >= 0 else 0

    def last_ns(self, client_id: str) -> int:
        """When the client wrote its last record of all; 0 if it wrote none."""
        spans = self._spans.get(client_id)
        return spans[1][-1] if spans is not None else 0

    def had_closed(self, client_id: str, now_ns: int) -> bool:
        """Whether the client had closed its trace before `now_ns` in an orderly shutdown."""
        closed_ns = self.closed_ns.get(client_id)
        return closed_ns is not None and closed_ns < now_ns


def _joined(spans: Iterable[tuple[int, int]], pause_ns: int) -> tuple["array[int]", "array[int]"]:
    """The spans in order; those with at most `pause_ns` between them are one."""
    begins, ends = array("q"), array("q")
    for begin, end in sorted(spans):
        if ends and begin <= ends[-1] + pause_ns:
            ends[-1] = max(ends[-1], end)
        else:
            begins.append(begin)
            ends.append(end)
    return begins, ends
