"""The way of one key: its messages through queues, and who had each queue when."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.tolerance import FAILURES
from lockstep.console.collector import Collector
from lockstep.console.model import QueueState
from lockstep.console.pages.message_search import SearchResult, has_key, newest
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue

__all__ = ["KeyWay", "Step", "find_key", "key_way"]

_LOOKED_AT: Final = 1000  # of the topic's last messages
_STEPS_MAX: Final = 200


class Step(NamedTuple):
    """A message of the key.

    Args:
        owner_then: Who had the queue when the message was stored; "" if no one had it, None: it is not known.
        owner_now: "" if no one has it.
        is_consumed: The group's offset is past it; None: the group has no offset of the queue.
    """

    message: MessageExt
    queue: MessageQueue
    owner_then: str | None
    owner_now: str
    is_consumed: bool | None


class KeyWay(NamedTuple):
    """
    Args:
        group: Whose owners are shown; "" without one.
        queues: That hold messages of the key, in the order of their first one.
        looked_at: How many of the topic's last messages were looked at.
    """

    group: str
    steps: Sequence[Step]
    queues: Sequence[MessageQueue]
    looked_at: int


async def find_key(admin: AdminClient, topic: str, key: str) -> tuple[SearchResult, int]:
    """Messages with this sharding key or this word among their keys, oldest first, and how many were looked at.

    The brokers index the words of KEYS; a sharding key is looked for in the topic's last messages.
    """
    try:
        indexed = await admin.query_messages(topic, key)
    except FAILURES:  # no broker has an index that it may show
        indexed = []
    recent = await newest(admin, topic, _LOOKED_AT)
    with_key = [one for one in recent.messages if has_key(one, key)]
    found = {(one.broker_name, one.queue_id, one.queue_offset): one for one in (*indexed, *with_key)}
    in_order = sorted(found.values(), key=lambda one: (one.store_timestamp, one.queue_id, one.queue_offset))
    return SearchResult(in_order[-_STEPS_MAX:], recent.queues_left_out), len(recent.messages)


def key_way(messages: Iterable[MessageExt], looked_at: int, group: str, collector: Collector) -> KeyWay:
    """Lay the messages beside what the console knows of the owners of their queues."""
    state = collector.groups.get(group)
    offsets = state.reading.offsets if state is not None else {}
    steps, queues = [], dict[MessageQueue, None]()
    for message in messages:
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        queues[queue] = None
        known = collector.queues.get((group, queue))
        row = collector.row_of((group, queue))
        now = row.client_id if row is not None and row.is_held else ""
        of = offsets.get(queue)
        is_consumed = None if of is None else of.consumer_offset > message.queue_offset
        steps.append(Step(message, queue, _owner_at(known, message.store_timestamp), now, is_consumed))
    return KeyWay(group, steps, list(queues), looked_at)


def _owner_at(queue: QueueState | None, at_ms: int) -> str | None:
    if queue is None or not queue.spans or at_ms < queue.spans[0].from_ms:
        return None
    for span in queue.spans:
        if span.from_ms <= at_ms and (span.to_ms is None or at_ms < span.to_ms):
            return span.owner
    return ""
