"""Stores of both kinds for tests, and messages for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages.properties import decode_properties
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store import GetResult, MemoryStore, MemoryStoreSettings, MessageStore, Record
from lockstep.store.base import KeyQuery, QueryResult
from lockstep.store.durability.recovery import Recovered, Recovery
from lockstep.store.file.store import FileStore
from lockstep.store.file_settings import FileStoreSettings
from lockstep.store.format.record import LogRecord
from tests.broker.helpers import NOW_MS, RecordingLog

__all__ = [
    "HOST",
    "Evictions",
    "FolderStore",
    "MakeStore",
    "fill",
    "get",
    "memory_store",
    "queried",
    "record",
]

HOST = bytes((127, 0, 0, 1))
Evictions = list[tuple[str, int, int, int]]
MakeStore = Callable[..., MessageStore]


def memory_store(evictions: Evictions | None = None, **settings: Any) -> MemoryStore:
    limits = {"memory_limit_bytes": 1 << 20, "segment_bytes": 1 << 17, "pull_bytes_max": 262_144}
    return MemoryStore(
        MemoryStoreSettings(**{**limits, "pull_messages_max": 32, **settings}),
        HOST,
        10911,
        lambda *event: (evictions if evictions is not None else []).append(event),
    )


class FolderStore:
    """A store in a folder, opened and recovered; `log` has what it said."""

    def __init__(self, folder: Path, *, deferred: bool = False, **settings: Any) -> None:
        self.log = RecordingLog()
        self._storage = OsStorage()
        self.store = FileStore(
            self._storage,
            FileStoreSettings(
                str(folder),
                log_file_bytes=settings.get("segment_bytes", 1 << 17),
                queue_file_bytes=settings.get("queue_file_bytes", 2000),
                pull_bytes_max=settings.get("pull_bytes_max", 262_144),
                pull_messages_max=settings.get("pull_messages_max", 32),
                deferred=deferred,
                index_slot_count=settings.get("index_slot_count", 64),
                index_item_count=settings.get("index_item_count", 100),
            ),
            HOST,
            10911,
            self.log,
        )
        self.data_dir = self.store.data_dir
        self.told: list[str] = []
        self.recovered = self.recover(settings.get("topics"))

    def recover(self, topics: set[str] | None) -> Recovered:
        self.data_dir.open()
        begins = dict.fromkeys(topics or (), 0)
        try:
            return Recovery(self.store, begins, topics is not None, _tags_code_of, self.told.append).run()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """As when the process dies: what the store has in memory is gone."""
        self.store.close()
        self.data_dir.release()


def _tags_code_of(record: LogRecord) -> int:
    return tags_code(decode_properties(record.properties.decode()).get("TAGS"))


def record(body: bytes = b"x", queue_id: int = 0, tag: str = "", topic: str = "T", at_ms: int = NOW_MS) -> Record:
    properties = f"TAGS\x01{tag}".encode() if tag else b""
    return Record(topic, queue_id, 7, 0, NOW_MS - 5, HOST, 4711, at_ms, 2, 0, body, properties, tags_code(tag))


def fill(store: MessageStore, count: int, **fields: Any) -> None:
    for i in range(count):
        store.append(record(b"%d" % i, **fields))


def get(store: MessageStore, offset: int, max_msg_nums: int = 32, tags: str = "*", queue_id: int = 0) -> GetResult:
    return store.get("T", queue_id, offset, max_msg_nums, SubscriptionData.parse("T", tags))


def queried(store: MessageStore, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> QueryResult:
    """The result of a query, after all of its steps."""
    steps = store.query(KeyQuery(topic, key, max_num, begin_ms, end_ms))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: QueryResult = end.value
            return result
