"""Process queues for tests, each with a lock that was granted at the given time."""

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.ownership.hold import FencedHold, Hold, NoHold
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.model import MessageQueue

__all__ = ["fenced", "free", "period"]

_LIVE_MS = ConsumerConfig().lock_max_live_time_ms


def period(queue: MessageQueue, now_ms: int = 0, number: int = 1, cache: MessageCache | None = None) -> ProcessQueue:
    """A period under RocketMQ's lock."""
    return ProcessQueue(queue, number, now_ms, Hold(now_ms, _LIVE_MS), cache)


def free(queue: MessageQueue, now_ms: int = 0, number: int = 1) -> ProcessQueue:
    """A period that needs no lock."""
    return ProcessQueue(queue, number, now_ms, NoHold(now_ms))


def fenced(queue: MessageQueue, now_ms: int, epoch: int, lease_ms: int) -> ProcessQueue:
    return ProcessQueue(queue, 1, now_ms, FencedHold(now_ms, epoch, lease_ms))
