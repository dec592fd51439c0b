"""Resets of a group's offsets: where each queue would go, and the two ways to take it there (wire.md 2.4)."""

from collections.abc import Iterable
from typing import NamedTuple

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused

__all__ = ["Move", "Target", "planned_move", "reset_by_brokers", "store_move"]


class Target(NamedTuple):
    """Where the queues of a topic go: to an offset, or to a time.

    Args:
        to_ms: Epoch ms; 0: the first message, -1: the end of each queue. None: `to_offset` counts.
        force: Also forward, over messages that were not consumed.
    """

    group: str
    topic: str
    to_ms: int | None = None
    to_offset: int = 0
    force: bool = False


class Move(NamedTuple):
    """The committed offset of a queue, None without one, and the offset that it gets."""

    queue: MessageQueue
    before: int | None
    after: int

    @property
    def changes(self) -> bool:
        return self.before != self.after


async def planned_move(admin: AdminClient, target: Target, queue: MessageQueue) -> Move:
    """Where the queue would go. Nothing is changed."""
    before = await admin.consumer_offset(target.group, queue)
    if target.to_ms is None:
        low, high = await admin.min_offset(queue), await admin.max_offset(queue)
        after = min(max(target.to_offset, low), high)
    elif target.to_ms < 0:
        after = await admin.max_offset(queue)
    elif target.to_ms == 0:
        after = await admin.min_offset(queue)
    else:
        after = max(await admin.search_offset(queue, target.to_ms), 0)
    return Move(queue, before, after if target.force or before is None else min(before, after))


async def reset_by_brokers(admin: AdminClient, target: Target, moves: Iterable[Move]) -> dict[MessageQueue, int] | None:
    """Ask the brokers to reset and notify the members. Returns the new offsets, None when no member is online now.

    A broker refuses while a queue has no offset of the group, as in its first seconds. Then that offset is stored and
    the broker is asked once more. The stored value does not matter: the members store theirs.
    """
    to_ms = target.to_ms or 0
    try:
        return await admin.reset_offsets(target.group, target.topic, to_ms, force=target.force)
    except RequestRefused as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise

    async def store_any(move: Move) -> None:
        known = move.after if move.before is None else move.before
        await admin.update_consumer_offset(target.group, move.queue, known)

    await at_once(store_any, moves)
    return await admin.reset_offsets(target.group, target.topic, to_ms, force=target.force)


async def store_move(admin: AdminClient, group: str, move: Move) -> Move:
    """Store the offset, if it changes, for a group without members. Returns the move."""
    if move.changes:
        await admin.update_consumer_offset(group, move.queue, move.after)
    return move
