"""`lockstep store`: what a folder holds, whether it is whole, its messages."""

import json
import os
import shutil
import signal
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from lockstep.cli import app as cli
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store.check import store as store_check
from lockstep.store.check.files import Damage, log_end, scan_log
from lockstep.store.check.store import StoreCheck
from lockstep.store.format.files import FileRun
from tests.commands import TIMEOUT_S, Lockstep
from tests.forked.process import Forked
from tests.store.test_store_damage import whole


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store that was stopped cleanly."""
    whole(cleanly=True).write_to(tmp_path)
    return tmp_path / "store"


def lockstep(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of the command."""
    return Lockstep("127.0.0.1:1")(*arguments)


def test_inspect_tells_queues_and_groups(folder: Path) -> None:
    """Bounds of every queue, and where each group is."""
    status, out, err = lockstep("store", "inspect", str(folder), "-o", "json")
    found, messages = json.loads(out), whole(cleanly=True).messages
    assert (status, err) == (0, "")
    assert found["stopped_cleanly"] is True
    ends = {row["queue"]: row["max"] for row in found["queues"] if row["topic"] == "Aircraft"}
    assert ends == {queue_id: sum(place[0] == queue_id for place in messages) for queue_id in ends}
    lags = [row["lag"] for row in found["groups"] if row["topic"] == "Aircraft"]
    assert lags == [0, 0, 0]
    status, out, _ = lockstep("store", "inspect", str(folder))
    assert (status, "Aircraft" in out) == (0, True)


def test_verify_names_what_is_damaged(folder: Path) -> None:
    """Nothing to say of a whole store; of a damaged one file, position and exit status 1."""
    status, out, err = lockstep("store", "verify", str(folder))
    assert (status, out) == (0, "")
    assert err.startswith("lockstep: 150 messages")
    log = folder / "commitlog" / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    status, out, err = lockstep("store", "verify", str(folder), "-o", "json")
    assert (status, "damaged" in err) == (1, True)
    assert {"file": f"commitlog/{0:020d}", "position": 0, "state": "damaged"}.items() <= json.loads(out)[0].items()


@pytest.mark.parametrize("left", ["a part", "an empty folder"])
def test_verify_misses_the_end_of_a_log(folder: Path, left: str) -> None:
    """Messages that the checkpoint has seen on the disk are gone: that is damage, and no crash's doing."""
    logs = sorted((folder / "commitlog").iterdir())
    if left == "a part":
        with logs[-1].open("r+b") as file:
            file.truncate(2000)
    else:
        for log in logs:
            log.unlink()
    status, out, _ = lockstep("store", "verify", str(folder), "-o", "json")
    texts = [row["what"] for row in json.loads(out) if row["file"] == "checkpoint" and row["state"] == "damaged"]
    assert (status, len(texts)) == (1, 1)
    assert "says that the log is whole up to" in texts[0]


def test_verify_is_short_about_what_a_crash_left(folder: Path) -> None:
    """Entries that were not written yet, one a message, are a line a file; as JSON they are all there."""
    (folder / "abort").touch()
    (folder / "checkpoint").unlink()
    files = sorted(path for path in (folder / "consumequeue").rglob("*") if path.is_file())
    for path in files:
        path.write_bytes(bytes(path.stat().st_size))
    status, out, err = lockstep("store", "verify", str(folder))
    rows = [row.split()[0] for row in out.splitlines()[1:]]
    assert (status, len(set(rows))) == (0, len(rows))
    assert 0 < len(rows) <= len(files)
    status, out, _ = lockstep("store", "verify", str(folder), "-o", "json")
    places = json.loads(out)
    assert (status, {place["state"] for place in places}) == (0, {"unfinished"})
    assert len(places) > len(rows)
    assert f"{len(places)} places unfinished" in err


def test_dump_prints_messages(folder: Path) -> None:
    """Those of a queue from an offset on, in order, as many as asked for."""
    arguments = ("-t", "Aircraft", "--queue", "1", "--offset", "3", "-c", "4")
    status, out, _ = lockstep("store", "dump", str(folder), *arguments)
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, [row["offset"] for row in rows]) == (0, [3, 4, 5, 6])
    messages = whole(cleanly=True).messages
    assert [row["body"].encode() for row in rows] == [messages[1, offset] for offset in (3, 4, 5, 6)]


def test_nobody_reads_the_dump_any_more(folder: Path) -> None:
    """`lockstep store dump DIR | head -1`: quiet, exit status 141, as with every command."""
    read, write = os.pipe()
    os.close(read)
    with Forked(Lockstep.command("store", "dump", str(folder)), stdout=write, stderr=subprocess.PIPE) as done:
        os.close(write)
        assert done.communicate(timeout=TIMEOUT_S) == (b"", b"")
    assert done.returncode == 141


def test_a_folder_in_use_is_left_alone(folder: Path, tmp_path: Path) -> None:
    """Somebody has it open, it is no store, or it is not there: one line, exit status 1."""
    lock = OsStorage().lock(str(folder / "lock"))
    for path, reason in (
        (folder, "is open in a broker"),
        (tmp_path, "no folder of a store"),
        (tmp_path / "x", "No such"),
    ):
        status, out, err = lockstep("store", "verify", str(path))
        assert (status, out) == (1, "")
        assert reason in err
    lock.release()
    shutil.rmtree(folder / "consumequeue")
    status, out, _ = lockstep("store", "verify", str(folder))
    assert (status, "consumequeue/Aircraft/0" in out) == (1, True)


