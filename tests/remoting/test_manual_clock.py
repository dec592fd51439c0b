"""A clock that is moved: timers run in their order, each at its own time, and what is cancelled does not."""

import asyncio
import random
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.remoting.host.manual_clock import HeldPort, ManualClockRuntime
from lockstep.remoting.host.runtime import AsyncioRuntime, TimerHandle
from tests.remoting.helpers import SteppedRuntime, until

START_MS = 1_700_000_000_000


class _Pair:
    def __init__(self) -> None:
        self.inner = SteppedRuntime()
        self.runtime = ManualClockRuntime(self.inner)
        self.ran: list[tuple[str, int]] = []

    def note(self, name: str) -> None:
        self.ran.append((name, self.runtime.now_ms() - START_MS))


@pytest.fixture
async def pair() -> _Pair:
    """A movable runtime on one whose clock stands still."""
    return _Pair()


async def test_timers_run_in_order_each_at_its_own_time(pair: _Pair) -> None:
    """The clock stands at each timer's time while it runs, and at the end of the move after the last."""
    for name, delay_ms in (("late", 60_000), ("first", 10), ("second", 10), ("never", 61_001)):
        pair.runtime.call_later_ms(delay_ms, pair.note, name)
    pair.runtime.advance(61_000)
    assert pair.ran == [("first", 10), ("second", 10), ("late", 60_000)]
    assert pair.runtime.now_ms() == START_MS + 61_000
    assert pair.runtime.advanced_ms == 61_000


async def test_timers_set_on_the_way_run_on_the_way(pair: _Pair) -> None:
    """One that sets itself again each second runs once for each second of the move."""

    def tick() -> None:
        pair.note("tick")
        pair.runtime.call_later_ms(1000, tick)

    pair.runtime.call_later_ms(1000, tick)
    pair.runtime.advance(3500)
    assert pair.ran == [("tick", 1000), ("tick", 2000), ("tick", 3000)]


async def test_steps_of_work_have_turns_of_their_own() -> None:
    """A timer that a timer sets for now runs after what the loop has to do, not in the same callback."""
    runtime, seen = ManualClockRuntime(AsyncioRuntime()), list[str]()

    def step() -> None:
        asyncio.get_running_loop().call_soon(seen.append, "another")
        seen.append("step")
        if seen.count("step") < 3:
            runtime.call_later_ms(0, step)

    runtime.call_later_ms(0, step)
    await until(lambda: seen.count("another") == 3)
    assert seen == ["step", "another"] * 3


async def test_real_time_still_passes(pair: _Pair) -> None:
    """What was not reached by a move becomes due by the clock below, that much earlier."""
    pair.runtime.call_later_ms(5000, pair.note, "a")
    pair.runtime.advance(4000)
    pair.inner.advance(999)
    assert pair.ran == []
    pair.inner.advance(1)
    assert pair.ran == [("a", 5000)]


async def test_both_clocks_move(pair: _Pair) -> None:
    """Intervals by `monotonic_ns` are as long as those by `now_ms`."""
    before = pair.runtime.monotonic_ns()
    pair.runtime.advance(61_000)
    assert pair.runtime.monotonic_ns() - before >= 61_000_000_000


async def test_a_cancelled_timer_does_not_run(pair: _Pair) -> None:
    """Cancelled before the move, or by an earlier timer of the same move."""
    first = pair.runtime.call_later_ms(10, pair.note, "first")
    third = pair.runtime.call_later_ms(30, pair.note, "third")
    pair.runtime.call_later_ms(20, third.cancel)
    first.cancel()
    first.cancel()
    pair.runtime.advance(100)
    assert pair.ran == []


async def test_cancelled_timers_do_not_pile_up(pair: _Pair) -> None:
    """Each connection sets and cancels timers of two minutes; the heap holds those that live, and some more."""
    kept = pair.runtime.call_later_ms(120_000, pair.note, "kept")
    for _ in range(20_000):
        pair.runtime.call_later_ms(120_000, pair.note, "cancelled").cancel()
    assert len(pair.runtime._heap) < 2100
    assert len(pair.inner.live_timers()) == 1
    pair.runtime.advance(120_000)
    assert pair.ran == [("kept", 120_000)]
    kept.cancel()


async def test_a_timer_that_raises_stops_no_other(pair: _Pair) -> None:
    """The loop's handler hears of it, as it would of a timer of the loop's own."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))

    def fail() -> None:
        raise RuntimeError("on purpose")

    pair.runtime.call_later_ms(10, fail)
    pair.runtime.call_later_ms(20, pair.note, "after")
    pair.runtime.advance(30)
    assert pair.ran == [("after", 20)]
    assert [str(context["exception"]) for context in heard] == ["on purpose"]


@given(st.integers(0, 2**32), st.lists(st.integers(0, 2000), min_size=1, max_size=8))
def test_moves_and_real_time_come_to_the_same(seed: int, moves: list[int]) -> None:
    """However a stretch of time is cut into moves and waiting, the same timers run in the same order."""

    async def run(cuts: list[int]) -> list[tuple[str, int]]:
        pair, rng = _Pair(), random.Random(seed)
        timers: list[TimerHandle] = []

        def act(name: str) -> None:
            pair.note(name)
            if len(pair.ran) < 40:
                timers.append(pair.runtime.call_later_ms(rng.randrange(1, 900), act, f"{name}{len(pair.ran)}"))
            if rng.random() < 0.2:
                rng.choice(timers).cancel()

        timers += [pair.runtime.call_later_ms(rng.randrange(500), act, str(index)) for index in range(5)]
        for index, cut_ms in enumerate(cuts):
            (pair.runtime if index % 2 else pair.inner).advance(cut_ms)
        return pair.ran

    assert asyncio.run(run(moves)) == asyncio.run(run([0, sum(moves)])) == asyncio.run(run([sum(moves)]))


async def test_on_a_real_clock_timers_run_by_themselves() -> None:
    """A short one in real time, a long one after a move."""
    runtime = ManualClockRuntime(AsyncioRuntime())
    ran: list[str] = []
    runtime.call_later_ms(60_000, ran.append, "long")
    runtime.call_later_ms(5, ran.append, "short")
    await until(lambda: ran == ["short"])
    runtime.advance(60_000)
    assert ran == ["short", "long"]


def test_a_held_port_refuses_and_can_be_listened_on_again() -> None:
    """Nobody is let in while it is held; who held it may listen there beside."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
    held = HeldPort(*address)
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 5)
        with socket.create_server(address), socket.create_connection(address, 5):
            pass
    finally:
        held.close()


def test_a_port_that_is_taken_is_not_held() -> None:
    """Somebody listens there already."""
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(OSError, match="in use"):
        HeldPort(*listening.getsockname())
