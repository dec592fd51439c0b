"""What a consumer did of each topic in the last minute and hour, for GET_CONSUMER_RUNNING_INFO (wire.md 2.5)."""

from collections import deque
from typing import Final

from lockstep.protocol.client_bodies import ConsumeStatus

__all__ = ["SAMPLE_INTERVAL_MS", "ConsumeStats", "TopicTotals"]

SAMPLE_INTERVAL_MS: Final = 10_000
_MINUTE, _HOUR = 6, 360  # samples


class TopicTotals:
    """Of one topic since the start."""

    __slots__ = ("calls", "consume_ms", "failed", "ok", "pull_ms", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = self.pulled = self.pull_ms = 0
        self.calls = self.ok = self.failed = self.consume_ms = 0

    def consumed(self, message_count: int, duration_ms: int, failed: bool) -> None:
        """One call of the listener."""
        self.calls += 1
        self.consume_ms += duration_ms
        if failed:
            self.failed += message_count
        else:
            self.ok += message_count

    def minus(self, earlier: "TopicTotals | None") -> "TopicTotals":
        result = TopicTotals()
        for name in TopicTotals.__slots__:
            setattr(result, name, getattr(self, name) - (getattr(earlier, name) if earlier is not None else 0))
        return result


class ConsumeStats:
    """Call `sample` every `SAMPLE_INTERVAL_MS`; all rates are those from the sample that began a window until now."""

    def __init__(self, now_ms: int) -> None:
        self._topics: dict[str, TopicTotals] = {}
        self._samples: deque[tuple[int, dict[str, TopicTotals]]] = deque([(now_ms, {})], maxlen=_HOUR + 1)

    def pulled(self, topic: str, message_count: int, duration_ms: int) -> None:
        """A pull that brought messages, and how long its answer took."""
        totals = self.of(topic)
        totals.pulls += 1
        totals.pulled += message_count
        totals.pull_ms += duration_ms

    def of(self, topic: str) -> TopicTotals:
        totals = self._topics.get(topic)
        if totals is None:
            totals = self._topics[topic] = TopicTotals()
        return totals

    def sample(self, now_ms: int) -> None:
        self._samples.append((now_ms, {topic: totals.minus(None) for topic, totals in self._topics.items()}))

    def status(self, topic: str, now_ms: int) -> ConsumeStatus:
        """Means in ms, rates a second over the last minute; the messages that failed in the last hour."""
        totals = self.of(topic)
        began_ms, earlier = self._samples[max(len(self._samples) - _MINUTE, 0)]
        minute = totals.minus(earlier.get(topic))
        hour = totals.minus(self._samples[0][1].get(topic))
        seconds = max(now_ms - began_ms, 1) / 1000
        return ConsumeStatus(
            pull_rt=minute.pull_ms / max(minute.pulls, 1),
            pull_tps=minute.pulled / seconds,
            consume_rt=minute.consume_ms / max(minute.calls, 1),
            consume_ok_tps=minute.ok / seconds,
            consume_failed_tps=minute.failed / seconds,
            consume_failed_msgs=hour.failed,
        )
