"""A consumer's `ordering`: its listeners' contract, whether it needs locks of the broker, and the service it runs."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from lockstep.client.consume_orderly import ConsumeMessageOrderlyService
from lockstep.client.consume_service import ConsumeService, ServiceParts
from lockstep.client.dead_letters import DeadLetters
from lockstep.client.listener import ORDERLY, Contract

__all__ = ["ORDERINGS", "OrderingName", "OrderingRow"]

OrderingName = Literal["queue", "key", "none"]


class OrderingRow(NamedTuple):
    """`needs_lock`: a queue is consumed by the holder of its broker's lock only, but for broadcasting consumers.
    `checks_span`: pulls wait while the first and the last offset in hand are too far apart.
    """

    contract: Contract[Any]
    needs_lock: bool
    checks_span: bool
    new_service: Callable[[ServiceParts], ConsumeService]


def _orderly(parts: ServiceParts) -> ConsumeService:
    return ConsumeMessageOrderlyService(
        runtime=parts.instance.runtime,
        config=parts.config,
        call=parts.call,
        locks=parts.locks,
        offsets=parts.offsets,
        dead_letters=DeadLetters(parts.instance, parts.group, parts.config, parts.trace),
        stats=parts.stats,
        pool=parts.pool,
        trace=parts.trace,
        log=parts.instance.log,
    )


ORDERINGS: Final[Mapping[OrderingName, OrderingRow]] = {
    "queue": OrderingRow(ORDERLY, needs_lock=True, checks_span=False, new_service=_orderly),
}
