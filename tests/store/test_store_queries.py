"""Looking into the store past its queues: by key, by place in the log, by index entry (wire.md 2.3)."""

import struct

import pytest

from lockstep.protocol.messages.message import decode_messages
from lockstep.store import MessageStore, Record
from lockstep.store.keys import search as key_search
from tests.broker.helpers import NOW_MS
from tests.store.stores import HOST, Evictions, MakeStore, memory_store, queried

FOREVER = 1 << 62


def append(
    store: MessageStore, keys: str = "", *, topic: str = "T", queue_id: int = 0, at_ms: int = NOW_MS,
    body: bytes = b"x", uniq_key: str = "", sys_flag: int = 0,
) -> int:  # fmt: skip
    """Returns the message's commit log offset."""
    pairs = [f"{name}\x01{value}" for name, value in (("KEYS", keys), ("UNIQ_KEY", uniq_key)) if value]
    properties = "\x02".join(pairs).encode()
    record = Record(topic, queue_id, 0, sys_flag, NOW_MS, HOST, 1, at_ms, 0, 0, body, properties, 0)
    return store.append(record).commit_log_offset


def found(
    store: MessageStore, key: str, *, topic: str = "T", max_num: int = 32, begin: int = 0, end: int = FOREVER
) -> list[int]:
    """Commit log offsets of what a query gives."""
    messages = queried(store, topic, key, max_num, begin, end).messages
    return [decode_messages(message, unzip=False)[0].commit_log_offset for message in messages]


def test_every_word_of_keys_and_the_uniq_key_find_their_message(new_store: MakeStore) -> None:
    """Words of KEYS at any place, and UNIQ_KEY; no part of a word, no body, no other property."""
    store = new_store()
    at = append(store, "first second third", uniq_key="AB01")
    append(store, "secondary", body=b"\x01second\x02")
    append(store, "x", uniq_key="AB01CD")
    for key in ("first", "second", "third", "AB01"):
        assert found(store, key) == [at]
    for key in ("sec", "econd", "AB0", "B01", "KEYS", "", "first second"):
        assert found(store, key) == []


def test_a_query_is_of_one_topic_and_gives_the_newest_in_order(new_store: MakeStore) -> None:
    """At most `max_num`, the newest ones, oldest first, from every queue of the topic and of no other."""
    store = new_store()
    mine = [append(store, "k", queue_id=i % 3) for i in range(7)]
    append(store, "k", topic="Other")
    assert found(store, "k") == mine
    assert found(store, "k", max_num=3) == mine[-3:]
    assert found(store, "k", max_num=0) == []
    assert found(store, "k", topic="Nobody") == []


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [(0, FOREVER, [0, 1, 2]), (1001, FOREVER, [1, 2]), (0, 2000, [0, 1]), (2000, 2000, [1]), (3001, FOREVER, [])],
)
def test_times_bound_a_query_inclusively(new_store: MakeStore, begin: int, end: int, expected: list[int]) -> None:
    """Store times, both ends included."""
    store = new_store()
    offsets = [append(store, "k", at_ms=at_ms) for at_ms in (1000, 2000, 3000)]
    assert found(store, "k", begin=begin, end=end) == [offsets[i] for i in expected]


