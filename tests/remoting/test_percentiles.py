"""Percentiles by nearest rank."""

from lockstep.remoting.percentiles import percentile
from tests.rows import by_row


@by_row(
    "count, percent, expected",
    [
        (4, 0, 1), (4, 25, 1), (4, 50, 2), (4, 51, 3), (4, 99, 4), (4, 100, 4), (100, 99, 99), (100, 0.1, 1),
        (41_000, 99.9, 40_959), (1, 50, 1),
    ],
)  # fmt: skip
def test_a_percentile_is_one_of_the_values(count: int, percent: float, expected: int) -> None:
    """The smallest of 1 to `count` that so many percent do not exceed, also where a fraction would be rounded up."""
    assert percentile(range(1, count + 1), percent) == expected


def test_nothing_has_no_percentile() -> None:
    """It is 0."""
    assert percentile([], 50) == 0
