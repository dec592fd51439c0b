"""Delayed messages and SIGKILL: a delivered message is in the log and is not delivered again (wire.md 10.2)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lockstep.protocol.messages import properties as names
from lockstep.store.base import QueueEntry
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.store.stores import record

LIFE: dict[str, Any] = {"flush_sync": False, "flush_interval_ms": 60_000}  # nothing is written but what a test writes


def send_delayed(opened: Kept, body: bytes, level: int = 1) -> None:
    """Without a UNIQ_KEY: equal bodies are equal messages."""
    opened.send(body, properties=f"DELAY\x01{level}")


def write_offsets(opened: Kept) -> None:
    """As the keeper does from time to time."""
    assert opened.broker.durable is not None
    for write in opened.broker.durable.tables.writings():
        write()


def killed(folder: Path, name: str) -> Path:
    """What a SIGKILL leaves of a folder that is open."""
    return shutil.copytree(folder, folder.parent / name)


def saved(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config" / "delayOffset.json").read_text())
    return found


async def test_what_was_delivered_before_a_kill_is_not_delivered_again(tmp_path: Path) -> None:
    """After any number of kills; waiting messages are delivered at their time."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        for number in range(6):
            send_delayed(opened, b"%d" % number)
        send_delayed(opened, b"long", level=5)
        write_offsets(opened)
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        send_delayed(opened, b"later")
        left = killed(folder, "1")
    async with kept(left, **LIFE) as again:
        assert again.broker.messages.delays.offsets == {1: 6}
        assert again.broker.messages.delays.next_due_ms == NOW_MS + 1000
        again.broker.messages.deliver_delayed(NOW_MS + 1000)
        left = killed(left, "2")
    async with kept(left, **LIFE) as last:
        last.broker.messages.deliver_delayed(NOW_MS + 60_000)
        assert last.bodies() == [*[b"%d" % number for number in range(6)], b"later", b"long"]


async def test_a_message_with_a_damaged_entry_comes_at_its_time(tmp_path: Path) -> None:
    """The entry says when. It is found again in the log before anything is delivered."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        send_delayed(opened, b"late")
    async with kept(folder, **LIFE) as again:
        again.store.queues["SCHEDULE_TOPIC_XXXX", 0].put(0, QueueEntry(0, 0, 0))
        again.broker.messages.deliver_delayed(NOW_MS + 999)
        assert again.bodies() == []
        assert again.broker.messages.delays.next_due_ms == NOW_MS + 1000
        again.broker.messages.deliver_delayed(NOW_MS + 1000)
        assert again.bodies() == [b"late"]


async def test_a_message_that_reaches_the_disk_after_its_time_comes_then(tmp_path: Path) -> None:
    """The timer found nothing to deliver, and waits for nothing: the end of the sync wakes it."""
    async with kept(tmp_path) as opened:
        send_delayed(opened, b"late")
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        delays = opened.broker.messages.delays
        assert delays.next_due_ms is None
        await until(lambda: delays.next_due_ms == NOW_MS + 1000, "the message can be read")
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        await until(lambda: opened.bodies() == [b"late"], "it is delivered")


async def test_a_kill_before_the_first_table_is_a_kill_like_any_other(tmp_path: Path) -> None:
    """Lives that are shorter than the time between two tables leave none, however many they are."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        send_delayed(opened, b"first")
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        send_delayed(opened, b"second")
        left = killed(folder, "1")
    assert not (left / "config" / "delayOffset.json").exists()
    async with kept(left, **LIFE) as again:
        again.broker.messages.deliver_delayed(NOW_MS + 1000)
        left = killed(left, "2")
    async with kept(left, **LIFE) as last:
        last.broker.messages.deliver_delayed(NOW_MS + 1000)
        assert last.bodies() == [b"first", b"second"]


async def test_equal_messages_are_told_apart(tmp_path: Path) -> None:
    """Of two that differ in nothing one was delivered when the offsets were written: the other one comes still."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        send_delayed(opened, b"same")
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        write_offsets(opened)
        send_delayed(opened, b"same")
        left = killed(folder, "1")
    async with kept(left, **LIFE) as again:
        again.broker.messages.deliver_delayed(NOW_MS + 1000)
        assert again.bodies() == [b"same", b"same"]


async def test_what_cannot_be_delivered_is_passed_over(tmp_path: Path) -> None:
    """As by the life that was killed."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        send_delayed(opened, b"first")
        send_delayed(opened, b"nowhere")
        send_delayed(opened, b"last")
        _corrupt_target(opened, 1)
        write_offsets(opened)
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        left = killed(folder, "1")
    async with kept(left, **LIFE) as again:
        again.broker.messages.deliver_delayed(NOW_MS + 1000)
        assert again.bodies() == [b"first", b"last"]


def _corrupt_target(opened: Kept, queue_offset: int) -> None:
    """No CRC covers properties."""
    (entry,) = opened.store.entries("SCHEDULE_TOPIC_XXXX", 0, queue_offset, 1)
    data = opened.store.message_at(entry.commit_log_offset)
    assert data is not None
    at = data.index(names.REAL_QID.encode() + b"\x01") + len(names.REAL_QID) + 1
    opened.store.log.segments.write(entry.commit_log_offset + at, b"x")


@pytest.mark.parametrize("properties", ["DELAY\x011", "DELAY\x01one", "DELAY\x01-1", "DELAY\x0199", "REAL_QID\x010"])
async def test_what_only_looks_like_a_delivery_counts_for_nothing(tmp_path: Path, properties: str) -> None:
    """A batch may hold any text; the message that waits comes."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        write_offsets(opened)
        send_delayed(opened, b"real")
        opened.broker.messages.put(record(b"real", at_ms=NOW_MS + 2000)._replace(properties=properties.encode()))
        left = killed(folder, "1")
    async with kept(left, **LIFE) as again:
        again.broker.messages.deliver_delayed(NOW_MS + 1000)
        assert again.bodies() == [b"real", b"real"]


async def test_a_table_of_another_broker_is_taken_as_it_is(tmp_path: Path) -> None:
    """Apache's table does not say where the log ended: messages delivered after it was written come again, and none is
    left out."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        send_delayed(opened, b"one")
        write_offsets(opened)
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        left = killed(folder, "1")
    (left / "config" / "delayOffset.json").write_text('{"offsetTable":{1:0}}')
    async with kept(left, **LIFE) as again:
        again.broker.messages.deliver_delayed(NOW_MS + 1000)
        assert again.bodies() == [b"one", b"one"]


async def test_the_table_is_written_anew_when_it_says_something_new(tmp_path: Path) -> None:
    """Not because the log has grown a little: while nothing is delivered an older end of it says the same."""
    async with kept(tmp_path, **LIFE) as opened:
        write_offsets(opened)
        began = saved(tmp_path)
        opened.send(b"not delayed")
        write_offsets(opened)
        assert saved(tmp_path) == began
        send_delayed(opened, b"delayed")
        opened.broker.messages.deliver_delayed(NOW_MS + 1000)
        write_offsets(opened)
        assert saved(tmp_path) == {"offsetTable": {"1": 1}, "logOffset": opened.store.max_commit_log_offset}


async def test_an_offset_beyond_the_end_of_its_level_skips_no_later_message(tmp_path: Path) -> None:
    """A start lowers it to the end: the store may have lost its newest messages, and later ones get their offsets."""
    async with kept(tmp_path) as opened:
        opened.send(b"one", properties="DELAY\x013")
        await opened.flusher.flush()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{"3":100}}')
    async with kept(tmp_path) as again:
        assert again.broker.messages.delays.offsets == {3: 1}
