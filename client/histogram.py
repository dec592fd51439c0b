"""Histogram: counts by bucket, for metrics. A thread may read it while the event loop counts."""

from bisect import bisect_left

__all__ = ["Histogram"]


class Histogram:
    """Counts of values by bucket.

    Args:
        limits: of the buckets, each with the values up to it; the last bucket has none.

    Attributes:
        counts: not cumulative, one more than there are limits.
    """

    __slots__ = ("counts", "limits", "sum")

    def __init__(self, limits: tuple[float, ...]) -> None:
        self.limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.sum = 0.0

    def count(self, value: float) -> None:
        self.counts[bisect_left(self.limits, value)] += 1
        self.sum += value
