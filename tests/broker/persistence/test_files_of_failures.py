"""A step of the store that fails leaves no file open: the process of an embedded broker lives on."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.server import BrokerServer
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.remoting.settings import SettingError
from lockstep.store.check.store import StoreCheck
from lockstep.store.errors import StoreUnusable
from tests.broker.helpers import NOW_MS, RecordingLog
from tests.broker.persistence.kept_broker import SMALL
from tests.open_files import open_files
from tests.store.stores import FolderStore, record

CALLS = ("read_file", "list_dir", "rename", "delete", "sync_dir", "lock", "space")
FILE_CALLS = ("size_bytes", "read_at", "data_at", "write_at", "set_size", "sync")


class FailingOnce(OsStorage):
    """The call with this number fails, of those to the storage and its files. `closes_fail`: each close too."""

    def __init__(self, number: int, *, closes_fail: bool = False) -> None:
        self.number = number
        self.count = 0
        for name in CALLS:
            setattr(self, name, self._counted(getattr(super(), name)))
        self._closes_fail = closes_fail

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.number:
                raise OSError(errno.EIO, os.strerror(errno.EIO), "the disk")
            return call(*args, **options)

        return counted

    def open_file(self, path: str, **options: Any) -> StoredFile:
        file: Any = self._counted(super().open_file)(path, **options)
        return cast("StoredFile", _File(self, file))


class _File:
    def __init__(self, storage: FailingOnce, file: StoredFile) -> None:
        self.path = file.path
        self._file = file
        self._closes_fail = storage._closes_fail
        for name in FILE_CALLS:
            setattr(self, name, storage._counted(getattr(file, name)))

    def close(self) -> None:
        self._file.close()
        if self._closes_fail:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def left_open(folder: Path) -> list[str]:
    return [path for path in open_files() if path.startswith(str(folder))]


def filled(folder: Path, *, crashed: bool) -> None:
    """Log, queues, keys, tables; one deleted topic."""
    opened = FolderStore(folder, index_slot_count=64, index_item_count=1000)
    for number in range(30):
        opened.store.append(record(b"x", number % 3)._replace(properties=b"KEYS\x01k"))
    opened.store.write_tails()
    opened.store.keys.catch_up(opened.store.log.max_offset, 1000)
    if not crashed:
        opened.data_dir.ended_well()
    opened.kill()


def opened_broker(folder: Path, storage: Storage) -> Broker:
    config = BrokerConfig(data_dir=str(folder), **SMALL)
    return Broker(config, random.Random(1), RecordingLog(), NOW_MS, storage)


@pytest.mark.parametrize("crashed", [True, False])
def test_a_start_that_fails_closes_its_files(tmp_path: Path, crashed: bool) -> None:
    """Whatever call of the disk fails. The folder can be opened by another broker then."""
    failures = number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        filled(folder, crashed=crashed)
        storage = FailingOnce(number)
        try:
            broker = opened_broker(folder, storage)
        except StoreUnusable:
            failures += 1
        else:
            broker.abandon()
        assert left_open(folder) == [], f"call {number}"
        if storage.count < number:
            break
    assert failures > 10
    opened_broker(folder, OsStorage()).abandon()


def test_a_check_that_fails_closes_its_files(tmp_path: Path) -> None:
    """Whatever call of the disk fails."""
    filled(tmp_path, crashed=False)
    failures = number = 0
    while True:
        number += 1
        storage = FailingOnce(number)
        try:
            list(StoreCheck(storage, str(tmp_path)).run())
        except OSError:
            failures += 1
            assert left_open(tmp_path) == [], f"call {number}"
        if storage.count < number:
            break
    assert failures > 10


def test_files_of_keys_that_cannot_be_made_are_closed(tmp_path: Path) -> None:
    """As on a full disk, where the store tries again with each piece of the log."""
    opened = FolderStore(tmp_path)
    opened.store.append(record(b"x")._replace(properties=b"KEYS\x01k"))
    before = left_open(tmp_path)
    for number in (2, 3):  # the size, the head
        opened.store.keys._storage = FailingOnce(number)
        with pytest.raises(OSError, match="error"):
            opened.store.keys.catch_up(opened.store.log.max_offset, 10)
        assert left_open(tmp_path) == before
    opened.kill()


def test_a_close_that_fails_does_not_keep_the_others_open(tmp_path: Path) -> None:
    """Nor the folder locked."""
    filled(tmp_path, crashed=False)
    broker = opened_broker(tmp_path, FailingOnce(0, closes_fail=False))
    broker.catalog.topics.put(TopicConfig("T", 4, 4), NOW_MS)
    for queue_id in range(3):
        broker.messages.put(record(b"x", queue_id))
    store: Any = broker.messages.store
    store.write_tails()
    store.keys.catch_up(store.log.max_offset, 1000)
    for run in (store.log.segments, *[queue.segments for queue in store.queues.values()]):
        for file in run._files.values():
            file._closes_fail = True
    with pytest.raises(OSError, match="error"):
        broker.abandon()
    assert left_open(tmp_path) == []


async def test_a_broker_whose_rules_cannot_be_read_releases_its_folder(tmp_path: Path) -> None:
    """It opens its store before its rules."""
    config = BrokerConfig(
        data_dir=str(tmp_path / "store"), acl_enable=True, acl_file=str(tmp_path / "missing.yml"), **SMALL
    )
    with pytest.raises(SettingError, match="acl_enable"):
        BrokerServer(config, AsyncioRuntime(), RecordingLog())
    assert left_open(tmp_path) == []


def test_a_private_file_that_cannot_be_made_private_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gets it then."""

    def refused(*_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(PermissionError):
        OsStorage().open_file(str(tmp_path / "secret"), create=True, private=True)
    assert left_open(tmp_path) == []
