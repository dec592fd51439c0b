"""The settings of a store in files, and its callbacks."""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Arrived", "FileStoreSettings", "OnArrived", "OnTrim"]


class FileStoreSettings(NamedTuple):
    """`deferred`: messages become readable only when they are on the disk."""

    folder: str
    log_file_bytes: int
    queue_file_bytes: int
    pull_bytes_max: int
    pull_messages_max: int
    deferred: bool
    index_slot_count: int
    index_item_count: int


class Arrived(NamedTuple):
    """A message that has become readable."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    size_bytes: int
    tags_code: int


OnArrived = Callable[[Arrived], None]
OnTrim = Callable[[str, int, int, int], None]  # topic, queue id, min offset before, min offset now
