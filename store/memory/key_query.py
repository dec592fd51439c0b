"""Queries by key for the store in memory: a search of the log, newest part first, without an index (wire.md 2.3).

Candidates are checked against the queues of the topic and the properties of the message. A send costs nothing extra,
and there is no index that would need memory.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence

from lockstep.protocol.messages.message import decode_messages
from lockstep.store.base import KEY_QUERY_MESSAGE_COST, KEY_QUERY_STEP_BYTES, KeyQuery
from lockstep.store.memory.log import CommitLog
from lockstep.store.memory.queue import ConsumeQueue

__all__ = ["find_by_key"]


def find_by_key(log: CommitLog, queues: Sequence[ConsumeQueue], query: KeyQuery) -> Generator[None, None, list[bytes]]:
    """The messages that the query asks for, oldest first, in steps. `queues` are those of its topic."""
    needle = query.key.encode("utf-8", "replace")
    if not needle or query.max_num <= 0:
        return []
    bounds = [found for queue in queues if (found := _bounds(log, queue, query))]
    if not bounds:
        return []
    start, end = min(low for low, _ in bounds), max(high for _, high in bounds)
    messages = []
    for message in _candidates(log, queues, needle, start, end):
        if message is None:
            yield None
        elif query.matches(decode_messages(message, unzip=False)[0]):
            messages.append(message)
            if len(messages) == query.max_num:
                break
    return messages[::-1]


def _bounds(log: CommitLog, queue: ConsumeQueue, query: KeyQuery) -> tuple[int, int] | None:
    """[start, end) of the part of the log that holds the queue's messages of the query's time."""
    offsets = queue.commit_log_offsets
    first = bisect_left(offsets, query.begin_timestamp, key=log.store_timestamp)
    last = bisect_right(offsets, query.end_timestamp, key=log.store_timestamp) - 1
    return (offsets[first], offsets[last] + queue.sizes[last]) if first <= last else None


def _candidates(
    log: CommitLog, queues: Sequence[ConsumeQueue], needle: bytes, start: int, end: int
) -> Iterator[bytes | None]:
    """Messages of these queues that may have the key, each once, newest first, and a None now and then."""
    seen, looked_at = end, 0
    for at in log.find_key(needle, start, end):
        if at is None:
            yield None
        elif at < seen:
            for queue in queues:
                i = bisect_right(queue.commit_log_offsets, at) - 1
                if i >= 0 and at < queue.commit_log_offsets[i] + queue.sizes[i]:
                    seen = queue.commit_log_offsets[i]
                    yield log.read(seen, queue.sizes[i])
                    looked_at += KEY_QUERY_MESSAGE_COST + queue.sizes[i]
                    if looked_at >= KEY_QUERY_STEP_BYTES:
                        looked_at = 0
                        yield None
                    break
