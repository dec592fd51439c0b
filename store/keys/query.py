"""Which messages of a topic have a key: answered from the log itself, without an index (wire.md 2.3).

The key is searched for in the memory of the log, newest part first, and what is found is held against the queues of
the topic and the properties of the message. A send pays nothing, and nothing needs room or eviction of its own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from lockstep.protocol.message import decode_messages
from lockstep.protocol.properties import KEYS, UNIQ_KEY
from lockstep.store.memory.log import CommitLog
from lockstep.store.memory.queue import ConsumeQueue

__all__ = ["find_by_key"]


def find_by_key(
    log: CommitLog, queues: Sequence[ConsumeQueue], key: str, max_num: int, begin_timestamp: int, end_timestamp: int
) -> list[bytes]:
    """The newest `max_num` messages, oldest first."""
    needle = key.encode("utf-8", "replace")
    if not needle or max_num <= 0:
        return []
    bounds = [found for queue in queues if (found := _bounds(log, queue, begin_timestamp, end_timestamp))]
    if not bounds:
        return []
    start, end = min(low for low, _ in bounds), max(high for _, high in bounds)
    messages = []
    for message in _candidates(log, queues, needle, start, end):
        if _has_key(message, key):
            messages.append(message)
            if len(messages) == max_num:
                break
    return messages[::-1]


def _bounds(log: CommitLog, queue: ConsumeQueue, begin_timestamp: int, end_timestamp: int) -> tuple[int, int] | None:
    """Commit log offsets [start, end) between which the messages of a queue lie that were stored in a time."""
    offsets = queue.commit_log_offsets
    first = bisect_left(offsets, begin_timestamp, key=log.store_timestamp)
    last = bisect_right(offsets, end_timestamp, key=log.store_timestamp) - 1
    return (offsets[first], offsets[last] + queue.sizes[last]) if first <= last else None


def _candidates(log: CommitLog, queues: Sequence[ConsumeQueue], needle: bytes, start: int, end: int) -> Iterator[bytes]:
    """Messages of these queues that hold the needle as a word, each once, the newest first."""
    seen = end
    for at in log.find_key(needle, start, end):
        if at < seen:
            for queue in queues:
                i = bisect_right(queue.commit_log_offsets, at) - 1
                if i >= 0 and at < queue.commit_log_offsets[i] + queue.sizes[i]:
                    seen = queue.commit_log_offsets[i]
                    yield log.read(seen, queue.sizes[i])
                    break


def _has_key(message: bytes, key: str) -> bool:
    properties = decode_messages(message, unzip=False)[0].properties
    return properties.get(UNIQ_KEY) == key or key in properties.get(KEYS, "").split(" ")
