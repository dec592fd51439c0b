"""LocalFileOffsetStore: the consume offsets of a broadcasting consumer, in a local file (wire.md 12.9).

The file `<folder>/<client id>/<group>/offsets.json` has RocketMQ's format, so that a Java consumer with the same id can
continue where this one ended, and the reverse. It is replaced as a whole; the previous one is kept as `.bak`.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Self

from lockstep.client.callables import must_propagate
from lockstep.client.consumer.offsets.store import NO_OFFSET, BeforeSending, OffsetStore
from lockstep.client.errors import ConsumerError
from lockstep.protocol.bodies.codec import as_object, decode_body, encode_body
from lockstep.protocol.bodies.queue_tables import as_queue_offsets, queue_table
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.atomic_write import replace_file_keeping_backup
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.host.storage import FileLock
from lockstep.remoting.logs import EventLog

__all__ = ["LocalFileOffsetStore", "LocalOffsets", "offset_folder"]

_BACKUP: Final = ".bak"
_LOCK: Final = ".lock"


def offset_folder(path: str) -> str:
    """Replace "~/" at the beginning by the user's home folder."""
    home, slash, rest = path.partition("/")
    return f"{os.environ.get('HOME', '.')}/{rest}" if home == "~" and slash else path


class LocalOffsets(NamedTuple):
    """offsets.json: queue -> the next offset to consume."""

    offset_table: Mapping[MessageQueue, int]

    def to_wire(self) -> dict[str, Any]:
        return {"offsetTable": queue_table(self.offset_table)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(as_queue_offsets(as_object(value, "offsets").get("offsetTable"), "offsetTable"))


class LocalFileOffsetStore(OffsetStore):
    """Offsets of queues that the consumer does not own now stay in the file.

    RocketMQ 4.9.8 removes them, and a queue that comes back begins again.
    """

    on_broker = False

    def __init__(self, runtime: Runtime, folder: str, client_id: str, group: str, log: EventLog) -> None:
        super().__init__()
        self._folder = folder
        self.path = f"{folder}/{client_id}/{group}/offsets.json"
        self._runtime = runtime
        self._storage = runtime.storage
        self._group = group
        self._log = log
        self._pool = runtime.new_worker_pool(f"{group} offsets", 1)
        self._kept: dict[MessageQueue, int] = {}
        self._unwritten = False
        self._writing: Any = None  # the running task
        self._lock: FileLock | None = None

    async def load(self) -> None:
        """Lock the file and read it. Raises ConsumerError."""
        try:
            self._lock = self._storage.lock(self.path + _LOCK)  # creates the folders too
            await self._pool.submit(partial(self._storage.sync_dir, self._folder))
            await self._pool.submit(partial(self._storage.sync_dir, self.path.rpartition("/")[0]))
        except BlockingIOError:
            raise ConsumerError(
                f"another process uses the offsets of group {self._group!r} in {self.path}: each consumer "
                "of one machine needs a different instance_name"
            ) from None
        except OSError as error:
            what = f"the offsets of group {self._group!r} cannot be stored in {self.path}"
            raise ConsumerError(f"{what}: {error}") from error
        damage = []
        for path in (self.path, self.path + _BACKUP):
            try:
                content = self._storage.read_file(path)
            except FileNotFoundError:
                continue
            if not content:
                # It was created, but not written yet.
                continue
            try:
                self._kept = dict(decode_body(LocalOffsets, content, SerializeType.JSON).offset_table)
            except BodyError as error:
                damage.append(f"{path}: {error}")
                self._log.error("offsets_unreadable", path=path, error=str(error))
            else:
                return
        if damage:
            raise ConsumerError(
                f"the offsets of group {self._group!r} and their older copy cannot be read; repair or delete them: "
                + "; ".join(damage)
            )

    async def _read_stored(self, queue: MessageQueue) -> int:
        return self._kept.get(queue, NO_OFFSET)

    def persist(self, queues: Iterable[MessageQueue], before_sending: BeforeSending) -> None:
        """Write the changed offsets of `queues` soon, on a thread; `before_sending` is called with them.

        If the file cannot be written, the next round writes it.
        """
        known = {queue: self._offsets.get(queue) for queue in queues}
        changed = {queue: at for queue, at in known.items() if at is not None and at != self._kept.get(queue)}
        if changed:
            before_sending(changed)
            self.commits += len(changed)
            self._kept |= changed
            self._unwritten = True
        if self._unwritten and self._writing is None:
            self._writing = self._runtime.create_task(self._write(), name=f"write offsets of {self._group}")

    async def _write(self) -> None:
        try:
            while self._unwritten:
                content = encode_body(LocalOffsets(dict(sorted(self._kept.items()))), SerializeType.JSON)
                self._unwritten = False
                await self._pool.submit(partial(replace_file_keeping_backup, self._storage, self.path, content))
        except BaseException as error:
            # A full disk, or anything else: the next round writes the offsets.
            self._unwritten = True
            if must_propagate(error):
                raise
            self._log.error("offsets_not_written", path=self.path, error=str(error))
        finally:
            self._writing = None

    async def flush(self) -> None:
        if self._writing is not None:
            # A cancelled caller must not cancel the writing.
            await asyncio.shield(self._writing)
        if self._unwritten:
            raise ConsumerError(
                f"the offsets of group {self._group!r} are not written to {self.path}; the log says why"
            )

    async def close(self) -> None:
        """Wait until the file is written, if it can be written, and unlock it."""
        if self._writing is not None:
            await self._writing
        self._pool.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
