"""The store in memory: which messages are dropped when it is full, and which stay (wire.md 6.3, 8.2)."""

import errno
import struct
from collections.abc import Callable
from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.messages.message import decode_messages
from lockstep.store import GetStatus, StoreFull
from lockstep.store.memory import log
from tests.store.stores import Evictions, fill, get, memory_store, queried, record

S = GetStatus


def test_an_offset_below_what_was_evicted_is_too_small_and_an_emptied_queue_keeps_its_offsets() -> None:
    """After the oldest segments are dropped min moves up, the answer's next offset is the new min, and no offset is
    given twice."""
    evictions: Evictions = []
    store = memory_store(evictions, memory_limit_bytes=4096, segment_bytes=1024)
    fill(store, 3, queue_id=1)
    fill(store, 100)
    low = store.min_offset("T", 0)
    assert 0 < low < 100
    assert get(store, low - 1)[:4] == (S.OFFSET_TOO_SMALL, low, low, 100)
    assert get(store, low).status is S.FOUND
    assert get(store, 1, queue_id=1)[:4] == (S.OFFSET_TOO_SMALL, 3, 3, 3)
    assert get(store, 3, queue_id=1).status is S.OFFSET_OVERFLOW_ONE
    assert store.append(record(queue_id=1)).queue_offset == 3
    assert ("T", 1, 0, 3) in evictions
    assert [event[3] for event in evictions if event[1] == 0][-1] == low


def test_memory_stays_below_its_limit() -> None:
    """Ten times the limit is written; reserved memory never exceeds it, also with oversized messages."""
    store = memory_store(memory_limit_bytes=8192, segment_bytes=1024)
    for i in range(500):
        store.append(record(b"y" * (3000 if i % 50 == 49 else 100)))
        assert store._log.reserved_bytes <= 8192
    assert get(store, 499).message_count == 1


def test_look_ups_of_equal_times_of_empty_queues_and_after_eviction() -> None:
    """An exact match finds one of the equal ones; unknown queues answer 0; min offsets hold."""
    store = memory_store(memory_limit_bytes=4096, segment_bytes=1024)
    assert (store.offset_at("T", 0, 5), store.store_timestamp("T", 0, 0)) == (0, None)
    for i in range(100):
        store.append(record(at_ms=1000 + i // 2))
    low = store.min_offset("T", 0)
    assert store.offset_at("T", 0, 0) == low
    assert store.store_timestamp("T", 0, low) == 1000 + low // 2
    assert store.store_timestamp("T", 0, low - 1) is None
    found = store.offset_at("T", 0, 1040)
    assert store.store_timestamp("T", 0, found) == 1040


def test_a_new_segment_reuses_the_oldest_ones_memory() -> None:
    """At the limit no further memory is allocated."""
    store = memory_store(memory_limit_bytes=4096, segment_bytes=1024)
    fill(store, 60)
    buffers = {id(segment.buffer) for segment in store._log._segments}
    fill(store, 60)
    assert {id(segment.buffer) for segment in store._log._segments} == buffers


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 900), st.sampled_from(["", "A", "B"])), max_size=60),
    st.sampled_from(["*", "A", "A||B"]),
    st.integers(1, 8),
)
def test_reading_on_brings_every_kept_message_once_in_order(
    messages: list[tuple[int, int, str]], tags: str, max_msg_nums: int
) -> None:
    """Following next_begin_offset from min to max gives the matching messages of a queue, after any eviction."""
    store = memory_store(memory_limit_bytes=8192, segment_bytes=1024, pull_bytes_max=2048)
    written: dict[int, list[tuple[bytes, str]]] = {0: [], 1: [], 2: []}
    for i, (queue_id, body_bytes, tag) in enumerate(messages):
        body = b"%d" % i + b"." * body_bytes
        store.append(record(body, queue_id, tag))
        written[queue_id].append((body, tag))
    for queue_id, expected in written.items():
        low = offset = store.min_offset("T", queue_id)
        read: list[bytes] = []
        while offset < store.max_offset("T", queue_id):
            result = get(store, offset, max_msg_nums, tags, queue_id)
            assert result.next_begin_offset > offset
            read += [message.body for message in decode_messages(result.body)]
            offset = result.next_begin_offset
        assert offset == len(expected)
        assert read == [body for body, tag in expected[low:] if tags == "*" or (tag and tag in tags)]


