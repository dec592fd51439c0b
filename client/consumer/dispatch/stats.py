"""What a consumer did of each topic, for GET_CONSUMER_RUNNING_INFO (wire.md 2.5), as RocketMQ counts it.

Rates and means are those of the last minute, by a sample each 10 s, and what failed is that of the last hour, by a
sample each 10 min: as in RocketMQ 4.9.8 a failure shows there only after the next of those.
"""

from lockstep.protocol.bodies.client import ConsumeStatus
from lockstep.remoting.stats_window import SAMPLE_INTERVAL_MS, SampleTimes, StatsWindow

__all__ = ["SAMPLE_INTERVAL_MS", "ConsumeStats", "TopicTotals"]


class TopicTotals:
    """Of one topic since the start."""

    __slots__ = ("calls", "consume_ms", "failed", "ok", "pull_ms", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = self.pulled = self.pull_ms = 0
        self.calls = self.ok = self.failed = self.consume_ms = 0

    def consumed(self, message_count: int, duration_ms: int, failed: bool) -> None:
        """One call of the listener, of one fate for all its messages."""
        self.calls += 1
        self.consume_ms += duration_ms
        if failed:
            self.failed += message_count
        else:
            self.ok += message_count

    def consumed_partly(self, ok_count: int, failed_count: int, duration_ms: int) -> None:
        """One call of a listener that acknowledged its first `ok_count` messages."""
        self.calls += 1
        self.consume_ms += duration_ms
        self.ok += ok_count
        self.failed += failed_count


class _Windows:
    """Of one topic; a value is sampled from when something was first added to it."""

    __slots__ = ("failed", "failed_hour", "ok", "pull_ms", "pulled", "rt", "rt_hour", "totals")

    def __init__(self) -> None:
        self.totals = TopicTotals()
        self.pull_ms, self.pulled = StatsWindow.minute(), StatsWindow.minute()
        self.rt, self.rt_hour = StatsWindow.minute(), StatsWindow.hour()
        self.ok = StatsWindow.minute()
        self.failed, self.failed_hour = StatsWindow.minute(), StatsWindow.hour()

    def sample(self, now_ms: int, hour: bool) -> None:
        totals = self.totals
        rows = (
            (totals.pulls, totals.pull_ms, self.pull_ms, None),
            (totals.pulls, totals.pulled, self.pulled, None),
            (totals.calls, totals.consume_ms, self.rt, self.rt_hour),
            (totals.ok, totals.ok, self.ok, None),
            (totals.failed, totals.failed, self.failed, self.failed_hour),
        )
        for times, value, minute_window, hour_window in rows:
            if times:
                minute_window.sample(now_ms, value, times)
                if hour and hour_window is not None:
                    hour_window.sample(now_ms, value, times)

    def status(self) -> ConsumeStatus:
        """The mean time of the listener is the hour's when the minute has none (ConsumerStatsManager.getConsumeRT)."""
        consume_rt = self.rt.snapshot()
        if not consume_rt.sum:
            consume_rt = self.rt_hour.snapshot()
        return ConsumeStatus(
            pull_rt=self.pull_ms.snapshot().avgpt,
            pull_tps=self.pulled.snapshot().tps,
            consume_rt=consume_rt.avgpt,
            consume_ok_tps=self.ok.snapshot().tps,
            consume_failed_tps=self.failed.snapshot().tps,
            consume_failed_msgs=self.failed_hour.snapshot().sum,
        )


class ConsumeStats:
    """Call `sample` every `SAMPLE_INTERVAL_MS` from the start on; what came since the last one is not told yet."""

    def __init__(self, now_ms: int) -> None:
        self.longest_wait_ms = 0  # of a listener call for a thread, where it was long
        self.calls_not_begun = 0  # given back when their thread came
        self._topics: dict[str, _Windows] = {}
        self._times = SampleTimes(now_ms)

    def pulled(self, topic: str, message_count: int, duration_ms: int) -> None:
        """A pull that found messages, and how long its answer took; `message_count` are left after the filter."""
        totals = self.of(topic)
        totals.pulls += 1
        totals.pulled += message_count
        totals.pull_ms += duration_ms

    def waited(self, duration_ms: int, *, begun: bool) -> None:
        """A listener call that waited long for a thread, or was not begun when it had one."""
        self.longest_wait_ms = max(self.longest_wait_ms, duration_ms)
        if not begun:
            self.calls_not_begun += 1

    def of(self, topic: str) -> TopicTotals:
        """The topic's totals, which stay the same object."""
        windows = self._topics.get(topic)
        if windows is None:
            windows = self._topics[topic] = _Windows()
        return windows.totals

    def sample(self, now_ms: int) -> None:
        hour, _ = self._times.due(now_ms)
        for windows in self._topics.values():
            windows.sample(now_ms, hour)

    def status(self, topic: str) -> ConsumeStatus:
        """Means in ms and rates a second, of the last minute; the messages that failed in the last hour."""
        windows = self._topics.get(topic)
        return windows.status() if windows is not None else ConsumeStatus()
