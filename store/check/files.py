"""Damage in the files of a store, as a reader finds it: missing files, wrong sizes, bytes that are no message."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.config import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    LockOffsets,
    StoredTopics,
    SubscriptionGroupWrapper,
)
from lockstep.protocol.codes import SerializeType
from lockstep.remoting.host.storage import Storage
from lockstep.store.format.files import FileRun
from lockstep.store.format.layout import CONFIG, FILE_END_BYTES, file_name
from lockstep.store.format.lock_table import LOCK_TABLE, LockTableDamaged, decode_lock_table
from lockstep.store.format.log_records import LogScan, next_record
from lockstep.store.format.record import LogRecord

__all__ = ["CONFIG_BODIES", "Damage", "file_damage", "lock_table_damage", "log_end", "read_config", "scan_log"]

CONFIG_BODIES: Final = {
    "topics.json": StoredTopics,
    "subscriptionGroup.json": SubscriptionGroupWrapper,
    "consumerOffset.json": ConsumerOffsetTable,
    "delayOffset.json": DelayOffsetTable,
    "lockOffsets.json": LockOffsets,
}


class Damage(NamedTuple):
    """One fault.

    Attributes:
        file: Path relative to the folder of the store.
        position: In bytes, from the beginning of the file.
        text: What is wrong there.
        unfinished: True for what a crash leaves behind; a broker repairs it when it starts.
    """

    file: str
    position: int
    text: str
    unfinished: bool = False


def read_config(storage: Storage, root: str, name: str) -> object:
    """The body of a file of config/. Raises OSError and ProtocolError."""
    return decode_body(CONFIG_BODIES[name], storage.read_file(f"{root}/{CONFIG}/{name}"), SerializeType.JSON)


def lock_table_damage(storage: Storage, root: str) -> Iterator[Damage]:
    """Of the table of fenced locks. A write that a power cut tore is unfinished."""
    name = f"{CONFIG}/{LOCK_TABLE}"
    content = storage.read_file(f"{root}/{name}")
    try:
        end = decode_lock_table(content).end
    except LockTableDamaged as error:
        yield Damage(name, 0, str(error))
        return
    if end < len(content):
        yield Damage(name, end, f"the last {len(content) - end} bytes are no whole line", unfinished=True)


def file_damage(files: FileRun) -> Iterator[Damage]:
    """Files that are missing between others, are misnamed, or have another size."""
    for stray in files.strays:
        text = f"its name is no multiple of {files.file_bytes:,}, the size of files here"
        yield Damage(f"{files.name}/{file_name(stray)}", 0, text)
    for start in files.starts:
        size = files.size_of(start)
        if size != files.file_bytes:
            text = f"has {size:,} bytes; files here have {files.file_bytes:,}"
            yield Damage(files.name_of(start), min(size, files.file_bytes), text, start == files.starts[-1])
    for start, following in zip(files.starts, files.starts[1:], strict=False):
        if following != start + files.file_bytes:
            yield Damage(files.name_of(start + files.file_bytes), 0, "is missing")


def scan_log(log: FileRun, position: int = 0) -> Iterator[LogRecord | Damage]:
    """The messages of a commit log from `position` on, and damage between them. Raises OSError.

    The last file that was written to may end with zeros; files made in advance behind it are not read.
    """
    written = [start for start in log.starts if log.read(start, FILE_END_BYTES).strip(b"\0")]
    last = written[-1] if written else log.starts[0] if log.starts else 0
    for start in log.starts:
        if start <= last and start + log.file_bytes > position:
            yield from _scan_file(log, start, max(start, position), is_last=start == last)
    log.close()


def log_end(log: FileRun, known: int) -> int:
    """Where the last message ends; messages below `known` are known to exist. Raises OSError."""
    end = known
    for found in scan_log(log, known):
        if isinstance(found, LogRecord):
            end = found.offset + found.size_bytes
    return end


def _scan_file(log: FileRun, start: int, position: int, *, is_last: bool) -> Iterator[LogRecord | Damage]:
    name, end, file_end = log.name_of(start), log.end_of(start), start + log.file_bytes
    while position < end:
        scan = LogScan(log, position, file_end)
        yield from scan
        position = scan.position
        if not scan.reason:
            if scan.padding_at >= 0:
                length = int.from_bytes(log.read(scan.padding_at, 4), "big")
                if length != file_end - scan.padding_at:
                    text = f"padding of {length:,} bytes does not end with the file"
                    yield Damage(name, scan.padding_at - start, text, is_last)
            return
        if position >= end or (is_last and not log.written_from(position, end)):
            return  # never written
        following = next_record(log, position + 1, file_end)
        if following is None:
            text = f"{scan.reason}; no message follows in this file"
            yield Damage(name, position - start, text, unfinished=is_last)
            return
        yield Damage(name, position - start, f"{scan.reason}; the next message begins at byte {following - start}")
        position = following
