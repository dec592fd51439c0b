"""The last samples of a growing value, as RocketMQ's StatsItem keeps them in brokers and clients.

A sample is taken every 10 s for the minute, every 10 min for the hour and every hour for the day. A window reports the
time between its first and its last sample: a change shows only after the next sample.
"""

from collections import deque
from typing import Final, NamedTuple

__all__ = ["SAMPLE_INTERVAL_MS", "SampleTimes", "StatsSnapshot", "StatsWindow"]

SAMPLE_INTERVAL_MS: Final = 10_000
_HOUR_SAMPLE_MS: Final = 600_000
_DAY_SAMPLE_MS: Final = 3_600_000


class StatsSnapshot(NamedTuple):
    """One window of time: a sum, the mean a second (`tps`), and the mean of one addition (`avgpt`)."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsWindow:
    """Samples of (epoch ms, sum, times). A zero sample one interval before the first one is the start."""

    __slots__ = ("interval_ms", "samples")

    def __init__(self, interval_ms: int, sample_count: int) -> None:
        self.interval_ms = interval_ms
        self.samples: deque[tuple[int, int, int]] = deque(maxlen=sample_count)

    @classmethod
    def minute(cls) -> "StatsWindow":
        return cls(SAMPLE_INTERVAL_MS, 7)

    @classmethod
    def hour(cls) -> "StatsWindow":
        return cls(_HOUR_SAMPLE_MS, 7)

    @classmethod
    def day(cls) -> "StatsWindow":
        return cls(_DAY_SAMPLE_MS, 25)

    def sample(self, now_ms: int, value: int, times: int) -> None:
        """Add a sample: `value` and `times` are totals since the start."""
        if not self.samples:
            self.samples.append((now_ms - self.interval_ms, 0, 0))
        self.samples.append((now_ms, value, times))

    def snapshot(self) -> StatsSnapshot:
        if not self.samples:
            return StatsSnapshot()
        (first_ms, first, first_times), (last_ms, last, last_times) = self.samples[0], self.samples[-1]
        total, times, passed_ms = last - first, last_times - first_times, last_ms - first_ms
        return StatsSnapshot(total, total * 1000 / passed_ms if passed_ms > 0 else 0.0, total / times if times else 0.0)


class SampleTimes:
    """Says every 10 s whether the samples of the hour and of the day are due."""

    def __init__(self, now_ms: int) -> None:
        self._hour_ms = self._day_ms = now_ms

    def due(self, now_ms: int) -> tuple[bool, bool]:
        hour, day = now_ms - self._hour_ms >= _HOUR_SAMPLE_MS, now_ms - self._day_ms >= _DAY_SAMPLE_MS
        self._hour_ms = now_ms if hour else self._hour_ms
        self._day_ms = now_ms if day else self._day_ms
        return hour, day
