"""Where messages are kept: the store interface and its implementations."""

from lockstep.broker.store.base import (
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
from lockstep.broker.store.memory import MemoryStore

__all__ = [
    "AppendResult",
    "GetResult",
    "GetStatus",
    "MemoryStore",
    "MessageStore",
    "Passes",
    "QueryResult",
    "QueueEntry",
    "Record",
    "StoreFull",
]
