"""ConsumerStatsManager: the windows of RocketMQ's StatsItem, at their boundaries."""

from collections.abc import Callable

import pytest

from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.protocol.bodies.client import ConsumeStatus
from lockstep.remoting.stats_window import StatsSnapshot, StatsWindow

Work = Callable[[int], None]


def sampled(stats: ConsumerStatsManager, first_s: int, last_s: int, work: Work | None = None) -> None:
    """A sample each 10 s; `work(second)` before each."""
    for second in range(first_s, last_s + 1, 10):
        if work is not None:
            work(second)
        stats.sample(second * 1000)


def test_rates_and_means_are_those_of_the_last_minute() -> None:
    """They use seven samples with 60 s from first to last; older samples are dropped."""
    stats = ConsumerStatsManager(0)

    def work(second: int) -> None:
        stats.pulled("T", 30, 6)
        for _ in range(10):
            stats.of("T").consumed(1, 5, failed=False)
        if second == 10:
            stats.of("T").consumed(2, 105, failed=True)

    sampled(stats, 10, 60, work)
    status = stats.status("T")
    assert (status.pull_rt, status.pull_tps, status.consume_ok_tps) == (6.0, 3.0, 1.0)
    assert status.consume_rt == pytest.approx((6 * 50 + 105) / 61)
    assert status.consume_failed_tps == pytest.approx(2 / 60)
    sampled(stats, 70, 70, work)
    assert (stats.status("T").consume_rt, stats.status("T").consume_failed_tps) == (5.0, 0.0)


def test_nothing_shows_before_the_next_sample() -> None:
    """Each 10 s; the first counts as if it had begun 10 s earlier, whenever that was."""
    stats = ConsumerStatsManager(0)
    sampled(stats, 10, 20)
    stats.of("T").consumed(50, 20, failed=False)
    assert stats.status("T") == ConsumeStatus()
    sampled(stats, 30, 30)
    assert stats.status("T") == ConsumeStatus(consume_rt=20.0, consume_ok_tps=5.0)


def test_what_failed_is_told_by_the_hour() -> None:
    """One sample each 10 min: none at 590 s; reported from 600 s until the hour's first sample is older than that."""
    stats = ConsumerStatsManager(0)
    stats.of("T").consumed(4, 1, failed=True)
    sampled(stats, 10, 590)
    assert stats.status("T").consume_failed_msgs == 0
    sampled(stats, 600, 600)
    assert stats.status("T").consume_failed_msgs == 4
    sampled(stats, 610, 4190)
    assert stats.status("T").consume_failed_msgs == 4
    sampled(stats, 4200, 4200)
    assert stats.status("T").consume_failed_msgs == 0


def test_the_mean_of_the_hour_stands_in_for_a_quiet_minute() -> None:
    """A topic without messages for a minute still reports its mean listener time; its rates are zero."""
    stats = ConsumerStatsManager(0)
    stats.of("T").consumed(1, 40, failed=False)
    sampled(stats, 10, 600)
    assert stats.status("T") == ConsumeStatus(consume_rt=40.0)


def test_a_batch_may_succeed_in_part() -> None:
    """One call, whose messages count where they belong."""
    stats = ConsumerStatsManager(0)
    stats.of("T").consumed_partly(3, 7, 12)
    sampled(stats, 10, 10)
    assert stats.status("T") == ConsumeStatus(consume_rt=12.0, consume_ok_tps=0.3, consume_failed_tps=0.7)


def test_a_topic_nothing_came_of_has_noughts() -> None:
    """It is subscribed, so it has a row."""
    assert ConsumerStatsManager(0).status("T") == ConsumeStatus()


def test_a_day_has_a_sample_an_hour() -> None:
    """25 of them; two samples at one time, of a clock that was set back, divide by nothing."""
    day = StatsWindow.day()
    for hour in range(1, 31):
        day.sample(hour * 3_600_000, hour * 3600, hour)
    assert day.snapshot() == StatsSnapshot(24 * 3600, 1.0, 3600.0)
    minute = StatsWindow.minute()
    minute.sample(10_000, 5, 1)
    minute.sample(0, 9, 2)
    assert minute.snapshot() == StatsSnapshot(9, 0.0, 4.5)
