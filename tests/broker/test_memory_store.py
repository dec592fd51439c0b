"""The store in memory: layout, statuses, limits, eviction, look-ups (wire.md 5, 6.3, 8.2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.store import GetResult, GetStatus, MemoryStore, Record
from lockstep.protocol.filter import tags_code
from lockstep.protocol.heartbeat import SubscriptionData
from lockstep.protocol.message import decode_messages
from tests.broker.helpers import NOW_MS

S = GetStatus
HOST = bytes((127, 0, 0, 1))
Evictions = list[tuple[str, int, int, int]]


def new_store(evictions: Evictions | None = None, **settings: Any) -> MemoryStore:
    limits = {"memory_limit_bytes": 1 << 20, "segment_bytes": 1 << 17, "pull_bytes_max": 262_144}
    return MemoryStore(
        **{**limits, "pull_messages_max": 32, **settings},
        store_host=HOST,
        store_port=10911,
        on_evict=lambda *event: (evictions if evictions is not None else []).append(event),
    )


def record(body: bytes = b"x", queue_id: int = 0, tag: str = "", topic: str = "T", at_ms: int = NOW_MS) -> Record:
    properties = f"TAGS\x01{tag}".encode() if tag else b""
    return Record(topic, queue_id, 7, 0, NOW_MS - 5, HOST, 4711, at_ms, 2, 0, body, properties, tags_code(tag))


def fill(store: MemoryStore, count: int, **fields: Any) -> None:
    for i in range(count):
        store.append(record(b"%d" % i, **fields))


def get(store: MemoryStore, offset: int, max_msg_nums: int = 32, tags: str = "*", queue_id: int = 0) -> GetResult:
    return store.get("T", queue_id, offset, max_msg_nums, SubscriptionData.parse("T", tags))


def test_a_message_comes_back_as_it_went_in() -> None:
    """Every field of the stored layout, the broker's own included."""
    store = new_store()
    store.append(record(b"first"))
    result = store.append(record(b"hello", tag="A"))
    (message,) = decode_messages(get(store, 1).body)
    assert result == (message.commit_log_offset, 1)
    assert (message.topic, message.queue_id, message.queue_offset, message.body) == ("T", 0, 1, b"hello")
    assert (message.flag, message.reconsume_times, message.tags) == (7, 2, "A")
    assert (message.born_timestamp, message.store_timestamp) == (NOW_MS - 5, NOW_MS)
    assert (message.born_host, message.store_host) == ((HOST, 4711), (HOST, 10911))


@pytest.mark.parametrize(
    ("written", "offset", "status", "next_begin_offset"),
    [
        (0, 0, S.NO_MESSAGE_IN_QUEUE, 0),
        (0, 3, S.NO_MESSAGE_IN_QUEUE, 0),
        (3, 0, S.FOUND, 3),
        (3, 2, S.FOUND, 3),
        (3, 3, S.OFFSET_OVERFLOW_ONE, 3),
        (3, 4, S.OFFSET_OVERFLOW_BADLY, 3),
        (3, -1, S.OFFSET_TOO_SMALL, 0),
    ],
)
def test_status_and_next_offset(written: int, offset: int, status: GetStatus, next_begin_offset: int) -> None:
    """The table of wire.md 6.3."""
    store = new_store()
    fill(store, written)
    result = get(store, offset)
    assert (result.status, result.next_begin_offset) == (status, next_begin_offset)
    assert (result.min_offset, result.max_offset) == (0, written)


def test_an_offset_below_what_was_evicted_is_too_small_and_an_emptied_queue_keeps_its_offsets() -> None:
    """After the oldest segments went: min moves up, the next offset is the new min, and none is given twice."""
    evictions: Evictions = []
    store = new_store(evictions, memory_limit_bytes=4096, segment_bytes=1024)
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
    """Ten times the limit is written; what is reserved never passes it, oversized messages included."""
    store = new_store(memory_limit_bytes=8192, segment_bytes=1024)
    for i in range(500):
        store.append(record(b"y" * (3000 if i % 50 == 49 else 100)))
        assert store._log.reserved_bytes <= 8192
    assert get(store, 499).message_count == 1


