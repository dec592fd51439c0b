"""ConsumerStatsManager: the statistics of a consumer for each topic, for GET_CONSUMER_RUNNING_INFO (wire.md 2.5).

As in RocketMQ 4.9.8, rates and means are of the last minute, with a sample every 10 s. The number of failed messages is
of the last hour, with a sample every 10 min, so a failure is visible only after the next of these samples.
"""

from collections.abc import Mapping

from lockstep.client.consumer.cache.arrivals import Arrivals
from lockstep.client.consumer.dispatch.call_times import CallTimes
from lockstep.protocol.bodies.client import ConsumeStatus
from lockstep.remoting.stats_window import SAMPLE_INTERVAL_MS, SampleTimes, StatsWindow

__all__ = ["SAMPLE_INTERVAL_MS", "ConsumerStatsManager", "TopicTotals"]


class TopicTotals:
    """The totals of one topic since the start.

    Args:
        slow_ms: calls that take longer are counted as slow.
        times: for metrics, if the user asked for them.
    """

    __slots__ = ("calls", "consume_ms", "failed", "ok", "pull_ms", "pulled", "pulls", "slow", "slow_ms", "times")

    def __init__(self, slow_ms: int, times: CallTimes | None = None) -> None:
        self.slow_ms = slow_ms
        self.slow = 0
        self.times = times
        self.pulls = 0
        self.pulled = 0
        self.pull_ms = 0
        self.calls = 0
        self.ok = 0
        self.failed = 0
        self.consume_ms = 0

    def consumed(self, message_count: int, duration_ms: int, failed: bool) -> None:
        """Count a listener call with one result for all its messages."""
        self.calls += 1
        self.consume_ms += duration_ms
        self.slow += duration_ms > self.slow_ms
        if self.times is not None:
            (self.times.failed if failed else self.times.handled).count(duration_ms)
        if failed:
            self.failed += message_count
        else:
            self.ok += message_count

    def handled(self, message_count: int, calls: int, spent_ms: int) -> None:
        """Count listener calls that all succeeded. None of them was slow, and nobody measures them."""
        self.calls += calls
        self.consume_ms += spent_ms
        self.ok += message_count

    def consumed_partly(self, ok_count: int, failed_count: int, duration_ms: int) -> None:
        """Count a listener call that acknowledged its first `ok_count` messages."""
        self.calls += 1
        self.consume_ms += duration_ms
        self.slow += duration_ms > self.slow_ms
        if self.times is not None:
            (self.times.failed if failed_count else self.times.handled).count(duration_ms)
        self.ok += ok_count
        self.failed += failed_count

    def waited(self, arrivals: Arrivals, offset: int, began_ms: int) -> None:
        """Note how long the first message of a call, at `offset`, had been here when the call began."""
        if self.times is not None:
            self.times.waits.count(arrivals.waited_ms(offset, began_ms))


class _Windows:
    """The windows of one topic. A value is sampled from its first change on."""

    __slots__ = ("failed", "failed_hour", "ok", "pull_ms", "pulled", "rt", "rt_hour", "totals")

    def __init__(self, totals: TopicTotals) -> None:
        self.totals = totals
        self.pull_ms = StatsWindow.minute()
        self.pulled = StatsWindow.minute()
        self.rt = StatsWindow.minute()
        self.rt_hour = StatsWindow.hour()
        self.ok = StatsWindow.minute()
        self.failed = StatsWindow.minute()
        self.failed_hour = StatsWindow.hour()

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
        """The mean listener time is that of the hour if the minute has none (ConsumerStatsManager.getConsumeRT)."""
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


class ConsumerStatsManager:
    """Call `sample` every `SAMPLE_INTERVAL_MS` from the start on. Later events show after the next sample.

    Args:
        measured: keep the times of calls for metrics too.
        slow_ms: calls that take longer are counted as slow: half the life of a lock.
    """

    def __init__(self, now_ms: int, *, measured: bool = False, slow_ms: int = 30_000) -> None:
        self.measured = measured
        self._slow_ms = slow_ms
        self.longest_wait_ms = 0  # the longest wait of a listener call for a thread, if it was long
        self.calls_not_begun = 0  # when their thread was free, they were not allowed any more
        self.calls_outlived = 0  # they ran on when the lease of their fenced lock had ended, or the lock was lost
        self.calls_cancelled = 0  # because their fenced lock was lost, or their delivery had ended
        self.deliveries_lost = 0  # of pops: they had ended before they were answered
        self._topics: dict[str, _Windows] = {}
        self._times = SampleTimes(now_ms)

    def pulled(self, topic: str, message_count: int, duration_ms: int) -> None:
        """Count a pull that found messages. `message_count` is the number after the filter."""
        totals = self.of(topic)
        totals.pulls += 1
        totals.pulled += message_count
        totals.pull_ms += duration_ms

    def waited(self, duration_ms: int, *, begun: bool) -> None:
        """Count a listener call that waited long for a thread, or was not begun."""
        self.longest_wait_ms = max(self.longest_wait_ms, duration_ms)
        if not begun:
            self.calls_not_begun += 1

    def of(self, topic: str) -> TopicTotals:
        """Return the totals of a topic, always the same object."""
        windows = self._topics.get(topic)
        if windows is None:
            times = CallTimes() if self.measured else None
            windows = self._topics[topic] = _Windows(TopicTotals(self._slow_ms, times))
        return windows.totals

    @property
    def totals(self) -> Mapping[str, TopicTotals]:
        """By topic. Any thread may call it."""
        return {topic: windows.totals for topic, windows in self._topics.copy().items()}

    def sample(self, now_ms: int) -> None:
        hour, _ = self._times.due(now_ms)
        for windows in self._topics.values():
            windows.sample(now_ms, hour)

    def status(self, topic: str) -> ConsumeStatus:
        """Return means in ms and rates per second of the last minute, and the failed messages of the last hour."""
        windows = self._topics.get(topic)
        return windows.status() if windows is not None else ConsumeStatus()
