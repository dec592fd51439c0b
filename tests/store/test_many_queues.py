"""More queues than a process may have open files: checkpoints, reads and the next start open few of them at once."""

from functools import partial
from pathlib import Path

import pytest

from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.remoting.host.storage import StoredFile
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Disk, Kept, until
from tests.store import stores
from tests.store.stores import record

QUEUES = 700
OPEN_MAX = 600  # 256 that are closed at once, 256 that a start has not synced yet, and those of one round


class CountingDisk(Disk):
    """`most`: the largest number of open files of queues. Their syncs are recorded alone: a busy disk is slow."""

    def __init__(self) -> None:
        super().__init__()
        self.open_files: set[StoredFile] = set()
        self.most = 0

    def open_file(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> StoredFile:
        file = super().open_file(path, create=create, read_only=read_only, private=private)
        if "/consumequeue/" in path:
            close = file.close

            def closed() -> None:
                self.open_files.discard(file)
                close()

            file.close = closed  # type: ignore[method-assign]
            file.sync = partial(self.synced.append, path)  # type: ignore[method-assign]
            self.open_files.add(file)
            self.most = max(self.most, len(self.open_files))
        return file


def opened(folder: Path) -> tuple[Kept, CountingDisk]:
    disk = CountingDisk()
    return Kept(folder, disk, flush_sync=False), disk


async def test_a_checkpoint_of_many_queues_opens_few_files_at_once(tmp_path: Path) -> None:
    """It covers the entries of all of them; so the next start reads nothing again, and opens few at once too."""
    first, disk = opened(tmp_path)
    await first.writers.start()
    first.broker.catalog.topics.put(TopicConfig("T", QUEUES, QUEUES), NOW_MS)
    for queue_id in range(QUEUES):
        first.store.append(record(b"x", queue_id))
    data_dir = first.store.data_dir
    await until(lambda: data_dir.read_checkpoint().entry_count == QUEUES, "a checkpoint covers all queues")
    assert len({path for path in disk.synced if "/consumequeue/" in path}) == QUEUES
    for queue_id in range(QUEUES):
        assert first.store.get("T", queue_id, 0, 1, None).message_count == 1
    assert disk.most <= OPEN_MAX
    await first.writers.stop()
    assert not disk.open_files

    second, disk = opened(tmp_path)
    assert second.broker.durable is not None
    assert sum(second.store.max_offsets().values()) == QUEUES
    assert disk.most <= OPEN_MAX
    assert "queue_entries_missing" not in second.log.names()
    await second.writers.start()
    await second.writers.stop()


def test_a_start_after_a_crash_opens_few_files_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No queue was written yet: each is made from the log."""
    disk = CountingDisk()
    monkeypatch.setattr(stores, "OsStorage", lambda: disk)
    first = stores.FolderStore(tmp_path)
    for queue_id in range(QUEUES):
        first.store.append(record(b"x", queue_id))
    first.kill()
    assert disk.most == 0
    second = stores.FolderStore(tmp_path)
    assert sum(second.store.max_offsets().values()) == QUEUES
    assert second.recovered.message_count == QUEUES
    assert disk.most <= OPEN_MAX
    second.kill()
