"""What is no rule: how long calls and messages took, how many a second, and who owned a queue from when to when."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from math import log2
from typing import Any, Final

from lockstep.order.judge.queue_judge import QueueResult
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record
from lockstep.protocol.model import MessageQueue

__all__ = ["Measures"]

_STEPS: Final = 32  # of a histogram, between a value and its double: percentiles are right to 2 %
Row = dict[str, Any]


class _Histogram:
    """Values in milliseconds, in steps of 2 %."""

    __slots__ = ("_counts", "_high", "_low")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._low = float("inf")
        self._high = 0.0

    def add(self, value_ms: float) -> None:
        self._counts[int(log2(value_ms) * _STEPS) if value_ms > 1e-6 else -1000] += 1
        if value_ms > self._high:
            self._high = value_ms
        if value_ms < self._low:
            self._low = value_ms

    def row(self) -> Row:
        """The columns of the table `latency`."""
        total = self._counts.total()
        found = {"messages": total, "max_ms": self._high}
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
            left = share * total
            for step, count in sorted(self._counts.items()):
                left -= count
                if left <= 0:
                    found[name] = min(max(2 ** ((step + 0.5) / _STEPS), self._low), self._high)
                    break
        return found


class _Group:
    """The measures of one consumer group."""

    def __init__(self) -> None:
        self.handling = _Histogram()
        self.lag = _Histogram()
        self.second = -1
        self.attempts = 0
        self.repeats = 0  # until the last second
        self.rates: list[tuple[int, int, int]] = []  # second, attempts, repeats
        self.waiting: dict[int, float] = {}  # first handlings of messages whose store time is not known yet
        self.measured: set[int] = set()


class Measures:
    """The measures of one queue. Memory grows with seconds, and with the messages whose lag is measured."""

    def __init__(
        self,
        history: str,
        queue: MessageQueue,
        repeats: Callable[[str], int],
        stored_ms: Mapping[int, int],
        every: int,
    ) -> None:
        """`stored_ms` is when messages were stored, if the topic was read; `every`: of every n-th offset."""
        self._history = history
        self._queue = queue
        self._repeats = repeats
        self._every = every
        self._stored_ms: dict[int, float] = dict(stored_ms)
        self._is_read = bool(stored_ms)
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)

    def note(self, record: Record, time_ns: int) -> None:
        """Take a record that was judged."""
        event = record["event"]
        if event == "handled":
            self._handled(record, time_ns)
        elif event == "sent" and not self._is_read and record["offset"] % self._every == 0:
            self._sent(record["offset"], time_ns / 1e6)

    def _handled(self, record: Record, time_ns: int) -> None:
        name = record["group"]
        group = self._groups[name]
        second = time_ns // 1_000_000_000
        if second != group.second:
            self._end_second(name, group)
            group.second = second
        group.attempts += 1
        begin, offset = record.get("begin_mono_ns"), record["offset"]
        if begin is not None and "mono_ns" in record:
            group.handling.add((record["mono_ns"] - begin) / 1e6)
        if offset % self._every == 0 and offset not in group.measured:
            group.measured.add(offset)
            stored_ms = self._stored_ms.get(offset)
            if stored_ms is not None:
                group.lag.add(max(time_ns / 1e6 - stored_ms, 0.0))
            elif not self._is_read:
                group.waiting[offset] = time_ns / 1e6

    def _sent(self, offset: int, stored_ms: float) -> None:
        self._stored_ms.setdefault(offset, stored_ms)
        for group in self._groups.values():
            handled_ms = group.waiting.pop(offset, None)
            if handled_ms is not None:
                group.lag.add(max(handled_ms - stored_ms, 0.0))

    def _end_second(self, name: str, group: _Group) -> None:
        if group.attempts:
            repeats = self._repeats(name)
            group.rates.append((group.second, group.attempts, repeats - group.repeats))
            group.attempts, group.repeats = 0, repeats

    def tables(self, result: QueueResult, clocks: Clocks) -> dict[str, list[Row]]:
        """Rows of the tables owners, latency and rates. Call it after the last record."""
        owners, latency, rates = list[Row](), list[Row](), list[Row]()
        queue = self._queue
        for name, group in self._groups.items():
            self._end_second(name, group)
            place = self._place(name)
            for measure, values in (("handling", group.handling), ("lag", group.lag)):
                row = values.row()
                if row["messages"]:
                    latency.append({**place, "measure": measure, **row})
            topic = {"history": self._history, "group": name, "topic": queue.topic}
            rates += [
                {**topic, "second_ms": second * 1000, "attempts": attempts, "repeats": repeats}
                for second, attempts, repeats in group.rates
            ]
        for name, judged in result.groups.items():
            owners += [
                {
                    **self._place(name),
                    "client_id": period.client_id,
                    "period": period.number,
                    "from_ms": period.born_ns // 1_000_000,
                    "to_ms": period.until_ns // 1_000_000,
                    "first_offset": period.first_offset if period.attempts else None,
                    "last_offset": period.last_offset if period.attempts else None,
                    "attempts": period.attempts,
                    "overlaps": judged.overlaps[period.client_id, period.number],
                    "begin_ms": period.born_ns / 1e6,
                    "end_ms": max(period.until_ns, period.born_ns) / 1e6,
                    "clock": clocks.name(period.clock),
                }
                for period in judged.periods
            ]
        return {"owners": owners, "latency": latency, "rates": rates}

    def _place(self, group: str) -> Row:
        queue = self._queue
        return {
            "history": self._history, "group": group, "topic": queue.topic, "broker": queue.broker_name,
            "queue_id": queue.queue_id,
        }  # fmt: skip
