"""Strategies that share the queues of a topic among the members of a group (wire.md 12.4).

A strategy is any callable of this form; a strategy with settings is an object. All members of a group must use the
same strategy. Otherwise two members may claim one queue, and another queue may have no owner.
"""

from collections.abc import Collection, Sequence
from typing import Final

from lockstep.protocol.allocation import (
    AllocateMessageQueueStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
)
from lockstep.protocol.model import MessageQueue

__all__ = [
    "AllocateByConfig",
    "AllocateMessageQueueStrategy",
    "allocate_averagely",
    "allocate_averagely_by_circle",
    "strategy_name",
]


class AllocateByConfig:
    """CONFIG: the given queues, whatever other members there are.

    A topic without a given queue gets none. A group that consumes concurrently must also give the queues of
    `%RETRY%group` to one member. The user must take care that every queue has an owner.
    """

    name: Final = "CONFIG"

    def __init__(self, queues: Collection[MessageQueue]) -> None:
        self.queues = sorted(set(queues))

    def __call__(
        self, _group: str, _client_id: str, queues: Sequence[MessageQueue], _client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        topics = {queue.topic for queue in queues}
        return [queue for queue in self.queues if queue.topic in topics]


_NAMES: Final[tuple[tuple[AllocateMessageQueueStrategy, str], ...]] = (
    (allocate_averagely, "AVG"),
    (allocate_averagely_by_circle, "AVG_BY_CIRCLE"),
)


def strategy_name(strategy: AllocateMessageQueueStrategy) -> str:
    """Return RocketMQ's name of a strategy. A user's strategy has its `name`, or that of its function or class."""
    for known, name in _NAMES:
        if strategy is known:
            return name
    own = getattr(strategy, "name", None) or getattr(strategy, "__name__", type(strategy).__name__)
    return str(own)