def test_a_query_names_the_newest_message_of_all_queues() -> None:
    """Also when it looks at so many queues in steps, and the newest message is in the first of them."""
    store = memory_store(memory_limit_bytes=8 << 20, segment_bytes=4 << 20)
    assert queried(store, "T", "absent", 32, 0, 2**62)[1:] == (0, 0)
    for queue_id in range(5000):
        store.append(record(b"x", queue_id=queue_id))
    newest = store.append(record(b"x", queue_id=0))
    assert queried(store, "T", "absent", 32, 0, 2**62).last_commit_log_offset == newest.commit_log_offset


@pytest.fixture
def memory_ends(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the system give memory for so many more segments."""

    def ends(segments: int) -> None:
        left = iter(range(segments))

        def allocate(_file: int, size: int) -> mmap:
            if next(left, None) is None:
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return mmap(-1, size)

        monkeypatch.setattr(log, "mmap", allocate)

    return ends


def test_a_batch_is_stored_whole_or_not_at_all(memory_ends: Callable[[int], None]) -> None:
    """The system gives no memory in its midst: nothing of it stays, and the next batch has its offsets."""
    store = memory_store(memory_limit_bytes=8192, segment_bytes=1024)
    fill(store, 3)
    end, batch = store.max_commit_log_offset, [record(b"x" * 300, queue_id=i % 2) for i in range(8)]
    memory_ends(1)
    with pytest.raises(StoreFull, match="Cannot allocate memory"):
        store.append_all(batch)
    assert (store.max_offset("T", 0), store.max_offset("T", 1), store.max_commit_log_offset) == (3, 0, end)
    assert get(store, 0).message_count == 3
    memory_ends(9)
    assert [place.queue_offset for place in store.append_all(batch)] == [3, 0, 4, 1, 5, 2, 6, 3]
    assert [len(message.body) for message in decode_messages(get(store, 3).body)] == [300] * 4


def test_a_batch_with_a_message_that_cannot_be_encoded_leaves_nothing() -> None:
    """Also when it needs a new segment."""
    store = memory_store(memory_limit_bytes=8192, segment_bytes=1024)
    fill(store, 3)
    end = store.max_commit_log_offset
    with pytest.raises(struct.error):
        store.append_all([*[record(b"x" * 300)] * 4, record(queue_id=2**40)])
    assert (store.max_offset("T", 0), store.max_commit_log_offset) == (3, end)


def test_a_store_reads_on_when_the_memory_for_another_size_is_not_given(memory_ends: Callable[[int], None]) -> None:
    """A large message drops old segments first; what is left can be read, and smaller messages are stored."""
    evictions: Evictions = []
    store = memory_store(evictions, memory_limit_bytes=4096, segment_bytes=1024)
    fill(store, 40)
    low = store.min_offset("T", 0)
    memory_ends(0)
    with pytest.raises(StoreFull):
        store.append(record(b"y" * 1800))
    assert low < store.min_offset("T", 0) < 40
    assert get(store, 39).message_count == 1
    with pytest.raises(StoreFull):
        store.append(record(b"y" * 3900))
    assert store.min_offset("T", 0) == store.max_offset("T", 0) == 40
    memory_ends(1)
    assert store.append(record(b"z")).queue_offset == 40
    assert get(store, 40).message_count == 1
    assert evictions[-1][3] == 40


def test_a_batch_of_more_than_the_limit_keeps_its_last_messages() -> None:
    """As if its messages had come one by one."""
    alone, together = (memory_store(memory_limit_bytes=4096, segment_bytes=1024) for _ in range(2))
    batch = [record(b"%d" % i * 300) for i in range(9)] * 3
    assert together.append_all(batch) == [alone.append(one) for one in batch]
    assert together.min_offset("T", 0) == alone.min_offset("T", 0) > 10
    assert get(together, 26) == get(alone, 26)
