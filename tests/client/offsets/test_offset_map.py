"""OffsetMap beside a sorted dict: the same messages in the same order, whatever is put, taken and removed."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstep.client.consumer.cache.offset_map import OffsetMap
from tests.fuzz.strategies import fuzz


def message(offset: int, size: int = 1) -> Any:
    return SimpleNamespace(queue_offset=offset, body_bytes=size)


def put(held: OffsetMap, *offsets: int) -> int:
    return held.put({offset: message(offset) for offset in offsets})


_offsets = st.integers(0, 12)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(_offsets, max_size=5)),
        st.tuples(st.just("take"), st.integers(0, 4)),
        st.tuples(st.just("pop"), _offsets),
    ),
    max_size=25,
)


@fuzz
@given(_steps)
def test_it_is_a_sorted_dict(steps: list[tuple[str, Any]]) -> None:
    """Offsets out of order, put again after they were removed, put twice: always the lowest first."""
    held, model = OffsetMap(), dict[int, Any]()
    for step, about in steps:
        if step == "put":
            new = {offset: message(offset, offset + 1) for offset in about}
            assert held.put(new) == sum(offset + 1 for offset in new if offset not in model)
            model |= new
        elif step == "take":
            lowest = sorted(model)[:about]
            into = dict[int, Any]()
            taken = [model.pop(offset) for offset in lowest]
            assert held.take(about, into) == taken
            assert list(into.items()) == list(zip(lowest, taken, strict=True))
        else:
            assert held.pop(about) is model.pop(about, None)
        assert len(held) == len(model)
        assert [offset for offset in range(13) if offset in held] == sorted(model)
        if model:
            assert (held.first, held.last) == (min(model), max(model))
            assert held.first_message is model[min(model)]


def test_messages_that_come_back_are_first_again() -> None:
    """A rollback puts taken messages before those that wait."""
    held = OffsetMap()
    assert put(held, 5, 6, 7, 8) == 4
    taken = dict[int, Any]()
    held.take(2, taken)
    held.put(taken)
    assert [one.queue_offset for one in held.take(9, {})] == [5, 6, 7, 8]
    assert not held


def test_removed_offsets_leave_no_trace() -> None:
    """Concurrent consumption removes in any order; what is put again counts once."""
    held = OffsetMap()
    put(held, 1, 2, 3)
    held.pop(1)
    held.pop(3)
    assert (held.first, held.last) == (2, 2)
    held.pop(2)
    put(held, 3)
    put(held, 2, 3)
    assert [one.queue_offset for one in held.take(9, {})] == [2, 3]
