"""The values of a consumer's `ordering`: the listener's contract, the need for locks, and the service."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.cache.key_queues import KeyedCache
from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.dispatch.base import ConsumeService, ServiceParts
from lockstep.client.consumer.dispatch.by_key import ConsumeByKeyService
from lockstep.client.consumer.dispatch.concurrent import ConsumeMessageConcurrentlyService
from lockstep.client.consumer.dispatch.orderly import ConsumeMessageOrderlyService
from lockstep.client.consumer.listener import BY_KEY, CONCURRENT, ORDERLY, Contract
from lockstep.client.consumer.send_back import DeadLetters, SendBack
from lockstep.protocol.selector import KeyOf

__all__ = ["ORDERINGS", "OrderingName", "OrderingRow"]

OrderingName = Literal["queue", "key", "none"]


class OrderingRow(NamedTuple):
    """One value of `ordering`.

    Args:
        needs_lock: a queue is consumed only by the holder of the broker's lock. Broadcasting consumers need no lock.
        checks_span: pulls wait while the first and the last cached offset are too far apart.
        caches: returns the factory of the caches of process queues.
    """

    contract: Contract[Any]
    needs_lock: bool
    checks_span: bool
    new_service: Callable[[ServiceParts], ConsumeService]
    caches: Callable[[ConsumerConfig, KeyOf], Callable[[], MessageCache]] = lambda _config, _key_of: MessageCache


def _orderly(parts: ServiceParts) -> ConsumeService:
    return ConsumeMessageOrderlyService(parts, DeadLetters(parts.member))


def _by_key(parts: ServiceParts) -> ConsumeService:
    return ConsumeByKeyService(parts, DeadLetters(parts.member))


def _concurrent(parts: ServiceParts) -> ConsumeService:
    return ConsumeMessageConcurrentlyService(parts, SendBack(parts.member))


def _keyed_caches(config: ConsumerConfig, key_of: KeyOf) -> Callable[[], MessageCache]:
    return partial(KeyedCache, config.key_span_max, key_of)


ORDERINGS: Final[Mapping[OrderingName, OrderingRow]] = {
    "queue": OrderingRow(ORDERLY, needs_lock=True, checks_span=False, new_service=_orderly),
    "key": OrderingRow(BY_KEY, True, False, _by_key, _keyed_caches),
    "none": OrderingRow(CONCURRENT, needs_lock=False, checks_span=True, new_service=_concurrent),
}
