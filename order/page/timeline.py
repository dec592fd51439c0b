"""Collects from the records of a check what the plots of a report show: owners, calls, waiting messages."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lockstep.order.offset_set import OffsetSet
from lockstep.order.page.run import Found, JudgedRun, OwnerBar, Rates, span_of
from lockstep.order.report import OrderReport, Violation
from lockstep.order.story import Moment
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.merge import TimedRecord
from lockstep.order.traces.reader import Record
from lockstep.protocol.model import MessageQueue

__all__ = ["Timeline"]

# Bins with records; with more, the bins become twice as wide.
_BINS_MAX: Final = 2000
_CALLS, _AGAIN, _SENT, _FIRST = "calls", "again", "sent", "first"


@dataclass(slots=True)
class _Bar:
    from_ns: int
    to_ns: int
    first_offset: int | None = None
    last_offset: int | None = None
    attempts: int = 0


class Timeline:
    """Pass the records of a check through `watch`; then `run` combines the result with the report."""

    def __init__(self) -> None:
        self._clocks: Clocks | None = None
        self._bars: dict[tuple[str, str, str, int, str, int], _Bar] = {}
        self._handled: defaultdict[tuple[str, str, str, int], OffsetSet] = defaultdict(OffsetSet)
        self._bin_ns = 1_000_000
        self._bins: defaultdict[int, Counter[tuple[str, ...]]] = defaultdict(Counter)
        self._clocks_of: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)

    def watch(self, records: Iterable[TimedRecord], clocks: Clocks) -> Iterator[TimedRecord]:
        """Yield the records, and note them."""
        self._clocks = clocks
        for timed in records:
            self._note(*timed)
            yield timed

    def run(self, name: str, report: OrderReport, files: Sequence[str]) -> JudgedRun:
        """The data of a page. Call it after the last record."""
        owners = [
            OwnerBar(group, MessageQueue(topic, broker, queue_id), client_id, period,
                     bar.from_ns, bar.to_ns, bar.first_offset, bar.last_offset, bar.attempts)
            for (group, topic, broker, queue_id, client_id, period), bar in self._bars.items()
        ]  # fmt: skip
        calls = {
            place * self._bin_ns: (counts[_CALLS,], counts[_AGAIN,])
            for place, counts in sorted(self._bins.items())
            if counts[_CALLS,]
        }
        found = [self._found(one) for one in (*report.violations, *report.undecided)]
        return JudgedRun(name, report, files, owners, Rates(self._bin_ns, calls), self._waiting(), found)

    def _note(self, time_ns: int, source: int, clock: int, record: Record) -> None:
        event, client_id = record["event"], record.get("client_id")
        self._clocks_of[_writer(record)].add(clock)
        if "queue_id" not in record or "topic" not in record:
            return
        topic = record["topic"]
        if event == "sent":
            self._count(time_ns, (_SENT, topic))
            return
        queue = (record.get("group", ""), topic, record["broker"], record["queue_id"])
        if client_id is None or (record.get("offset") is None and event != "acquired" and "period" not in record):
            return
        name = (*queue, client_id, record.get("period", 0))
        bar = self._bars.get(name)
        if bar is None:
            bar = self._bars[name] = _Bar(time_ns, time_ns)
        bar.to_ns = max(bar.to_ns, time_ns)
        if event == "handled":
            self._note_call(bar, queue, time_ns, record)

    def _note_call(self, bar: _Bar, queue: tuple[str, str, str, int], time_ns: int, record: Record) -> None:
        offset, begin = record["offset"], record.get("begin_mono_ns")
        if begin is not None and "mono_ns" in record:
            bar.from_ns = min(bar.from_ns, time_ns - max(record["mono_ns"] - begin, 0))
        bar.attempts += 1
        bar.first_offset = offset if bar.first_offset is None else min(offset, bar.first_offset)
        bar.last_offset = offset if bar.last_offset is None else max(offset, bar.last_offset)
        self._count(time_ns, (_CALLS,))
        if self._handled[queue].add(offset):
            self._count(time_ns, (_FIRST, *queue[:2]))
        else:
            self._count(time_ns, (_AGAIN,))

    def _count(self, time_ns: int, name: tuple[str, ...]) -> None:
        self._bins[time_ns // self._bin_ns][name] += 1
        if len(self._bins) > _BINS_MAX:
            self._bin_ns *= 2
            narrow, self._bins = self._bins, defaultdict(Counter)
            for place, counts in narrow.items():
                self._bins[place // 2].update(counts)

    def _waiting(self) -> dict[str, list[tuple[int, int]]]:
        """Messages that were sent and not yet handled, for each group and topic with a producer's trace."""
        bins = sorted(self._bins.items())
        names = {name for _, counts in bins for name in counts}
        curves: dict[str, list[tuple[int, int]]] = {}
        for _, group, topic in sorted(name for name in names if name[0] == _FIRST and (_SENT, name[2]) in names):
            waits, points = 0, []
            for place, counts in bins:
                waits += counts[_SENT, topic] - counts[_FIRST, group, topic]
                points.append(((place + 1) * self._bin_ns, max(waits, 0)))
            curves[f"{group}, {topic}"] = points
        return curves

    def _found(self, violation: Violation) -> Found:
        moments = tuple(Moment(self._time_ns(record), record) for record in violation.evidence)
        return Found(violation, moments, span_of(violation.kind, moments))

    def _time_ns(self, record: Record) -> int:
        """The time on the common axis: of its writer's clocks the one that is nearest to the record's wall clock."""
        mono, wall_ns = record.get("mono_ns"), int(record["wall_ms"]) * 1_000_000
        if mono is None or self._clocks is None:
            return wall_ns
        times = [int(mono) + self._clocks.axis_ns[clock] for clock in self._clocks_of[_writer(record)]]
        return min(times, key=lambda time_ns: abs(time_ns - wall_ns), default=wall_ns)


def _writer(record: Record) -> tuple[Any, ...]:
    return (record.get("client_id"), record.get("host"), record.get("boot"))
