"""The records that a start after a crash writes for the order checker: the offset of each group (docs/order.md 1)."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.persistence import restart_trace
from lockstep.broker.persistence.restart_trace import leave_resets
from lockstep.order.traces.reader import checked
from lockstep.protocol.names import SCHEDULE_TOPIC
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.store.errors import StoreUnusable
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept
from tests.store.stores import record


def leave(opened: Kept) -> None:
    broker = opened.broker
    assert broker.durable is not None
    leave_resets(broker.config, broker.catalog, broker.durable, AsyncioRuntime())


def told(opened: Kept) -> list[dict[str, Any]]:
    leave(opened)
    path = Path(opened.broker.config.trace)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def lived(folder: Path, trace: str) -> None:
    """Two queues, and a delayed message; group G has committed one queue, group New none."""
    async with kept(folder, trace=trace) as opened:
        for queue_id in (0, 1):
            for _ in range(3):
                opened.broker.messages.put(record(b"x", queue_id=queue_id))
        opened.broker.messages.put(record(b"x", topic=SCHEDULE_TOPIC))
        opened.broker.catalog.topics.ensure_retry_topic("G", 1, NOW_MS)
        opened.broker.messages.put(record(b"x", topic="%RETRY%G"))
        opened.broker.catalog.offsets.commit("G", "T", 0, 2)
        for group in ("G", "New"):
            opened.broker.catalog.groups.find(group, NOW_MS)
        assert told(opened) == []


async def test_after_a_crash_every_group_has_its_place(tmp_path: Path) -> None:
    """Queues without a known commit are at 0, because one may be lost; built-in groups and topics have no record."""
    folder, trace = tmp_path / "store", str(tmp_path / "broker.trace")
    await lived(folder, trace)
    (folder / "abort").touch()
    async with kept(folder, trace=trace) as again:
        records = told(again)
    clock = {"wall_ms", "mono_ns", "v", "machine", "boot"}
    assert all(set(one) == {"event", "broker", "group", "topic", "queue_id", "offset"} | clock for one in records)
    assert {(one["event"], one["broker"]) for one in records} == {("reset", "broker-a")}
    assert (records[0]["machine"], records[0]["boot"]) == AsyncioRuntime().clock_id()
    assert list(checked(records, "broker", [])) == records
    assert [(one["group"], one["topic"], one["queue_id"], one["offset"]) for one in records] == [
        ("G", "T", 0, 2),
        ("G", "T", 1, 0),
        ("G", "%RETRY%G", 0, 0),
        ("New", "T", 0, 0),
        ("New", "T", 1, 0),
    ]


async def test_after_a_clean_end_there_is_nothing_to_tell(tmp_path: Path) -> None:
    """Every commit is there."""
    folder, trace = tmp_path / "store", str(tmp_path / "broker.trace")
    await lived(folder, trace)
    async with kept(folder, trace=trace) as again:
        assert told(again) == []


async def test_there_is_an_end_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with very many groups and queues says that it left some out."""
    folder, trace = tmp_path / "store", str(tmp_path / "broker.trace")
    await lived(folder, trace)
    (folder / "abort").touch()
    monkeypatch.setattr(restart_trace, "_RECORDS_MAX", 2)
    monkeypatch.setattr(restart_trace, "_WRITTEN_AT_ONCE", 1)
    async with kept(folder, trace=trace) as again:
        assert len(told(again)) == 2
        assert again.log.names("warning").count("reset_records_left_out") == 1


async def test_a_trace_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    """In one line that names it: a history without it would accuse the wrong."""
    folder = tmp_path / "store"
    async with kept(folder, trace=str(tmp_path)) as opened:
        with pytest.raises(StoreUnusable, match=f"--trace {tmp_path}: Is a directory"):
            leave(opened)