def test_reading_a_long_log_ends_at_once_when_it_is_interrupted() -> None:
    """Plain work is not on the event loop, which would look at signals only behind it: exit status 130."""

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests are a shell's background job too
    try:
        with pytest.raises(cli._Stopped) as stopped:
            cli._run(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.value.exit_code == 130


def test_dump_of_what_is_not_there_names_what_is(folder: Path) -> None:
    """A typing error in a topic or queue is no empty store: exit status 1, and the names to choose from."""
    status, out, err = lockstep("store", "dump", str(folder), "-t", "Aircarft")
    assert (status, out) == (1, "")
    assert "no topic 'Aircarft'" in err
    assert "Aircraft" in err
    status, out, err = lockstep("store", "dump", str(folder), "-t", "Aircraft", "--queue", "77")
    assert (status, out) == (1, "")
    assert "no queue 77; there are: 0, 1, 2" in err
    (folder / "abort").touch()
    shutil.rmtree(folder / "consumequeue")
    shutil.rmtree(folder / "config")
    assert lockstep("store", "dump", str(folder), "-t", "Aircarft")[0] == 1
    status, out, _ = lockstep("store", "dump", str(folder), "-t", "Aircraft", "-c", "1")
    assert (status, out.count("\n")) == (0, 1)


def test_inspect_tells_times_for_people_and_where_the_log_ends(folder: Path) -> None:
    """In the table; as JSON they stay numbers. The log ends behind its last message, not where its file does."""
    found = json.loads(lockstep("store", "inspect", str(folder), "-o", "json")[1])
    table = dict(
        line.split("  ", 1) for line in lockstep("store", "inspect", str(folder))[1].splitlines() if "  " in line
    )
    assert isinstance(found["log_timestamp"], int)
    when = datetime.fromisoformat(table["log timestamp"].strip())
    assert round(when.timestamp() * 1000) == found["log_timestamp"]
    last_file = max(int(path.name) for path in (folder / "commitlog").iterdir())
    assert last_file < found["log_ends_at"] < last_file + found["log_file_bytes"]
    shutil.rmtree(folder / "consumequeue")
    assert json.loads(lockstep("store", "inspect", str(folder), "-o", "json")[1])["log_ends_at"] == found["log_ends_at"]


def test_verify_looks_at_every_key(folder: Path) -> None:
    """An item of another key, one without a message, a broken chain, a slot that lost its items: each is named."""
    path = min((folder / "index").iterdir())
    content = path.read_bytes()
    items_at = 40 + 4 * 16
    assert lockstep("store", "verify", str(folder))[0] == 0
    for position, text in (
        (items_at + 20 * 3 + 3, "has a key that it does not have"),
        (items_at + 20 * 5 + 11, "where no message is"),
        (items_at + 20 * 7 + 19, "follows item"),
        (40 + 4 * 2 + 2, "begins with item"),
    ):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        status, out, _ = lockstep("store", "verify", str(folder))
        assert (status, f"index/{path.name}" in out) == (1, True), (position, out)
        assert text in out
    path.write_bytes(content)
    assert lockstep("store", "verify", str(folder))[0] == 0


def test_verify_does_not_read_what_was_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 1 GiB with three messages takes as long as the three messages, and so do queues."""
    root = tmp_path / "big"
    whole(cleanly=True).write_to(root)
    store = root / "store"
    first, *others = sorted((store / "commitlog").iterdir())
    for path in others:
        path.unlink()
    messages = sum(
        1 for found in scan_log(FileRun.found(OsStorage(), str(store), "commitlog")) if not isinstance(found, Damage)
    )
    log = first.read_bytes()
    end = log_end(FileRun.found(OsStorage(), str(store), "commitlog"), 0)
    first.write_bytes(log[:end])
    os.truncate(first, 1 << 30)
    read = 0
    read_at = FileRun.read

    def counted(run: FileRun, position: int, size_bytes: int) -> bytes:
        nonlocal read
        data = read_at(run, position, size_bytes)
        read += len(data)
        return data

    monkeypatch.setattr(FileRun, "read", counted)
    check = StoreCheck(OsStorage(), str(store))
    list(check.run())
    assert check.messages == messages
    assert read < 32 << 20


def test_a_long_check_tells_how_far_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lines, where nobody sees a terminal."""
    told: list[str] = []
    monkeypatch.setattr(store_check, "_PROGRESS_BYTES", 20_000)
    list(StoreCheck(OsStorage(), str(folder), told.append).run())
    assert len(told) > 2
    assert all("MiB of messages read" in line for line in told)


def test_verify_blames_the_file_that_was_cut(folder: Path) -> None:
    """Of several files the first is shorter: its own size is wrong, not that of all others."""
    first = min((folder / "commitlog").iterdir())
    os.truncate(first, 20_000)
    found = [damage for damage in StoreCheck(OsStorage(), str(folder)).run() if "bytes; files here have" in damage.text]
    assert [(damage.file, damage.position) for damage in found] == [(f"commitlog/{0:020d}", 20_000)]


def test_verify_reads_a_log_of_zeros(tmp_path: Path) -> None:
    """The machine lost power before any message reached the disk: nothing to report."""
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020d}").write_bytes(bytes(4096))
    check = StoreCheck(OsStorage(), str(tmp_path))
    assert (list(check.run()), check.messages) == ([], 0)


@pytest.mark.parametrize("size", [0, 20_000])
def test_verify_reads_the_only_file_where_it_was_cut(tmp_path: Path, size: int) -> None:
    """Old files expired, and the last one was cut: it is no stray file, and its name tells its size."""
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{65_536:020d}").write_bytes(bytes(size))
    found = FileRun.found(OsStorage(), str(tmp_path), "commitlog")
    assert (found.starts, found.strays, found.file_bytes) == ([65_536], [], 65_536)
    assert found.end_of(65_536) == 65_536 + size
