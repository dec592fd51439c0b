"""What a store in files is told, and what it tells."""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Arrived", "FileStoreSettings", "OnArrived", "OnTrim"]


class FileStoreSettings(NamedTuple):
    """`deferred`: messages are read only when they are safe on the disk."""

    folder: str
    log_file_bytes: int
    queue_file_bytes: int
    pull_bytes_max: int
    pull_messages_max: int
    deferred: bool
    index_slot_count: int
    index_item_count: int


class Arrived(NamedTuple):
    """A message that can be read from now on."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    size_bytes: int
    tags_code: int


OnArrived = Callable[[Arrived], None]
OnTrim = Callable[[str, int, int, int], None]  # topic, queue id, min offset before, min offset now
