"""RocketMQ's statistics of stored and pulled messages, for the last minute, hour and day (wire.md 2.4, 2.6).

Stored messages are not counted one by one: the offsets of the queues give their number. Pulled messages are counted
once a pull. Samples are taken every 10 s for the minute, 10 min for the hour and 1 h for the day.
"""

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, Protocol

from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.admin import BrokerStatsData, BrokerStatsItem
from lockstep.remoting.stats_window import SAMPLE_INTERVAL_MS, SampleTimes, StatsWindow
from lockstep.store.base import TakenQueue

__all__ = ["SAMPLE_INTERVAL_MS", "BrokerStats", "Counted", "Rates", "Totals"]

_DAY_MS: Final = 86_400_000
# Rows of topic, queue and group that are not added to the items yet.
_GETS_MAX: Final = 256
_ITEMS_A_STEP: Final = 256
# Each may open a file, and make three items.
_QUEUES_A_STEP: Final = 16
_RATE_WINDOWS_MS: Final = (10_000, 60_000, 600_000)


class Counted(Protocol):
    """The part of a message store that statistics read."""

    def queue_keys(self) -> list[tuple[str, int]]:
        """(topic, queue id) of each queue that has had messages."""

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def stored_bytes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> int:
        """The stored size of the messages in a range; dropped messages do not count."""


class _Item:
    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self.minute = StatsWindow.minute()
        self.hour = StatsWindow.hour()
        self.day = StatsWindow.day()

    def add(self, value: int, times: int) -> None:
        self.value += value
        self.times += times

    @property
    def is_idle(self) -> bool:
        """Whether nothing was added for a day."""
        samples = self.day.samples
        return len(samples) == samples.maxlen and samples[0][1:] == (self.value, self.times)


class Rates(NamedTuple):
    """Per second, over the last 10 s, 60 s and 600 s, or since the start."""

    ten_seconds: float
    minute: float
    ten_minutes: float

    def __str__(self) -> str:
        return " ".join(map(str, self))


class Totals(NamedTuple):
    """Counts since the start. `missed`: pulls without a message."""

    put: int = 0
    put_bytes: int = 0
    got: int = 0
    found: int = 0
    missed: int = 0


