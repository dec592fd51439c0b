"""The first message of a time or later. Store times never fall along a queue, so few pulls of one message find it.

RocketMQ's own search is not used: it names the nearest message, which may lie before the time (wire.md 8.2).
"""

from lockstep.pipeline.client.blocking import BlockingClient
from lockstep.protocol.message import decode_messages
from lockstep.protocol.model import MessageQueue

__all__ = ["first_offset_at"]


def first_offset_at(client: BlockingClient, queue: MessageQueue, timestamp_ms: int) -> int | None:
    """None when every message is older. Raises RemotingError, BodyError."""
    low, high = client.min_offset(queue), client.max_offset(queue)
    end = high
    while low < high:
        middle = (low + high) // 2
        stored = _store_timestamp(client, queue, middle)
        if stored is None or stored < timestamp_ms:  # None: it was deleted meanwhile, and so are all before it
            low = middle + 1
        else:
            high = middle
    return low if low < end else None


def _store_timestamp(client: BlockingClient, queue: MessageQueue, offset: int) -> int | None:
    reply = client.pull(queue, offset, 1)
    messages = decode_messages(reply.body, unzip=False)
    return messages[0].store_timestamp if messages and messages[0].queue_offset == offset else None
