"""Percentiles by nearest rank: each is one of the values that were measured, never a mean of two."""

from collections.abc import Sequence

__all__ = ["percentile"]


def percentile(sorted_values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed; 0 of none. `percent` counts to a tenth: 99.9."""
    if not sorted_values:
        return 0.0
    rank = -(-len(sorted_values) * round(percent * 10) // 1000)  # whole numbers: 41,000 x 0.999 is above 40,959
    return sorted_values[max(rank, 1) - 1]