class BrokerStats:
    """The statistics of one broker. Only `on_got` and `missed` are used on the hot path.

    With `items_max` items no new ones are added, until `sample` removes items that were idle for a day. `on_full` is
    then called every 10 s with `items_max` and epoch ms.
    """

    def __init__(
        self,
        store: Counted,
        cluster: str,
        now_ms: int,
        items_max: int = sys.maxsize,
        on_full: Callable[[int, int], None] = lambda items_max, now_ms: None,
    ) -> None:
        self._items_max = items_max
        self._on_full = on_full
        self._is_full = False
        # Since the last count.
        self._got = 0
        self._found = 0
        self._store = store
        self._cluster = cluster
        self._items = {(name, cluster): _Item() for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")}
        self._offsets: dict[tuple[str, int], int] = {}  # queue offsets up to which messages are counted
        self._gets: dict[tuple[str, int, str], list[int]] = {}  # (topic, queue id, group) -> messages, bytes, pulls
        self._totals = Totals()
        self._history: deque[tuple[int, Totals]] = deque([(now_ms, self._totals)], _RATE_WINDOWS_MS[-1] // 10_000 + 2)
        self._mornings: list[tuple[int, Totals]] = [
            (now_ms, self._totals)
        ] * 2  # at the start of yesterday and of today
        self._sample_times = SampleTimes(now_ms)
        self.missed = 0
        self.started_ms = now_ms

    # Counting ------------------------------------------------------------------------------------------------

    def on_got(self, group: str, topic: str, queue_id: int, message_count: int, body_bytes: int) -> None:
        """A pull was answered with messages."""
        key = (topic, queue_id, group)
        counts = self._gets.get(key)
        if counts is None:
            if len(self._gets) >= _GETS_MAX:
                self._count_gets()
            counts = self._gets[key] = [0, 0, 0]
        counts[0] += message_count
        counts[1] += body_bytes
        counts[2] += 1

    def on_sent_back(self, group: str, topic: str) -> None:
        self._add("SNDBCK_PUT_NUMS", f"{topic}@{group}", 1, 1)

    def forget_topic(self, topic: str) -> dict[int, int]:
        """Let a new topic of that name begin at 0. Returns up to where each queue is counted."""
        return {key[1]: self._offsets.pop(key) for key in [key for key in self._offsets if key[0] == topic]}

    def count_deleted(self, topic: str, queue_id: int, first: int, queue: TakenQueue) -> None:
        """Count the messages of a queue that was deleted, from offset `first` on."""
        count = queue.max_offset - first
        if count <= 0:
            return
        try:
            size_bytes = queue.stored_bytes(first, queue.max_offset)
        except OSError:
            size_bytes = 0  # its files cannot be read any more
        self._add_put(topic, queue_id, count, size_bytes)
        self._add("BROKER_PUT_NUMS", self._cluster, count, count)
        put, put_bytes = self._totals.put + count, self._totals.put_bytes + size_bytes
        self._totals = self._totals._replace(put=put, put_bytes=put_bytes)

    def _add_put(self, topic: str, queue_id: int, count: int, size_bytes: int) -> None:
        self._add("TOPIC_PUT_NUMS", topic, count, count)
        self._add("TOPIC_PUT_SIZE", topic, size_bytes, count)
        self._add("QUEUE_PUT_NUMS", f"{topic}@{queue_id}", count, count)

    def count(self) -> Totals:
        """Update all items. Returns the totals."""
        deque(self.count_in_steps(), 0)
        return self._totals

    def count_in_steps(self) -> Generator[None, None, Totals]:
        """As `count`, some queues a step. Between two steps others may count, and topics may be deleted."""
        put = put_bytes = 0
        for number, (topic, queue_id) in enumerate(self._store.queue_keys(), 1):
            if number % _QUEUES_A_STEP == 0:
                yield None
            first, end = self._offsets.get((topic, queue_id), 0), self._store.max_offset(topic, queue_id)
            if end <= first:
                continue
            size_bytes = self._store.stored_bytes(topic, queue_id, first, end)
            self._offsets[topic, queue_id] = end
            self._add_put(topic, queue_id, end - first, size_bytes)
            put += end - first
            put_bytes += size_bytes
        self._count_gets()
        got, found, self._got, self._found = self._got, self._found, 0, 0
        self._add("BROKER_PUT_NUMS", self._cluster, put, put)
        self._add("BROKER_GET_NUMS", self._cluster, got, found)
        before = self._totals
        self._totals = Totals(
            before.put + put, before.put_bytes + put_bytes, before.got + got, before.found + found, self.missed
        )
        return self._totals

    def _count_gets(self) -> None:
        gets, self._gets = self._gets, {}
        for (topic, queue_id, group), (messages, size_bytes, pulls) in gets.items():
            self._add("GROUP_GET_NUMS", f"{topic}@{group}", messages, pulls)
            self._add("GROUP_GET_SIZE", f"{topic}@{group}", size_bytes, pulls)
            self._add("QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}", messages, pulls)
            self._got += messages
            self._found += pulls

    def _add(self, name: str, key: str, value: int, times: int) -> None:
        item = self._items.get((name, key))
        if item is None:
            if len(self._items) >= self._items_max:
                self._is_full = True
                return
            item = self._items[name, key] = _Item()
        item.add(value, times)

    # Sampling ------------------------------------------------------------------------------------------------

    def sample(self, now_ms: int) -> Steps:
        """Called every 10 s; some queues or items a step."""
        totals = yield from self.count_in_steps()
        self._history.append((now_ms, totals))
        if now_ms // _DAY_MS > self._mornings[1][0] // _DAY_MS:  # days are those of UTC
            self._mornings = [self._mornings[1], (now_ms, totals)]
        is_hour, is_day = self._sample_times.due(now_ms)
        is_full, self._is_full = self._is_full, False
        if is_full:
            self._on_full(self._items_max, now_ms)
        for number, (key, item) in enumerate(tuple(self._items.items()), 1):
            if is_full and item.is_idle:
                del self._items[key]
            item.minute.sample(now_ms, item.value, item.times)
            if is_hour:
                item.hour.sample(now_ms, item.value, item.times)
            if is_day:
                item.day.sample(now_ms, item.value, item.times)
            if number % _ITEMS_A_STEP == 0:
                yield None

    # Reading -------------------------------------------------------------------------------------------------

    def counters(self) -> Iterator[tuple[str, str, int]]:
        """(statistic, key, its sum since it was first counted) of the items of this moment, as of the last count."""
        return ((name, key, item.value) for (name, key), item in tuple(self._items.items()))

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """One item, as of the last count; None if nothing was ever counted for it."""
        item = self._items.get((name, key))
        if item is None:
            return None
        return BrokerStatsData(*(BrokerStatsItem(*w.snapshot()) for w in (item.minute, item.hour, item.day)))

    def group_get_tps(self, topic: str, group: str) -> float:
        item = self._items.get(("GROUP_GET_NUMS", f"{topic}@{group}"))
        return item.minute.snapshot().tps if item is not None else 0.0

    def mornings(self) -> tuple[Totals, Totals]:
        """The totals at the start of yesterday and of today, or at the start of the broker."""
        return self._mornings[0][1], self._mornings[1][1]

    def rates(self, now_ms: int, field: str) -> Rates:
        """The growth of a field of the totals, per second, up to the last call of `count`."""
        current = getattr(self._totals, field)
        return Rates(*(self._rate(now_ms, window_ms, field, current) for window_ms in _RATE_WINDOWS_MS))

    def _rate(self, now_ms: int, window_ms: int, field: str, current: int) -> float:
        before_ms, before = self._history[0]
        for at_ms, totals in self._history:
            if now_ms - at_ms < window_ms:
                break
            before_ms, before = at_ms, totals
        passed_ms = now_ms - before_ms
        grown: int = current - getattr(before, field)
        return grown * 1000 / passed_ms if passed_ms > 0 else 0.0
