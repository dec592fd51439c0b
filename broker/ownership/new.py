"""Chooses the way of ownership, once for a broker."""

from lockstep.broker.config import BrokerConfig
from lockstep.broker.ownership.fenced.ownership import FencedOwnership
from lockstep.broker.ownership.port import Around, Ownership
from lockstep.broker.ownership.rocketmq import RocketMQOwnership

__all__ = ["new_ownership"]


def new_ownership(config: BrokerConfig, started_ms: int, around: Around) -> Ownership:
    """Args: `started_ms`: epoch ms of the broker's start."""
    if config.lock_mode == "fenced":
        return FencedOwnership(config, started_ms, around)
    return RocketMQOwnership(config, started_ms)
