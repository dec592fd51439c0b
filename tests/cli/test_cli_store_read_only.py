"""`lockstep store` on a disk that may only be read: nothing is written, made, or opened to be written to."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli.options import DumpOptions
from lockstep.cli.output import CliError, OutputFormat
from lockstep.cli.store.dump import dump_store
from lockstep.cli.store.inspect import inspect_store, opened_store, verify_store
from lockstep.remoting.host.os_storage import OsStorage
from tests.commands import SCRIPTS, TIMEOUT_S
from tests.store.test_store_damage import whole

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOUNTED = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>&- && exec "$2" store "$3" "$1"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store that was stopped cleanly."""
    whole(cleanly=True).write_to(tmp_path)
    assert (tmp_path / "store" / "lock").exists()
    return tmp_path / "store"


@pytest.mark.parametrize("command", ["inspect", "verify", "dump"])
def test_nothing_is_opened_to_be_written_to(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only disk: every such call of the system is refused."""
    really = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & WRITES and str(path).startswith(str(folder)):
            raise OSError(30, "Read-only file system", str(path))
        return really(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    if command == "inspect":
        inspect_store(str(folder), OutputFormat.JSON)
    elif command == "verify":
        verify_store(str(folder), OutputFormat.JSON)
    else:
        dump_store(DumpOptions(folder=str(folder)))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="this system lets us mount nothing",
)
@pytest.mark.parametrize("command", ["inspect", "verify", "dump"])
def test_a_read_only_mount(folder: Path, command: str) -> None:
    """A real one, in a mount namespace of its own."""
    arguments = ["unshare", "-m", "sh", "-c", MOUNTED, "sh", str(folder), str(SCRIPTS / "lockstep"), command]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert (done.returncode, "Aircraft" in done.stdout or "150 messages" in done.stderr) == (0, True), done.stderr


def test_readers_share_and_a_broker_does_not(folder: Path) -> None:
    """Two commands at once; no broker opens what one of them reads, and none of them what a broker has open."""
    storage, lock = OsStorage(), str(folder / "lock")
    with opened_store(str(folder)), opened_store(str(folder)), pytest.raises(BlockingIOError):
        storage.lock(lock)
    held = storage.lock(lock)
    with pytest.raises(CliError, match="is open in a broker"), opened_store(str(folder)):
        raise AssertionError("a broker has it open")
    held.release()
