"""Functions of the loop that set many timers for one callback, as the network does for the bytes of a connection."""

import functools
from collections.abc import Callable

import pytest

from lockstep.simulation import SimulationOptions, World, simulate


@pytest.mark.parametrize("shuffle_us", [0, 1000])
def test_a_function_that_sets_many_timers(shuffle_us: int) -> None:
    """Each of its timers fires at its own time, and those of one instant in the order in which they were set."""
    options, fired = SimulationOptions(shuffle_us=shuffle_us), list[tuple[int, str]]()

    async def scenario(world: World) -> None:
        loop = world.loop
        began_ns = loop.now_ns

        def note(name: str) -> None:
            fired.append(((loop.now_ns - began_ns) // 1_000_000, name))

        first, second = (loop.call_often(functools.partial(note, name)) for name in ("first", "second"))
        for set_timer, at_ms in ((first, 5), (second, 5), (first, 9), (first, 5), (second, 2)):
            set_timer(began_ns + at_ms * 1_000_000)
        await world.sleep_ms(20)

    simulate(scenario, options=options)
    times = [at_ms for at_ms, _ in fired]
    assert times == [2, 5, 5, 5, 9]
    names = [name for _, name in fired]
    at_once = sorted(names[1:4]) if shuffle_us else names[1:4]
    expected = ["first", "first", "second"] if shuffle_us else ["first", "second", "first"]
    assert [names[0], at_once, names[4]] == ["second", expected, "first"]


def test_a_loop_that_is_closed_sets_no_timer() -> None:
    """Nor does a function that it gave before."""

    async def scenario(world: World) -> Callable[[int], object]:
        return world.loop.call_often(lambda: None)

    set_timer = simulate(scenario).value
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        set_timer(0)
