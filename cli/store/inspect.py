"""`lockstep store`: reads the folder of a store that no broker has open, and changes nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from lockstep.cli.output import (
    CliError,
    OutputFormat,
    counted,
    date_time,
    json_line,
    note,
    print_rows,
    write_out,
)
from lockstep.protocol.bodies.config import ConsumerOffsetTable
from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.storage import Storage
from lockstep.store.check.files import Damage, log_end, read_config
from lockstep.store.check.store import StoreCheck
from lockstep.store.data_dir import DataDir, lock_folder
from lockstep.store.format.consume_queue import entries_end, first_written, read_entries
from lockstep.store.format.files import FileRun, names_in, queue_folders
from lockstep.store.format.layout import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    ENTRY,
    ENTRY_BYTES,
    INDEX,
    LOCK,
)

__all__ = ["inspect_store", "opened_store", "verify_store"]


@contextmanager
def opened_store(root: str) -> Iterator[Storage]:
    """The folder under a shared lock: no broker opens it meanwhile, other readers may. Raises CliError."""
    storage, root = OsStorage(), root.rstrip("/") or "/"
    with ExitStack() as held:
        try:
            names = storage.list_dir(root)
            if COMMIT_LOG not in names and CONFIG not in names:
                raise CliError(f"{root} is no folder of a store: there is neither {COMMIT_LOG} nor {CONFIG} in it")
            lock = lock_folder(storage, root, shared=True)
            if lock is not None:
                held.callback(lock.release)
            if LOCK in names:
                held.callback(storage.lock_shared(f"{root}/{LOCK}").release)
        except BlockingIOError:
            raise CliError(f"{root} is open in a broker: stop it, or look into a copy") from None
        except PermissionError as error:
            if error.filename != f"{root}/{LOCK}":  # only the lock file is unreadable: go on
                raise CliError(f"{error.filename or root}: {error.strerror or error}") from None
        except OSError as error:
            raise CliError(f"{root}: {error.strerror or error}") from None
        try:
            yield storage
        except BrokenPipeError:  # stdout was closed; the folder is fine
            raise
        except OSError as error:
            raise CliError(f"{error.filename or root}: {error.strerror or error}") from None


# inspect -----------------------------------------------------------------------------------------------------


def inspect_store(root: str, output: OutputFormat) -> None:
    """Print what the folder has, by file names, queues and config files.

    Only the last message of each queue is read.
    """
    with opened_store(root) as storage:
        found = [_queue_row(storage, root, *queue) for queue in queue_folders(storage, root)]
        queues = [row for row, _ in found]
        summary = _summary(storage, root, max([log_known for _, log_known in found], default=0))
        groups = _group_rows(storage, root, {(row["topic"], row["queue"]): row["max"] for row in queues})
    if output is OutputFormat.JSON:
        write_out(json_line({**summary, "queues": queues, "groups": groups}).encode() + b"\n")
        return
    print_rows(
        ("what", "value"),
        [{"what": name.replace("_", " "), "value": _shown(name, summary[name])} for name in summary],
        output,
    )
    for columns, rows in ((_QUEUE_COLUMNS, queues), (_GROUP_COLUMNS, groups)):
        if rows:
            write_out(b"\n")
            print_rows(columns, rows, output)


_QUEUE_COLUMNS = ("topic", "queue", "min", "max", "messages", "files")
_GROUP_COLUMNS = ("group", "topic", "queue", "offset", "lag")


def _shown(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_timestamp"):
        return date_time(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _summary(storage: Storage, root: str, log_known: int) -> dict[str, Any]:
    names, log = names_in(storage, root), FileRun.found(storage, root, COMMIT_LOG)
    found: dict[str, Any] = {
        "stopped_cleanly": ABORT not in names,
        "log_files": len(log.starts),
        "log_file_bytes": log.file_bytes if log.starts else 0,
        "log_begins_at": log.starts[0] if log.starts else 0,
        "log_ends_at": log_end(log, max(log_known, log.starts[0])) if log.starts else 0,
        "index_files": len(names_in(storage, f"{root}/{INDEX}")),
    }
    if CHECKPOINT in names:
        checkpoint = DataDir(storage, root).read_checkpoint()
        found |= {"log_timestamp": checkpoint.log_timestamp, "queue_timestamp": checkpoint.queue_timestamp}
    return found


def _queue_row(storage: Storage, root: str, topic: str, queue_id: int) -> tuple[dict[str, Any], int]:
    """A row of the table, and the position in the log where the queue's last message ends."""
    files = FileRun.found(storage, root, f"{CONSUME_QUEUE}/{topic}/{queue_id}")
    end = entries_end(files)
    first = first_written(partial(read_entries, files), files.starts[0] // ENTRY_BYTES if files.starts else 0, end)
    log_known = 0
    if first < end:
        offset, size, _ = ENTRY.unpack(read_entries(files, end - 1, 1))
        log_known = offset + size
    row = {
        "topic": topic,
        "queue": queue_id,
        "min": first,
        "max": end,
        "messages": end - first,
        "files": len(files.starts),
    }
    files.close()
    return row, log_known


def _group_rows(storage: Storage, root: str, ends: dict[tuple[str, int], int]) -> list[dict[str, Any]]:
    try:
        table = read_config(storage, root, "consumerOffset.json")
    except (FileNotFoundError, ProtocolError):
        return []
    assert isinstance(table, ConsumerOffsetTable)
    rows = []
    for name, offsets in table.offset_table.items():
        topic, _, group = name.partition("@")
        for queue_id, offset in sorted(offsets.items()):
            end = ends.get((topic, queue_id))
            lag = None if end is None else end - offset
            rows.append({"group": group, "topic": topic, "queue": queue_id, "offset": offset, "lag": lag})
    return sorted(rows, key=lambda row: (row["group"], row["topic"], row["queue"]))


@contextmanager
def _shown_while(text: Callable[[], str]) -> Iterator[None]:
    """Shows the progress of long work on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    with Live(console=console, get_renderable=lambda: Text(text()), refresh_per_second=4, transient=True):
        yield


# verify ------------------------------------------------------------------------------------------------------


def verify_store(root: str, output: OutputFormat) -> None:
    """Read everything and print what is damaged. Raises CliError when something is."""
    with opened_store(root) as storage:
        tell = (lambda _: None) if sys.stderr.isatty() else note
        check = StoreCheck(storage, root.rstrip("/") or "/", tell)
        with _shown_while(lambda: f"{counted(check.messages, 'message')} of {check.log_bytes:,} bytes read"):
            found = list(check.run())
    damaged = [damage for damage in found if not damage.unfinished]
    shown = found if output is OutputFormat.JSON else _first_unfinished(found)
    rows = [_damage_row(damage) for damage in shown]
    if output is OutputFormat.JSON or rows:
        print_rows(("file", "position", "state", "what"), rows, output)
    note(f"{counted(check.messages, 'message')} of {check.log_bytes:,} bytes read, {check.entries:,} in queues")
    if len(shown) < len(found):
        unfinished = len(found) - len(damaged)
        note(f"{unfinished:,} places unfinished; the table has the first of each file, -o json has more")
    if damaged:
        raise CliError(f"{counted(len(damaged), 'place')} damaged")
    if found:
        note("a broker that starts here puts the rest in order, as after any crash")


def _first_unfinished(found: list[Damage]) -> list[Damage]:
    """All damage; of what a crash left unfinished, which may be a row for each message, the first of each file."""
    files: set[str] = set()
    shown = []
    for damage in found:
        if not damage.unfinished or damage.file not in files:
            shown.append(damage)
        if damage.unfinished:
            files.add(damage.file)
    return shown


def _damage_row(damage: Damage) -> dict[str, Any]:
    state = "unfinished" if damage.unfinished else "damaged"
    return {"file": damage.file, "position": damage.position, "state": state, "what": damage.text}
