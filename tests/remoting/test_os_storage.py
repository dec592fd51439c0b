"""The real disk behind the Runtime's door."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.remoting.host.os_storage import OsStorage


@pytest.fixture
def storage() -> OsStorage:
    return OsStorage()


def test_a_file_is_read_and_written_anywhere(storage: OsStorage, tmp_path: Path) -> None:
    """Writes land at their positions, what lies between is zeros, and a read ends with the file."""
    file = storage.open_file(str(tmp_path / "a" / "b"), create=True)
    file.write_at(3, b"abc")
    file.write_at(1, memoryview(b"xy"))
    file.sync()
    assert (file.size_bytes(), file.read_at(0, 100), file.read_at(50, 1)) == (6, b"\0xyabc", b"")
    file.set_size(4)
    file.set_size(5)
    assert file.read_at(2, 3) == b"ya\0"
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.write_at(0, b"late")
    assert storage.read_file(str(tmp_path / "a" / "b")) == b"\0xya\0"


def test_what_is_not_there_is_an_error(storage: OsStorage, tmp_path: Path) -> None:
    """A missing file or folder is FileNotFoundError, whatever is asked of it."""
    missing = str(tmp_path / "missing")
    for ask in (storage.open_file, storage.read_file, storage.list_dir, storage.delete, storage.space):
        with pytest.raises(FileNotFoundError):
            ask(missing)


def test_names_are_listed_replaced_and_removed(storage: OsStorage, tmp_path: Path) -> None:
    """A rename replaces, a list is sorted, and only an empty folder is deleted."""
    for name, text in (("old", b"1"), ("new", b"2")):
        file = storage.open_file(str(tmp_path / "folder" / name), create=True)
        file.write_at(0, text)
        file.close()
    folder = tmp_path / "folder"
    assert storage.list_dir(str(folder)) == ["new", "old"]
    storage.rename(str(folder / "new"), str(folder / "old"))
    storage.sync_dir(str(folder))
    assert storage.read_file(str(folder / "old")) == b"2"
    with pytest.raises(OSError, match="not empty"):
        storage.delete(str(folder))
    storage.delete(str(folder / "old"))
    storage.delete(str(folder))
    assert storage.list_dir(str(tmp_path)) == []


def test_holes_are_passed_over(storage: OsStorage, tmp_path: Path) -> None:
    """The next byte that takes room is found at once, in pages at most; behind the last one the file ends."""
    file = storage.open_file(str(tmp_path / "sparse"), create=True)
    file.set_size(1 << 30)
    file.write_at(1 << 29, b"here")
    found = file.data_at(0)
    assert 0 <= found <= 1 << 29
    assert found in (0, (1 << 29) & ~0xFFFF, 1 << 29)
    assert file.data_at((1 << 29) + 1) == (1 << 29) + 1
    assert file.data_at((1 << 29) + (1 << 28)) in ((1 << 29) + (1 << 28), 1 << 30)
    file.close()


def test_space_is_told(storage: OsStorage, tmp_path: Path) -> None:
    """The free part of a file system is a part of it."""
    space = storage.space(str(tmp_path))
    assert 0 <= space.free_bytes <= space.total_bytes


def test_readers_hold_a_lock_together(storage: OsStorage, tmp_path: Path) -> None:
    """Nobody else does meanwhile, nor they while one holds it alone; nothing is made for them."""
    path = str(tmp_path / "lock")
    with pytest.raises(FileNotFoundError):
        storage.lock_shared(path)
    storage.lock(path).release()
    readers = [storage.lock_shared(path) for _ in range(2)]
    for reader in readers:
        with pytest.raises(BlockingIOError):
            storage.lock(path)
        reader.release()
    alone = storage.lock(path)
    with pytest.raises(BlockingIOError):
        storage.lock_shared(path)
    alone.release()


def test_a_lock_is_held_by_one(storage: OsStorage, tmp_path: Path) -> None:
    """A second holder is refused in this process as in another one, and gets it after a release."""
    path = str(tmp_path / "lock")
    lock = storage.lock(path)
    with pytest.raises(BlockingIOError):
        storage.lock(path)
    program = "import sys; from lockstep.remoting.host.os_storage import OsStorage; OsStorage().lock(sys.argv[1])"
    other = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in other.stderr
    lock.release()
    storage.lock(path).release()
