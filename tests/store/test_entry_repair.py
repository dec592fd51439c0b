"""Damaged entries of queues: their messages are found in the log, and no pull waits for a long search."""

import asyncio
import os
from pathlib import Path
from typing import Any

from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages.message import decode_messages
from lockstep.store import GetStatus
from lockstep.store.format.layout import ENTRY_BYTES
from tests.broker.persistence.kept_broker import kept, until
from tests.store.stores import FolderStore, get, record

SIZES: dict[str, Any] = {"segment_bytes": 8 << 20, "queue_file_bytes": 20_000}


def blank(folder: Path, first: int, count: int) -> None:
    """Zeros in the place of these entries of queue 0."""
    path = folder / "consumequeue" / "T" / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[first * ENTRY_BYTES : (first + count) * ENTRY_BYTES] = bytes(count * ENTRY_BYTES)
    path.write_bytes(content)


def test_an_entry_that_is_found_again_has_its_tag(tmp_path: Path) -> None:
    """Consumers of that tag get the message, and those of other tags do not."""
    first = FolderStore(tmp_path, **SIZES)
    for number in range(30):
        first.store.append(record(b"%d" % number, tag="even" if number % 2 == 0 else "odd"))
    first.store.write_tails()
    first.kill()
    again = FolderStore(tmp_path, **SIZES)
    blank(tmp_path, 10, 5)
    whole = [message.body for message in decode_messages(get(again.store, 0).body)]
    assert whole == [b"%d" % number for number in range(30)]
    codes = [entry.tags_code for entry in again.store.entries("T", 0, 10, 5)]
    assert codes == [tags_code("even" if number % 2 == 0 else "odd") for number in range(10, 15)]
    odd = [message.body for message in decode_messages(get(again.store, 0, tags="odd").body)]
    assert odd == [b"%d" % number for number in range(1, 30, 2)]
    again.kill()


async def test_a_long_search_keeps_nobody_waiting(tmp_path: Path) -> None:
    """The reader must ask again and skips nothing; one search finds all entries of the gap."""
    async with kept(tmp_path, **SIZES) as opened:
        for _ in range(100):
            opened.store.append(record(b"sought"))
            for _ in range(5):
                opened.store.append(record(b"x" * 4000, queue_id=1))
        await opened.flusher.flush()
    blank(tmp_path, 1, 98)
    async with kept(tmp_path, **SIZES) as again:
        assert again.store.get("T", 0, 0, 1, None).status is GetStatus.FOUND
        asked = again.store.get("T", 0, 1, 32, None)
        assert (asked.status, asked.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 1)
        await until(lambda: again.store.get("T", 0, 1, 32, None).message_count == 32, "the entries are found")
        assert again.store.get("T", 0, 98, 32, None).message_count == 2
        assert again.log.names("warning").count("queue_entries_repaired") == 1


async def test_a_search_for_what_is_not_there_ends(tmp_path: Path) -> None:
    """The missing message is logged and left out, and later messages are served."""
    async with kept(tmp_path, **SIZES) as opened:
        for queue_id in (0, 1, 1, 1, 0, 0):
            opened.store.append(record(b"x" * 700_000, queue_id=queue_id))
        await opened.flusher.flush()
        gone = opened.store.entries("T", 0, 1, 1)[0].commit_log_offset
    blank(tmp_path, 1, 1)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[gone + 200] ^= 1
    path.write_bytes(content)
    async with kept(tmp_path, **SIZES) as again:
        assert again.store.get("T", 0, 1, 1, None).status is GetStatus.OFFSET_FOUND_NULL
        await until(lambda: again.store.get("T", 0, 1, 1, None).next_begin_offset == 2, "the search has ended")
        assert again.store.get("T", 0, 2, 1, None).message_count == 1


async def test_a_search_in_a_file_that_is_deleted_meanwhile_is_begun_anew(tmp_path: Path) -> None:
    """Later messages of the log are still found."""
    sizes: dict[str, Any] = {"segment_bytes": 1 << 20, "queue_file_bytes": 20_000}
    async with kept(tmp_path, **sizes) as opened:
        for number in range(10):
            opened.store.append(record(b"%d" % number))
            for _ in range(100):
                opened.store.append(record(b"x" * 4000, queue_id=1))
        await opened.flusher.flush()
    blank(tmp_path, 1, 8)
    async with kept(tmp_path, **sizes) as again:
        store = again.store
        assert store.get("T", 0, 8, 1, None).status is GetStatus.OFFSET_FOUND_NULL
        first = store.log.segments.starts[2]
        for path in store.forget_before(first):
            await asyncio.to_thread(os.unlink, path)
        await until(lambda: store.get("T", 0, 8, 1, None).status is not GetStatus.OFFSET_FOUND_NULL, "a search ends")
        await until(lambda: store.get("T", 0, 8, 1, None).status is GetStatus.FOUND, "the message is found")