def test_words_are_found_across_the_pieces_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is found once, however the searched memory is divided."""
    store = memory_store()
    offsets = [append(store, f"order-{i}", body=b"y" * (i % 13)) for i in range(60)]
    for piece_bytes in (2, 7, 64, 101, 100_000):
        monkeypatch.setattr(key_search, "_PIECE_BYTES", piece_bytes)
        assert [found(store, f"order-{i}") for i in range(60)] == [[offset] for offset in offsets]


def test_a_query_tells_of_the_newest_message_of_the_log() -> None:
    """Its store time and offset, whatever its topic; 0 in an empty log."""
    store = memory_store()
    assert queried(store, "T", "k", 1, 0, FOREVER)[1:] == (0, 0)
    append(store, "k", at_ms=1000)
    last = append(store, topic="Other", at_ms=2000)
    assert queried(store, "T", "k", 1, 0, FOREVER)[1:] == (2000, last)


def test_what_was_evicted_is_found_no_more() -> None:
    """Eviction does not wait for queries, and they return only kept messages."""
    evictions: Evictions = []
    store = memory_store(evictions, memory_limit_bytes=4096, segment_bytes=1024)
    offsets = [append(store, f"k{i} all", body=b"z" * 100) for i in range(60)]
    assert evictions
    kept = [i for i in range(60) if offsets[i] >= store.min_commit_log_offset]
    assert 0 < len(kept) < 60
    assert found(store, "all", max_num=100) == [offsets[i] for i in kept]
    assert found(store, "k0") == []
    assert store.message_at(offsets[0]) is None


def test_a_message_with_a_body_that_is_no_zip_is_given_as_it_stands(new_store: MakeStore) -> None:
    """The producer sets the compressed flag; a query does not check bodies."""
    store = new_store()
    at = append(store, "k", sys_flag=1, body=b"no zip at all")
    assert found(store, "k") == [at]


def test_a_message_is_read_only_where_one_begins(new_store: MakeStore) -> None:
    """No message is at any other offset, inside or outside of the log."""
    store = new_store()
    fake = struct.pack(">iI20xq", 91, 0xDAA320A7, 5)  # looks like the head of a message, and says that it is elsewhere
    offsets = [append(store, "a"), append(store, "b", body=fake * 4), append(store, "c")]
    for at in range(-100, store.max_commit_log_offset + 100):
        message = store.message_at(at)
        assert (message is not None) == (at in offsets)
        if message is not None:
            assert decode_messages(message)[0].commit_log_offset == at


def test_a_body_cannot_feign_a_message(new_store: MakeStore) -> None:
    """Its head says that it begins there, and its size covers later messages: they are not read by its id."""
    store = new_store()
    append(store, "a")
    body_at = store.max_commit_log_offset + 88  # of the next message
    append(store, "b", body=struct.pack(">iI20xq", 400, 0xDAA320A7, body_at) + bytes(60))
    for _ in range(9):
        append(store, "c", body=b"the secret of another")
    assert store.message_at(body_at) is None
    assert store.message_at(body_at - 88) is not None


def test_entries_are_those_of_the_index(new_store: MakeStore) -> None:
    """The requested number of entries, with offset, size and tag hash; out of bounds there are none."""
    store = new_store()
    offsets = [append(store, str(i)) for i in range(5)]
    entries = store.entries("T", 0, 1, 3)
    assert [entry.commit_log_offset for entry in entries] == offsets[1:4]
    assert [entry.size_bytes for entry in entries] == [offsets[i + 1] - offsets[i] for i in (1, 2, 3)]
    assert len(store.entries("T", 0, 3, 100)) == 2
    for index, count in ((-1, 3), (5, 3), (0, 0), (0, -1)):
        assert store.entries("T", 0, index, count) == []
    assert store.entries("Nobody", 0, 0, 5) == []


def test_a_dropped_topic_begins_anew(new_store: MakeStore) -> None:
    """Its queues are empty, other topics stay, and its next message is its first."""
    store = new_store()
    for topic in ("T", "Other"):
        append(store, "k", topic=topic)
    store.drop_topic("T")
    assert (store.max_offset("T", 0), store.max_offset("Other", 0)) == (0, 1)
    assert found(store, "k") == []
    append(store, "k")
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 1)


def test_bounds_of_the_log() -> None:
    """Its first offset, its next offset, and the store time of its oldest message."""
    store = memory_store()
    assert (store.min_commit_log_offset, store.max_commit_log_offset, store.earliest_timestamp()) == (0, 0, None)
    append(store, at_ms=1000)
    at = append(store, at_ms=2000)
    assert store.min_commit_log_offset == 0 < at < store.max_commit_log_offset
    assert store.earliest_timestamp() == 1000
