"""Exhibits about the offset at which an owner begins."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import LINKS, Swarm
from lockstep.simulation.museum.variant import variant

__all__ = ["FIRST_OFFSET_TWICE"]

_Position = Callable[..., Any]
_LOCKED_LATER_S: Final = 3


def _position_twice(position: _Position) -> _Position:
    """Once when the rebalance adds the queue, and once when its first pull finds it locked."""

    async def positioned(self: Any, process_queue: Any) -> None:
        await position(self, process_queue)
        await asyncio.sleep(_LOCKED_LATER_S)
        await position(self, process_queue)

    return positioned


FIRST_OFFSET_TWICE = Exhibit(
    key="first-offset-twice",
    report="apache/rocketmq #10955",
    title="messages that arrive while a queue is being locked are skipped",
    told=(
        "In production one ordered message was never delivered. The client asks twice where a new group "
        "begins: when a rebalance gives it the queue, and again when the first pull finds the queue locked. "
        "With CONSUME_FROM_LAST_OFFSET the second answer is a later end of the queue. What arrived in between "
        "is skipped, and nothing is logged."
    ),
    translated=(
        "PullLoop reads the first offset, waits 3 s as RocketMQ's client does before it pulls a queue that it "
        "has not marked as locked, and reads it again."
    ),
    rule=("The first offset is computed once, under the lock (docs/order.md 3 (c))."),
    kind=Wrong.LOST,
    variant=variant((PullLoop, "_position", _position_twice)),
    swarm=Swarm(faults=LINKS, consumers=(1,), from_last=True),
)
