"""The folder of a store: its lock, its marks, and files that are replaced as a whole."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from lockstep.cli.output import CliError
from lockstep.cli.store.inspect import opened_store
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.storage import FileLock
from lockstep.simulation import World, simulate
from lockstep.store.data_dir import DataDir
from lockstep.store.errors import StoreUnusable
from tests.rows import by_row


class Moved(OsStorage):
    """Somebody else ends, or crashes, just before the lock is got."""

    def __init__(self, *, crashes: bool) -> None:
        self._crashes = crashes

    def lock(self, path: str) -> FileLock:
        abort = Path(path).with_name("abort")
        if self._crashes:
            abort.touch()
        else:
            abort.unlink()
        return super().lock(path)


@pytest.mark.parametrize("crashes", [True, False])
def test_how_the_last_one_ended_is_looked_at_when_the_lock_is_held(tmp_path: Path, crashes: bool) -> None:
    """Before that the mark may belong to a broker that still runs."""
    if not crashes:
        (tmp_path / "abort").touch()
    folder = DataDir(Moved(crashes=crashes), str(tmp_path))
    folder.open()
    assert folder.crashed is crashes
    folder.release()


@by_row("seed", range(8))
def test_a_power_cut_after_the_start_is_known_to_the_next_start(seed: int) -> None:
    """The mark is on the disk before the first message: else what is torn would be taken for whole."""

    async def scenario(world: World) -> None:
        for ends_well in (True, False):
            folder = DataDir(world.host("broker").storage, "store")
            folder.open()
            assert not folder.crashed
            if ends_well:
                folder.ended_well()
                folder.release()
                world.crash("broker")
        world.power_cut("broker")
        folder = DataDir(world.host("broker").storage, "store")
        folder.open()
        assert folder.crashed

    simulate(scenario, seed=seed)


def test_only_a_lock_that_is_held_means_another_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks is another error, which names the file."""
    path = str(tmp_path / "lock")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(OSError, match="No locks available") as caught:
        DataDir(OsStorage(), str(tmp_path)).open()
    assert not isinstance(caught.value, BlockingIOError)
    assert caught.value.filename == path


@pytest.mark.parametrize("first", ["broker", "reader"])
def test_the_folder_stays_locked_when_its_lock_file_is_deleted(tmp_path: Path, first: str) -> None:
    """Against a second broker, a reader, and a broker while somebody reads."""
    folder = str(tmp_path / "store")
    broker = DataDir(OsStorage(), folder)
    broker.open()
    (tmp_path / "store" / "commitlog").mkdir()
    if first == "broker":
        (tmp_path / "store" / "lock").unlink()
        for _ in range(2):
            with pytest.raises(StoreUnusable, match="open in another broker"):
                DataDir(OsStorage(), folder).open()
        with pytest.raises(CliError, match="open in a broker"), opened_store(folder):
            pass
        broker.release()
    else:
        broker.release()
        with opened_store(folder):
            (tmp_path / "store" / "lock").unlink()
            with pytest.raises(StoreUnusable, match="open in another broker"):
                broker.open()
    broker.open()
    broker.release()


def test_a_disk_with_locks_of_files_only_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is locked as ever."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refuse)
    first = DataDir(OsStorage(), str(tmp_path))
    first.open()
    with pytest.raises(StoreUnusable, match="open in another broker"):
        DataDir(OsStorage(), str(tmp_path)).open()
    first.release()


class Unsure(OsStorage):
    """A disk that cannot put a folder's names down the first time."""

    def __init__(self) -> None:
        self.folders: list[str] = []

    def sync_dir(self, path: str) -> None:
        self.folders.append(path)
        if len(self.folders) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        super().sync_dir(path)


def test_a_file_that_is_there_in_name_only_is_not_taken_for_written(tmp_path: Path) -> None:
    """Its folder could not be synced: the next attempt syncs it, although the file reads correctly."""
    storage = Unsure()
    folder = DataDir(storage, str(tmp_path))
    with pytest.raises(OSError, match="Input/output"):
        folder.write_config("topics.json", b"{}")
    folder.write_config("topics.json", b"{}")
    assert storage.folders == [str(tmp_path / "config")] * 2
