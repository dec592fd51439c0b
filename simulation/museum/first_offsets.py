"""Exhibits about the offset at which an owner begins."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from lockstep.client.consumer.offsets.store import NO_OFFSET, RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.first_offset import FirstOffset
from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.client.errors import NoRouteError
from lockstep.order import Kind
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import LINKS, Swarm
from lockstep.simulation.museum.variant import replaced

__all__ = ["ERROR_MEANS_LATEST", "ERROR_MEANS_MIN", "FIRST_OFFSET_TWICE"]

_FAULTS: Final = ("leave", "leave", "slow", "slow", "cut", "cut", "hold")  # handovers over bad connections
_SWARM: Final = Swarm(faults=_FAULTS, events_max=60, consumers=(3, 4), lock_ms=(60_000,), lock_timeout_ms=5_000)
_Position = Callable[..., Any]
_LOCKED_LATER_S: Final = 3
_MIN_OFFSET: Final = 0  # nothing is deleted in an exhibit


def _position_twice(position: _Position) -> _Position:
    """Once when the rebalance adds the queue, and once when its first pull finds it locked."""

    async def positioned(self: Any, process_queue: Any) -> None:
        await position(self, process_queue)
        await asyncio.sleep(_LOCKED_LATER_S)
        await position(self, process_queue)

    return positioned


def _min_offset_after_error(first_offset: _Position) -> _Position:
    async def first(self: Any, process_queue: Any) -> int:
        try:
            found: int = await first_offset(self, process_queue)
        except (RemotingError, NoRouteError):
            return _MIN_OFFSET
        return found

    return first


def _no_offset_after_error(read: _Position) -> _Position:
    async def read_kept(self: Any, queue: MessageQueue) -> int:
        try:
            kept: int = await read(self, queue)
        except (RemotingError, NoRouteError):
            return NO_OFFSET
        return kept

    return read_kept


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
    variant=replaced(PullLoop, "_position", _position_twice),
    swarm=Swarm(faults=LINKS, consumers=(1,), from_last=True),
)

ERROR_MEANS_MIN = Exhibit(
    key="error-means-min",
    report="apache/rocketmq #1825",
    title="an error while the first offset is read sends the owner back to the first message",
    told=(
        "After a restart of a broker an ordered consumer began again at the first message of its queue, far "
        "below the committed offset. Its first pull asked for the offset once more, that request failed, and "
        "the failure became offset -1, which the broker answered with its lowest offset."
    ),
    translated=("FirstOffset returns the lowest offset of the queue when the request fails."),
    rule=(
        'Only "not found" means that a group has no offset; any other answer is an error, and the client asks '
        "again (docs/order.md 3 (d))."
    ),
    kind=Kind.REWIND_BELOW_COMMIT,
    variant=replaced(FirstOffset, "__call__", _min_offset_after_error),
    swarm=replace(_SWARM, faults=(*_FAULTS, "partition"), events_max=120),
)

ERROR_MEANS_LATEST = Exhibit(
    key="error-means-latest",
    report="platformatic/kafka #267",
    title="an error while the first offset is read makes the owner jump to the end",
    told=(
        "When many members of a KIP-848 group started at once, the request for committed offsets was answered "
        'with STALE_MEMBER_EPOCH, an error that asks for another try. The client took it for "no offset", '
        'used its fallback mode "latest", and skipped messages.'
    ),
    translated=(
        "Kafka's answer has no twin here, because our offset query has no epoch. The variant treats every "
        'failed query of the offset (no answer, or a lost connection) as "no offset", in a group that begins '
        "at the end."
    ),
    rule=(
        'Only "not found" means that a group has no offset (docs/order.md 3 (d)); no answer of the fence '
        "means it (docs/order.md 6)."
    ),
    kind=Wrong.LOST,
    variant=replaced(RemoteBrokerOffsetStore, "_read_stored", _no_offset_after_error),
    swarm=replace(_SWARM, from_last=True),
)
