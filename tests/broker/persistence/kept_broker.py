"""A broker with a store in files on a disk that can fail, be full or be slow."""

import asyncio
import errno
import os
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.broker.fronts.remoting.notices import RemotingNotices
from lockstep.broker.persistence.disk_writers import DiskWriters
from lockstep.broker.persistence.durable_store import FileStore
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.messages.message import decode_messages
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.host.storage import StoredFile
from tests.broker.helpers import NOW_MS, FakeConnection, RecordingLog, over_the_wire, send_header

__all__ = ["DEADLINE_S", "Disk", "Kept", "kept", "until"]

DEADLINE_S = 120  # of a busy disk
SMALL: dict[str, Any] = {
    "queue_file_bytes": 2000, "segment_bytes": 1 << 17, "max_message_bytes": 4096, "index_slot_count": 64,
    "index_item_count": 1000, "flush_interval_ms": 20, "flush_offsets_interval_ms": 20, "checkpoint_interval_ms": 20,
    "reserved_hours": 1_000_000,  # messages of the tests are old, and may not go at whatever hour they run
}  # fmt: skip


class Disk(OsStorage):
    """The real one; `sync_error` and `write_error` are raised by files of the log while they are set.

    `zeroed`: the position and the size in bytes of what a failed sync of the log replaces by zeros.
    Syncs of all other files wait while `others_may_sync` is clear, `waiting` has their paths; `synced` has the paths of
    all, in order. A sync of a file whose path has `bad_name` in it fails while that is set, one with `slow_name` waits
    until it is empty.
    `sync_threads`: who has synced anything.
    """

    def __init__(self) -> None:
        self.sync_error = 0
        self.zeroed = (0, 0)
        self.write_error = 0
        self.writes_left: int | None = None
        self.syncs = 0
        self.others_may_sync = threading.Event()
        self.others_may_sync.set()
        self.waiting: list[str] = []
        self.synced: list[str] = []
        self.sync_threads: set[int] = set()
        self.deleted: dict[str, int] = {}  # path -> the thread
        self.bad_name = ""
        self.slow_name = ""

    def open_file(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> StoredFile:
        file = super().open_file(path, create=create, read_only=read_only, private=private)
        return _LogFile(self, file) if "/commitlog/" in path else _OtherFile(self, file)

    def delete(self, path: str) -> None:
        super().delete(path)
        self.deleted[path] = threading.get_ident()


class _File:
    """A file of a Disk."""

    def __init__(self, disk: Disk, file: StoredFile) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path
        self.size_bytes = file.size_bytes
        self.read_at = file.read_at
        self.data_at = file.data_at
        self.set_size = file.set_size
        self.close = file.close

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._file.write_at(position, data)


class _OtherFile(_File):
    def sync(self) -> None:
        self._disk.synced.append(self.path)
        self._disk.sync_threads.add(threading.get_ident())
        if not self._disk.others_may_sync.is_set():
            self._disk.waiting.append(self.path)
            self._disk.others_may_sync.wait(2 * DEADLINE_S)  # longer than a test waits for what should not wait for it
            self._disk.waiting.remove(self.path)
        while (slow := self._disk.slow_name) and slow in self.path:
            threading.Event().wait(0.005)
        bad = self._disk.bad_name
        if bad and bad in self.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        self._file.sync()


class _LogFile(_File):
    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if self._disk.write_error:
            raise OSError(self._disk.write_error, os.strerror(self._disk.write_error))
        if self._disk.writes_left is not None:
            if not self._disk.writes_left and any(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._disk.writes_left = max(0, self._disk.writes_left - 1)
        super().write_at(position, data)

    def sync(self) -> None:
        self._disk.syncs += 1
        if self._disk.sync_error:
            position, size_bytes = self._disk.zeroed
            self._file.write_at(position, bytes(size_bytes))
            raise OSError(self._disk.sync_error, os.strerror(self._disk.sync_error))
        self._file.sync()


class Kept:
    """A broker with a store in files and its keeper, without sockets."""

    def __init__(self, folder: Path, disk: Disk, *, flush_sync: bool, **settings: Any) -> None:
        self.log = RecordingLog()
        self.disk = disk
        config = BrokerConfig(data_dir=str(folder), flush_sync=flush_sync, **{**SMALL, **settings})
        runtime = AsyncioRuntime(seed=1)
        self.broker = Broker(config, random.Random(1), self.log, NOW_MS, disk)
        self.broker.front = RemotingNotices()
        assert self.broker.durable is not None
        self.visible = 0
        kept = self.broker.durable
        self.writers = DiskWriters(runtime, lambda: self.broker.config, kept, self._on_visible)
        self.broker.ownership.persistence = self.writers.lock_persistence
        self.flusher = self.writers.flusher
        self.answers = Answers(self.broker, self.writers)
        self.connection = FakeConnection()

    def _on_visible(self) -> None:
        self.visible += 1

    @property
    def store(self) -> FileStore:
        assert isinstance(self.broker.messages.store, FileStore)
        return self.broker.messages.store

    def send(self, body: bytes, **fields: Any) -> RemotingCommand | None:
        """The reply, unless it is to come later."""
        return self.ask(RequestCode.SEND_MESSAGE_V2, send_header(**fields), body)

    def ask(self, code: RequestCode, header: Any, body: bytes = b"") -> RemotingCommand | None:
        """The reply, unless it is to come later: to `connection`. What was stored now is synced first."""
        command, log_end = over_the_wire(RemotingCommand(code, header, body)), self.store.max_commit_log_offset
        reply = self.answers.answer(self.connection, command)
        stored = self.store.max_commit_log_offset != log_end
        assert reply is None or not (stored and self.broker.config.flush_sync), "answered before the sync"
        return reply

    def bodies(self) -> list[bytes]:
        return [message.body for message in decode_messages(self.store.get("T", 0, 0, 100, None).body)]


@asynccontextmanager
async def kept(folder: Path, *, flush_sync: bool = True, **settings: Any) -> AsyncIterator[Kept]:
    opened = Kept(folder, Disk(), flush_sync=flush_sync, **settings)
    await opened.writers.start()
    if opened.broker.catalog.topics.get("T") is None:
        opened.broker.catalog.topics.put(TopicConfig("T", 4, 4), NOW_MS)
    await opened.writers.flush()
    try:
        yield opened
    finally:
        await opened.writers.stop()


async def until(condition: Callable[[], object], what: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    while True:
        if condition():
            return
        assert loop.time() < deadline, what
        await asyncio.sleep(0.005)
