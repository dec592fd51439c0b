"""The timer fires at the earliest due time, and is not set while nothing waits."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker.messages.delays.due_timer import DueTimer


class _Timer:
    def __init__(self, due_ms: int, fire: Callable[..., object]) -> None:
        self.due_ms, self.fire, self.cancelled = due_ms, fire, False

    def cancel(self) -> None:
        self.cancelled = True


class _Runtime:
    """Of a Runtime, what the timer uses; `advance` fires what is due."""

    def __init__(self) -> None:
        self.at_ms = 1000
        self.timers: list[_Timer] = []

    def now_ms(self) -> int:
        return self.at_ms

    def call_later_ms(self, delay_ms: int, callback: Callable[..., object], *_: Any) -> _Timer:
        self.timers.append(_Timer(self.at_ms + delay_ms, callback))
        return self.timers[-1]

    @property
    def waiting_ms(self) -> list[int]:
        return [timer.due_ms for timer in self.timers if not timer.cancelled]

    def advance(self, at_ms: int) -> None:
        self.at_ms = at_ms
        for timer in [timer for timer in self.timers if not timer.cancelled and timer.due_ms <= at_ms]:
            self.timers.remove(timer)
            timer.fire()


class _Work:
    """Due at given times; each run takes those that are past."""

    def __init__(self) -> None:
        self.dues_ms: list[int] = []
        self.ran_at_ms: list[int] = []

    @property
    def next_due_ms(self) -> int | None:
        return min(self.dues_ms, default=None)

    def run(self, now_ms: int) -> None:
        self.ran_at_ms.append(now_ms)
        self.dues_ms = [due_ms for due_ms in self.dues_ms if due_ms > now_ms]


def new_timer() -> tuple[_Runtime, _Work, DueTimer]:
    runtime, work = _Runtime(), _Work()
    return runtime, work, DueTimer(runtime, work, work.run)  # type: ignore[arg-type]


def test_nothing_is_set_while_nothing_waits() -> None:
    """However often it is looked at."""
    runtime, _, timer = new_timer()
    timer.check()
    timer.check()
    assert runtime.timers == []


def test_it_is_set_to_the_earliest_and_anew_when_that_changes() -> None:
    """One timer at a time; looking again at the same costs none."""
    runtime, work, timer = new_timer()
    for due_ms, expected in ((5000, 5000), (9000, 5000), (3000, 3000)):
        work.dues_ms.append(due_ms)
        timer.check()
        assert runtime.waiting_ms == [expected]
    assert len(runtime.timers) == 2
    work.dues_ms.clear()
    timer.check()
    assert runtime.waiting_ms == []


def test_a_run_sets_the_next() -> None:
    """By itself; a time in the past is due at once."""
    runtime, work, timer = new_timer()
    work.dues_ms = [2000, 4000, 500]
    timer.check()
    assert runtime.waiting_ms == [1000]
    for at_ms in (1000, 2000, 4000):
        runtime.advance(at_ms)
    assert work.ran_at_ms == [1000, 2000, 4000]
    assert runtime.waiting_ms == []


def test_a_run_that_fails_is_tried_again() -> None:
    """A second later, as long as something is due: it must neither stop nor run at every turn of the loop."""
    runtime, work = _Runtime(), _Work()

    def fail(now_ms: int) -> None:
        work.ran_at_ms.append(now_ms)
        raise ValueError("no")

    timer = DueTimer(runtime, work, fail)  # type: ignore[arg-type]
    work.dues_ms = [2000]
    timer.check()
    for at_ms in (2000, 3000):
        with pytest.raises(ValueError, match="no"):
            runtime.advance(at_ms)
    assert work.ran_at_ms == [2000, 3000]
    assert runtime.waiting_ms == [4000]


def test_a_closed_one_stays_silent() -> None:
    """Its timer is cancelled, and no other is set, not by a run under way either."""
    runtime, work, timer = new_timer()
    work.dues_ms = [2000]
    timer.check()
    timer.close()
    assert runtime.waiting_ms == []
    work.dues_ms = [3000]
    timer.check()
    assert runtime.waiting_ms == []


def test_a_sleep_of_the_machine_is_counted() -> None:
    """The timer was set for two hours and the machine slept one of them: it is set again for the rest."""
    runtime, work, timer = new_timer()
    work.dues_ms = [7_201_000]
    timer.check()
    assert runtime.waiting_ms == [7_201_000]
    runtime.timers[0].due_ms += 3_600_000  # it stood still for an hour
    runtime.at_ms += 3_600_000
    timer.rearm()
    assert runtime.waiting_ms == [7_201_000]
    runtime.advance(7_201_000)
    assert work.ran_at_ms == [7_201_000]
    timer.close()
    work.dues_ms = [7_300_000]
    timer.rearm()
    assert runtime.waiting_ms == []
