"""All messages of a queue, for what a start reads again."""

from collections.abc import Iterator
from typing import Final

from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.store import MessageStore

__all__ = ["messages_of"]

_READ_AT_ONCE: Final = 32  # what one read of the store gives at most


def messages_of(store: MessageStore, topic: str, queue_id: int = 0, begin: int = 0) -> Iterator[MessageExt]:
    """All readable messages of a queue from an offset on, read many at a time. Bodies stay compressed."""
    offset, end = max(begin, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)
    while offset < end:
        found = store.get(topic, queue_id, offset, _READ_AT_ONCE, None)
        yield from decode_messages(found.body, unzip=False)
        # At least one: a damaged message is passed over.
        offset = max(found.next_begin_offset, offset + 1)
