"""The set of offsets behaves like a set of numbers, whatever is added in whatever order."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lockstep.order.offset_set import OffsetSet

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def built(ranges: list[tuple[int, int]]) -> tuple[OffsetSet, set[int]]:
    ours, plain = OffsetSet(), set[int]()
    for start, length in ranges:
        if length == 1:
            assert ours.add(start) == (start not in plain)
        else:
            ours.add_range(start, start + length)
        plain.update(range(start, start + length))
    return ours, plain


@given(RANGES, RANGES, st.integers(0, 55), st.integers(0, 55))
def test_equals_a_plain_set(ranges: list[tuple[int, int]], others: list[tuple[int, int]], low: int, high: int) -> None:
    """Membership, size, gaps and difference agree with Python's own set; runs are sorted and never touch."""
    ours, plain = built(ranges)
    other, other_plain = built(others)
    assert [offset in ours for offset in range(60)] == [offset in plain for offset in range(60)]
    assert len(ours) == len(plain)
    assert (ours.start, ours.end) == ((min(plain), max(plain) + 1) if plain else (0, 0))
    gaps = [offset for start, end in ours.missing(low, high) for offset in range(start, end)]
    assert gaps == [offset for offset in range(low, high) if offset not in plain]
    assert ours.touches(low, high) == any(offset in plain for offset in range(low, high))
    left = [offset for start, end in ours.minus(other).runs() for offset in range(start, end)]
    assert left == sorted(plain - other_plain)
    runs = list(ours.runs())
    assert all(end < start for (_, end), (start, _) in pairwise(runs))
