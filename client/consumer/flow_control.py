"""FlowControl: decides when the cache of a queue is full, and its pulls must wait (wire.md 12.6). Synchronous."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.model import MessageQueue

__all__ = ["FlowControl", "FlowLimits", "most_bytes"]

OFF: Final = -1
# One line for so many throttled pulls for the same reason.
_LOG_EVERY: Final = 1000
_MIB: Final = 1024 * 1024


def most_bytes(limit: int) -> int:
    """Return the most bytes that do not exceed `limit`, a number of bytes.

    RocketMQ compares whole MiB, rounded down: 100 MiB are exceeded by 101 MiB and not by one byte less. A limit that
    cannot be set in RocketMQ, such as 2000 bytes, is exact.

    Source: article 3, wire.md 12.6.
    """
    return limit + _MIB - 1 if limit % _MIB == 0 else limit


def _share(limit: int, queues: int) -> int:
    """The part of a topic's bytes for each queue: in whole MiB where the limit is, and at least one."""
    unit = _MIB if limit % _MIB == 0 else 1
    return max(limit // unit // queues, 1) * unit


class FlowLimits(NamedTuple):
    """The most that one queue may have in its cache. OFF: no limit.

    Args:
        span: from the first offset to the last one.
    """

    message_count: int
    message_bytes: int
    span: int


class FlowControl:
    """Decides whether a queue may be pulled.

    Args:
        usual: the limits of each queue.
        topic_count: messages of a topic in all its queues together; OFF: no limit.
        topic_bytes: the same in bytes.
    """

    def __init__(self, usual: FlowLimits, topic_count: int = OFF, topic_bytes: int = OFF) -> None:
        self._usual = usual
        self._topic_count = topic_count
        self._topic_bytes = topic_bytes
        self._by_topic: dict[str, FlowLimits] = {}
        self._times = {"count": 0, "bytes": 0, "span": 0, "key span": 0}

    @classmethod
    def of_push(cls, config: ConsumerConfig, *, checks_span: bool) -> "FlowControl":
        """Return the flow control of a push consumer.

        Args:
            checks_span: for consumption without order, where one slow message holds back the offset of all behind it.
        """
        usual = FlowLimits(
            config.pull_threshold_for_queue,
            config.pull_threshold_bytes_for_queue,
            config.consume_concurrently_max_span if checks_span else OFF,
        )
        return cls(usual, config.pull_threshold_for_topic, config.pull_threshold_bytes_for_topic)

    def share_out(self, topic: str, owned: Iterable[MessageQueue]) -> None:
        """Share the limits of a topic among its queues of this client; at least 1 a queue (wire.md 12.6).

        To be called after each rebalance.

        Args:
            owned: all queues of this client, of any topic.
        """
        queues = sum(queue.topic == topic for queue in owned)
        if queues:
            self._by_topic[topic] = FlowLimits(
                self._usual.message_count if self._topic_count == OFF else max(self._topic_count // queues, 1),
                self._usual.message_bytes if self._topic_bytes == OFF else _share(self._topic_bytes, queues),
                self._usual.span,
            )

    def limits(self, topic: str) -> FlowLimits:
        return self._by_topic.get(topic, self._usual)

    def reached(self, process_queue: ProcessQueue) -> str | None:
        """Return the limit that the queue exceeds: "count", "bytes", "span" or, by key, "key span"; None: pull."""
        limits = self._by_topic.get(process_queue.queue.topic, self._usual)
        # RocketMQ's order: messages, bytes, span (wire.md 12.6). "More than": the limit itself may be reached.
        cache = process_queue.cache
        if cache.message_count > limits.message_count:
            return "count"
        if cache.message_bytes > most_bytes(limits.message_bytes):
            return "bytes"
        if limits.span != OFF and cache.max_span > limits.span:
            return "span"
        return "key span" if cache.is_full else None

    def must_log(self, reason: str) -> bool:
        """Count a throttled pull. Returns True for the first one and each 1,000th after it."""
        times = self._times[reason]
        self._times[reason] = times + 1
        return times % _LOG_EVERY == 0