def test_a_pull_stops_at_its_number_of_messages_and_at_the_brokers() -> None:
    """maxMsgNums, at most 32; 0 and negative ones still bring one."""
    store = new_store()
    fill(store, 50)
    assert [get(store, 0, n).message_count for n in (1, 5, 32, 1000, 0, -4)] == [1, 5, 32, 32, 1, 1]
    assert get(store, 0, 5).next_begin_offset == 5


@pytest.mark.parametrize("tags", ["*", "A"])
def test_a_pull_stops_at_its_bytes_but_the_first_message_always_fits(tags: str) -> None:
    """Exactly the limit fits, one byte more does not; a single larger message comes alone."""
    probe = new_store()
    probe.append(record(b"z" * 1000, tag="A"))
    size_bytes = len(get(probe, 0).body)
    for limit_bytes, expected in [(3 * size_bytes, 3), (3 * size_bytes - 1, 2), (10, 1)]:
        store = new_store(pull_bytes_max=limit_bytes)
        for _ in range(5):
            store.append(record(b"z" * 1000, tag="A"))
        result = get(store, 0, tags=tags)
        assert (result.message_count, result.next_begin_offset) == (expected, expected)


def test_a_filter_takes_out_by_hash_and_counts_what_it_examined() -> None:
    """A pull for A skips B and untagged ones; with nothing left it says so and moves on."""
    store = new_store()
    for i in range(20):
        store.append(record(b"%d" % i, tag="A" if i in (3, 9) else "B" if i % 2 else ""))
    found = get(store, 0, tags="A || C")
    assert [message.queue_offset for message in decode_messages(found.body)] == [3, 9]
    assert (found.status, found.next_begin_offset) == (S.FOUND, 20)
    assert get(store, 10, tags="A")[:2] == (S.NO_MATCHED_MESSAGE, 20)


def test_a_full_filtered_pull_stops_behind_its_last_message() -> None:
    """Entries behind it are examined by the next pull."""
    store = new_store()
    for i in range(20):
        store.append(record(tag="A" if i in (3, 9, 12) else "B"))
    assert get(store, 0, 2, tags="A").next_begin_offset == 10


def test_a_filtered_pull_examines_at_most_800_entries() -> None:
    """Unless more messages were asked for than that."""
    store = new_store()
    fill(store, 1000, tag="B")
    assert get(store, 0, tags="A")[:2] == (S.NO_MATCHED_MESSAGE, 800)
    assert get(store, 0, 900, tags="A")[:2] == (S.NO_MATCHED_MESSAGE, 900)


def test_messages_of_interleaved_queues_are_joined_in_order() -> None:
    """Neighbours in a queue need not be neighbours in the log, nor of one segment."""
    store = new_store(segment_bytes=1024)
    for i in range(40):
        store.append(record(b"%d" % i, queue_id=i % 2))
    bodies = [message.body for message in decode_messages(get(store, 0, queue_id=1).body)]
    assert bodies == [b"%d" % i for i in range(1, 40, 2)]


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 0), (1000, 0), (1001, 0), (1050, 0), (1051, 1), (1100, 1), (1149, 2), (1160, 2), (1199, 5), (9999, 5)],
)
def test_the_message_nearest_in_time(timestamp: int, offset: int) -> None:
    """Nearer neighbour, tie to the earlier, the first and the last at the ends (wire.md 8.2)."""
    store = new_store()
    for at_ms in (1000, 1100, 1150, 1170, 1180, 1200):
        store.append(record(at_ms=at_ms))
    assert store.offset_at("T", 0, timestamp) == offset


def test_look_ups_of_equal_times_of_empty_queues_and_after_eviction() -> None:
    """An exact match is one of the equal ones; unknown queues answer 0; min offsets are respected."""
    store = new_store(memory_limit_bytes=4096, segment_bytes=1024)
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
    """Once the limit is reached no further memory is asked for."""
    store = new_store(memory_limit_bytes=4096, segment_bytes=1024)
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
    """Following next_begin_offset from min to max yields the matching messages of a queue, whatever was evicted."""
    store = new_store(memory_limit_bytes=8192, segment_bytes=1024, pull_bytes_max=2048)
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
