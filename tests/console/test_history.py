"""Counts over time: how close the points are, how long they are kept, gaps, and how little memory they take."""

import sys
from itertools import pairwise

from lockstep.console.history import History
from lockstep.console.model import HISTORY_MS
from tests.console.readings import NOW_MS

MINUTE_MS = 60_000


def test_new_points_are_two_seconds_apart_and_old_ones_ten() -> None:
    """After two hours of one point each second: an hour is kept, the last 15 minutes of it finely."""
    history = History()
    for second in range(7200):
        history.note(NOW_MS + second * 1000, second, second, 0)
    points = list(history.points())
    now_ms = NOW_MS + 7_199_000
    steps = [(new.at_ms - old.at_ms, old.at_ms >= now_ms - 15 * MINUTE_MS) for old, new in pairwise(points)]
    assert {step for step, is_new in steps if is_new} == {2000}
    assert {step for step, is_new in steps if not is_new} <= {10_000, *range(2000, 12_000, 2000)}
    assert sum(step == 10_000 for step, is_new in steps if not is_new) > 260
    assert now_ms - HISTORY_MS <= points[0].at_ms <= now_ms - HISTORY_MS + 10_000
    assert sys.getsizeof(history._near) + sys.getsizeof(history._far) < 32_000


def test_points_between_others_lose_no_message_and_no_peak() -> None:
    """Counts only grow, and of the lags of ten seconds the highest stays."""
    history = History()
    for second in range(0, 1200, 2):
        history.note(NOW_MS + second * 1000, second * 5, second * 4, 1000 if second == 106 else 7)
    points = list(history.points())
    assert max(point.lag or 0 for point in points) == 1000
    assert (points[-1].came - points[0].came, points[-1].gone - points[0].gone) == (1198 * 5, 1198 * 4)


def test_a_gap_is_kept_as_long_as_points() -> None:
    """One for each silence, however often it is told, and also when it is the last that is known."""
    history = History()
    history.gap(NOW_MS)
    assert not history
    history.note(NOW_MS, 0, 0, 3)
    for second in range(10):
        history.gap(NOW_MS + 1000 + second * 1000)
    history.note(NOW_MS + 30_000, 9, 9, 4)
    wanted = [(0, 3), (1000, None), (30_000, 4)]
    assert [(point.at_ms - NOW_MS, point.lag) for point in history.points()] == wanted
    history.note(NOW_MS + 20 * MINUTE_MS, 9, 9, 4)
    assert [(point.at_ms - NOW_MS, point.lag) for point in history.points()][:3] == wanted
    assert [point.lag for point in history.points(NOW_MS + 2000)] == [None, 4, 4]
    history.gap(NOW_MS + 21 * MINUTE_MS)
    assert [point.lag for point in history.points(NOW_MS + 30 * MINUTE_MS)] == [None]


def test_gaps_and_points_in_turn_are_as_few_as_points() -> None:
    """Many groups of one topic, of which some are whole and some are not: the silence of one lasts until it is old."""
    history = History()
    for second in range(3600):
        for part in range(20):
            at_ms = NOW_MS + second * 1000 + part * 50
            history.note(at_ms, second, second, 0)
            history.gap(at_ms)
    assert sys.getsizeof(history._near) + sys.getsizeof(history._far) < 64_000
    assert {point.lag for point in history.points()} == {0, None}


def test_a_clock_that_is_put_back_begins_anew() -> None:
    """Points in the future would hide all that come until then."""
    history = History()
    history.note(NOW_MS + HISTORY_MS, 5, 5, 5)
    history.note(NOW_MS, 6, 6, 6)
    assert list(history.points()) == [(NOW_MS, 6, 6, 6)]


def test_any_number_of_a_broker_is_taken() -> None:
    """Offsets may be any number; what is kept has a bound."""
    history = History()
    history.note(NOW_MS, 10**30, 10**30, 10**30)
    (point,) = history.points()
    assert point.came == point.lag == 2**62
