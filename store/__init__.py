"""Where messages are kept: the store interface and its implementations."""

from lockstep.store.base import (
    AppendResult,
    GetResult,
    GetStatus,
    MessageStore,
    Passes,
    QueryResult,
    QueueEntry,
    Record,
    StoreFull,
)
from lockstep.store.memory.store import MemoryStore, MemoryStoreSettings

__all__ = [
    "AppendResult",
    "GetResult",
    "GetStatus",
    "MemoryStore",
    "MemoryStoreSettings",
    "MessageStore",
    "Passes",
    "QueryResult",
    "QueueEntry",
    "Record",
    "StoreFull",
]
