"""Drops of old messages that concern many queues: other work runs between the steps."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from lockstep.store.file.expiry import Expiry
from lockstep.store.file.retention import Retention, RetentionLimits
from lockstep.store.segments.queue import FileQueue
from tests.broker.helpers import NOW_MS
from tests.store.stores import Evictions, FolderStore, memory_store, record

T = TypeVar("T")
QUEUES = 3000
AT_ONCE_MAX = 1024


def test_a_full_memory_trims_its_queues_in_steps() -> None:
    """Each append trims some. A queue that is not trimmed yet is trimmed when it is read."""
    evictions: Evictions = []
    store = memory_store(evictions, memory_limit_bytes=1 << 20, segment_bytes=1 << 19)
    for queue_id in range(QUEUES):
        store.append(record(b"old", queue_id))
    steps = []
    while len(evictions) < QUEUES:
        before = len(evictions)
        store.append(record(b"n" * 4000, QUEUES))
        steps.append(len(evictions) - before)
        if steps[-1] and not any(steps[:-1]):
            assert ("T", QUEUES - 1, 0, 1) not in evictions
            assert store.min_offset("T", QUEUES - 1) == store.max_offset("T", QUEUES - 1) == 1
            assert store.entries("T", QUEUES - 2, 0, 1) == []
            assert store.get("T", QUEUES - 3, 0, 1, None).min_offset == 1
            assert {queue_id for _, queue_id, _, _ in evictions} >= {QUEUES - 1, QUEUES - 2, QUEUES - 3}
    assert max(steps) <= AT_ONCE_MAX
    assert sorted(evictions)[:QUEUES] == [("T", queue_id, 0, 1) for queue_id in range(QUEUES)]


def test_batches_trim_queues_too() -> None:
    """Also while the newest segment has room for them."""
    evictions: Evictions = []
    store = memory_store(evictions, memory_limit_bytes=1 << 20, segment_bytes=1 << 19)
    for queue_id in range(QUEUES):
        store.append(record(b"old", queue_id))
    while not evictions:
        store.append(record(b"n" * 4000, QUEUES))
    for _ in range(QUEUES // 100):
        store.append_all([record(b"new", QUEUES)])
    assert {queue_id for _, queue_id, _, _ in evictions} >= set(range(QUEUES))


class _Pool:
    """A pool that works when the loop comes to it."""

    def submit(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(lambda: future.set_result(fn()))
        return future

    def resize(self, threads: int) -> None: ...
    def close(self) -> None: ...


async def test_files_that_expire_trim_their_queues_in_steps(tmp_path: Path) -> None:
    """The log begins later only behind the last step, so that no queue points to a message that is gone."""
    opened = FolderStore(tmp_path)
    store = opened.store
    for queue_id in range(QUEUES):
        store.append(record(b"old", queue_id))
        store.queues["T", queue_id].write_tail()
        store.queues["T", queue_id].segments.take_dirty()
    for _ in range(1000):
        store.append(record(b"n" * 1000, QUEUES))
    trimmed: list[int] = []
    store.on_trim = lambda _topic, queue_id, _before, _now: trimmed.append(queue_id)
    steps: list[int] = []
    ended = asyncio.Event()
    trim_to = store.trim_to

    def counted(log_offset: int, firsts: Iterable[tuple[FileQueue, int]]) -> None:
        assert store.log.min_offset == 0
        before = len(trimmed)
        trim_to(log_offset, firsts)
        steps.append(len(trimmed) - before)

    store.trim_to = counted  # type: ignore[method-assign]
    retention = Retention(lambda: RetentionLimits(10**15, (), 1 << 17, 0))
    expiry: Expiry

    def go_on() -> None:
        expiry.go_on(NOW_MS)
        if not expiry.is_under_way:
            ended.set()

    expiry = Expiry(store, retention, _Pool, go_on)
    go_on()
    await asyncio.wait_for(ended.wait(), 60)
    assert store.log.min_offset > 0
    assert set(range(QUEUES - 100)) <= set(trimmed)
    assert len(steps) == -(-(QUEUES + 1) // AT_ONCE_MAX)
    assert max(steps) <= AT_ONCE_MAX
    opened.kill()
