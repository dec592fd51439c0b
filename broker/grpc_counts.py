"""What the front of gRPC counts, for metrics."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["GrpcCounts"]


@dataclass
class GrpcCounts:
    """
    Args:
        ended: (name of the call, name of the code of its answer) -> how many calls ended so.
        sessions: How many clients have sent settings, and are there.
    """

    connections: int = 0
    under_way: int = 0
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    sessions: Callable[[], int] = lambda: 0
