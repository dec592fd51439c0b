"""Counts of lock requests, takeovers and handovers, kept as they happen."""

from bisect import bisect_left
from collections import Counter
from typing import Final

from lockstep.broker.ownership.answers import LockOutcome
from lockstep.protocol.model import MessageQueue

__all__ = ["HANDOVER_BUCKETS_S", "LockCounts"]

HANDOVER_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 120.0)


class LockCounts:
    """
    Args:
        series_max: Of consumer groups and topics whose changes are counted one by one.

    Attributes:
        outcomes: Queues in lock requests, by the answer.
        takeovers: Queues that went to another client, by why the last period of ownership ended.
        owner_changes: (consumer group, topic) -> how often a queue got another owner than before.
        handovers: How many takeovers took up to each of `HANDOVER_BUCKETS_S`, and longer.
    """

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self.outcomes: Counter[LockOutcome] = Counter()
        self.takeovers: Counter[str] = Counter()
        self.owner_changes: Counter[tuple[str, str]] = Counter()
        self.handovers = [0] * (len(HANDOVER_BUCKETS_S) + 1)
        self.handover_seconds = 0.0

    def taken_over(self, key: tuple[str, MessageQueue], cause: str, rest_ms: int) -> None:
        """A queue has another owner than before. `key`: its consumer group and the queue."""
        group, queue = key
        name = (group, queue.topic)
        if name in self.owner_changes or len(self.owner_changes) < self._series_max:
            self.owner_changes[name] += 1
        self.takeovers[cause] += 1
        self.handovers[bisect_left(HANDOVER_BUCKETS_S, rest_ms / 1000)] += 1
        self.handover_seconds += rest_ms / 1000
