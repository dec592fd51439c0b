"""What a start may believe of a folder before it has read the log: its checkpoint, its queues."""

from bisect import bisect_left
from typing import Final

from lockstep.store.file.queue import FileQueue
from lockstep.store.file.store import FileStore
from lockstep.store.format.layout import FILE_END_BYTES, Checkpoint, encode_padding

__all__ = ["is_ahead", "queues_are_whole"]

_SLACK_MS: Final = 3000  # for clocks that step, as RocketMQ has it


def is_ahead(checkpoint: Checkpoint, last_ms: int) -> bool:
    """Does it tell of messages that were stored later than all that there are, the last at `last_ms`?

    Then they are lost, or it was never true. What it says of queues and keys cannot be believed either.
    """
    return max(checkpoint.log_timestamp, checkpoint.queue_timestamp) > last_ms + _SLACK_MS


def queues_are_whole(store: FileStore, end: int) -> bool:
    """Have the queues every message of the log's files below `end`? They tell how many bytes of each file are of
    messages, and there the mark must stand that ends the file. Messages of deleted topics are missed, too.

    Raises:
        OSError: A file cannot be read.
    """
    segments = store.log.segments
    queues = list(store.queues.values())
    firsts = [queue.min_offset for queue in queues]
    for start in segments.starts:
        file_end = start + segments.file_bytes
        if file_end > end:
            return True
        message_bytes = 0
        for number, queue in enumerate(queues):
            first, firsts[number] = firsts[number], _first_from(queue, file_end)
            message_bytes += store.stored_bytes(queue.topic, queue.queue_id, first, firsts[number])
        at = start + message_bytes
        if at > file_end - FILE_END_BYTES or store.log.read(at, FILE_END_BYTES) != encode_padding(file_end - at):
            return False
    return True


def _first_from(queue: FileQueue, log_offset: int) -> int:
    """The queue offset of the first message that stands there or behind."""
    return queue.min_offset + bisect_left(queue, log_offset)
