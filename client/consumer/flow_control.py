"""How much a consumer keeps in hand before it pulls no more: messages, bytes, span (wire.md 12.6). Synchronous."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.protocol.model import MessageQueue

__all__ = ["FlowControl", "FlowLimits", "most_bytes"]

OFF: Final = -1
_TOLD_EACH: Final = 1000  # times that a pull was put off
_MIB: Final = 1024 * 1024


def most_bytes(limit: int) -> int:
    """The most bytes that do not exceed `limit`, a number of bytes.

    RocketMQ compares whole MiB, rounded down: 100 MiB are exceeded by 101 MiB and not by a byte less. A limit that it
    cannot be given, such as 2000 bytes, holds to the byte.

    Source: article 3, wire.md 12.6.
    """
    return limit + _MIB - 1 if limit % _MIB == 0 else limit


def _share(limit: int, queues: int) -> int:
    """Of a topic's bytes, for each queue: in whole MiB where the limit is, and at least one."""
    unit = _MIB if limit % _MIB == 0 else 1
    return max(limit // unit // queues, 1) * unit


class FlowLimits(NamedTuple):
    """What one queue may have in hand. A span is from its first offset to its last; OFF: any."""

    message_count: int
    message_bytes: int
    span: int


class FlowControl:
    """`checks_span`: for consumption without order, where one slow message holds up the offset of all behind it."""

    def __init__(self, config: ConsumerConfig, *, checks_span: bool) -> None:
        self._config = config
        self._usual = FlowLimits(
            config.pull_threshold_for_queue,
            config.pull_threshold_bytes_for_queue,
            config.consume_concurrently_max_span if checks_span else OFF,
        )
        self._by_topic: dict[str, FlowLimits] = {}
        self._times = {"count": 0, "bytes": 0, "span": 0, "key span": 0}

    def share_out(self, topic: str, owned: Iterable[MessageQueue]) -> None:
        """A topic's own thresholds are shared out among its queues of this client; at least 1 a queue (wire.md 12.6).

        To be called after a rebalance, with all queues that are owned then.
        """
        queues = sum(queue.topic == topic for queue in owned)
        count, size = self._config.pull_threshold_for_topic, self._config.pull_threshold_bytes_for_topic
        if queues:
            self._by_topic[topic] = FlowLimits(
                self._usual.message_count if count == OFF else max(count // queues, 1),
                self._usual.message_bytes if size == OFF else _share(size, queues),
                self._usual.span,
            )

    def limits(self, topic: str) -> FlowLimits:
        return self._by_topic.get(topic, self._usual)

    def reached(self, process_queue: ProcessQueue) -> str | None:
        """Which limit the queue is over, "count", "bytes", "span" or, by key, "key span"; None: pull."""
        limits = self._by_topic.get(process_queue.queue.topic, self._usual)
        if process_queue.message_count > limits.message_count:
            return "count"
        if process_queue.message_bytes > most_bytes(limits.message_bytes):
            return "bytes"
        if limits.span != OFF and process_queue.max_span > limits.span:
            return "span"
        return "key span" if process_queue.is_full else None

    def is_news(self, reason: str) -> bool:
        """Count a pull that was put off; is it time to say so again?"""
        times = self._times[reason]
        self._times[reason] = times + 1
        return times % _TOLD_EACH == 0
