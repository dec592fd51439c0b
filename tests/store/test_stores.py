"""What both stores must do: layout, statuses, limits, look-ups (wire.md 5, 6.3, 8.2)."""

import pytest

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.messages.message import decode_messages
from lockstep.store import GetStatus, Passes
from tests.broker.helpers import NOW_MS
from tests.store.stores import HOST, MakeStore, fill, get, record

S = GetStatus


def test_a_message_comes_back_as_it_went_in(new_store: MakeStore) -> None:
    """Every field of the stored layout, also those that the broker sets."""
    store = new_store()
    store.append(record(b"first"))
    result = store.append(record(b"hello", tag="A"))
    (message,) = decode_messages(get(store, 1).body)
    assert result == (message.commit_log_offset, 1)
    assert (message.topic, message.queue_id, message.queue_offset, message.body) == ("T", 0, 1, b"hello")
    assert (message.flag, message.reconsume_times, message.tags) == (7, 2, "A")
    assert (message.born_timestamp, message.store_timestamp) == (NOW_MS - 5, NOW_MS)
    assert (message.born_host, message.store_host) == ((HOST, 4711), (HOST, 10911))


@pytest.mark.parametrize("segment_bytes", [1_000_000, 2_000])
def test_a_run_is_stored_as_its_messages_one_by_one(new_store: MakeStore, segment_bytes: int) -> None:
    """Places, bytes and queue entries, of several queues and hosts, with room for all or with a file end between."""
    one_by_one, at_once = new_store(segment_bytes=segment_bytes), new_store(segment_bytes=segment_bytes)
    for number in range(4):
        run = [record(b"%d" % i * i, queue_id=i % 3, tag="AB"[i % 2]) for i in range(number, number + 5)]
        run[1] = run[1]._replace(born_host=bytes(range(16)))
        assert at_once.append_all(run) == [one_by_one.append(one) for one in run]
    for queue_id in range(3):
        assert get(at_once, 0, queue_id=queue_id) == get(one_by_one, 0, queue_id=queue_id)
        assert at_once.entries("T", queue_id, 0, 99) == one_by_one.entries("T", queue_id, 0, 99)
    assert at_once.max_commit_log_offset == one_by_one.max_commit_log_offset


def test_messages_of_ipv6_peers_stand_among_the_others(new_store: MakeStore) -> None:
    """A host of 16 bytes makes its record 12 bytes longer; its neighbours are found."""
    store, peer = new_store(), bytes(range(16))
    store.append(record(b"before"))
    long = store.append(record(b"long")._replace(born_host=peer))
    after = store.append(record(b"after"))
    messages = decode_messages(get(store, 0).body)
    assert [message.body for message in messages] == [b"before", b"long", b"after"]
    assert [message.commit_log_offset for message in messages[1:]] == [long.commit_log_offset, after.commit_log_offset]
    assert (messages[1].born_host, messages[1].sys_flag) == ((peer, 4711), 0x10)


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
def test_status_and_next_offset(
    new_store: MakeStore, written: int, offset: int, status: GetStatus, next_begin_offset: int
) -> None:
    """The table of wire.md 6.3."""
    store = new_store()
    fill(store, written)
    result = get(store, offset)
    assert (result.status, result.next_begin_offset) == (status, next_begin_offset)
    assert (result.min_offset, result.max_offset) == (0, written)


def test_a_pull_stops_at_its_number_of_messages_and_at_the_brokers(new_store: MakeStore) -> None:
    """maxMsgNums, at most 32; 0 and negative ones still return one message."""
    store = new_store()
    fill(store, 50)
    assert [get(store, 0, n).message_count for n in (1, 5, 32, 1000, 0, -4)] == [1, 5, 32, 32, 1, 1]
    assert get(store, 0, 5).next_begin_offset == 5


def test_a_bulk_pull_stops_at_its_bytes_alone(new_store: MakeStore) -> None:
    """The limit of messages does not hold for it; that of bytes does, and what it asks for."""
    probe = new_store()
    fill(probe, 50)
    everything = SubscriptionData.parse("T", "*")
    whole = probe.get("T", 0, 0, 4096, everything, bulk=True)
    assert (whole.message_count, whole.next_begin_offset) == (50, 50)
    assert probe.get("T", 0, 5, 40, everything, bulk=True).next_begin_offset == 45
    assert probe.get("T", 0, 49, 0, everything, bulk=True).message_count == 1
    size_bytes = len(get(probe, 0, 1).body)  # the first ten messages have a body of one byte
    limited = new_store(pull_bytes_max=7 * size_bytes)
    fill(limited, 50)
    assert limited.get("T", 0, 0, 4096, everything, bulk=True).message_count == 7
    tagged = SubscriptionData.parse("T", "A")
    for _ in range(40):
        probe.append(record(tag="A"))
    assert probe.get("T", 0, 0, 4096, tagged, bulk=True).message_count == 32


@pytest.mark.parametrize("tags", ["*", "A"])
def test_a_pull_stops_at_its_bytes_but_the_first_message_always_fits(new_store: MakeStore, tags: str) -> None:
    """Exactly the limit fits, one byte more does not; a single larger message is returned alone."""
    probe = new_store()
    probe.append(record(b"z" * 1000, tag="A"))
    size_bytes = len(get(probe, 0).body)
    for limit_bytes, expected in [(3 * size_bytes, 3), (3 * size_bytes - 1, 2), (10, 1)]:
        store = new_store(pull_bytes_max=limit_bytes)
        for _ in range(5):
            store.append(record(b"z" * 1000, tag="A"))
        result = get(store, 0, tags=tags)
        assert (result.message_count, result.next_begin_offset) == (expected, expected)


def test_a_filter_takes_out_by_hash_and_counts_what_it_examined(new_store: MakeStore) -> None:
    """A pull for A skips B and untagged ones; with no match left it says so and the offset moves on."""
    store = new_store()
    for i in range(20):
        store.append(record(b"%d" % i, tag="A" if i in (3, 9) else "B" if i % 2 else ""))
    found = get(store, 0, tags="A || C")
    assert [message.queue_offset for message in decode_messages(found.body)] == [3, 9]
    assert (found.status, found.next_begin_offset) == (S.FOUND, 20)
    assert get(store, 10, tags="A")[:2] == (S.NO_MATCHED_MESSAGE, 20)


def test_a_full_filtered_pull_stops_behind_its_last_message(new_store: MakeStore) -> None:
    """The next pull examines the entries after it."""
    store = new_store()
    for i in range(20):
        store.append(record(tag="A" if i in (3, 9, 12) else "B"))
    assert get(store, 0, 2, tags="A").next_begin_offset == 10


def test_a_filtered_pull_examines_at_most_800_entries(new_store: MakeStore) -> None:
    """Unless more messages were asked for than that."""
    store = new_store()
    fill(store, 1000, tag="B")
    assert get(store, 0, tags="A")[:2] == (S.NO_MATCHED_MESSAGE, 800)
    assert get(store, 0, 900, tags="A")[:2] == (S.NO_MATCHED_MESSAGE, 900)


def test_messages_of_interleaved_queues_are_joined_in_order(new_store: MakeStore) -> None:
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
def test_the_message_nearest_in_time(new_store: MakeStore, timestamp: int, offset: int) -> None:
    """Nearer neighbour, tie to the earlier, the first and the last at the ends (wire.md 8.2)."""
    store = new_store()
    for at_ms in (1000, 1100, 1150, 1170, 1180, 1200):
        store.append(record(at_ms=at_ms))
    assert store.offset_at("T", 0, timestamp) == offset


@pytest.mark.parametrize("host", [HOST, bytes(range(16))])
def test_times_are_read_behind_hosts_of_either_length(new_store: MakeStore, host: bytes) -> None:
    """The store time stands 12 bytes later behind an IPv6 bornHost (wire.md 5)."""
    store = new_store()
    for at_ms in (1000, 2000):
        store.append(record(at_ms=at_ms)._replace(born_host=host))
    assert [store.store_timestamp("T", 0, offset) for offset in (0, 1)] == [1000, 2000]
    assert store.offset_at("T", 0, 1900) == 1
    assert [message.born_host[0] for message in decode_messages(get(store, 0).body)] == [host, host]


def test_a_filter_is_shown_each_message(new_store: MakeStore) -> None:
    """It alone decides, whatever the tags of the subscription are; limits hold as with tags."""
    store = new_store(pull_messages_max=2)
    for body, tag in ((b"a", "A"), (b"b", ""), (b"c", "A"), (b"b", "B"), (b"b", "A"), (b"d", "")):
        store.append(record(body, tag=tag))
    shown: list[bytes] = []

    def matches(stored: bytes) -> bool:
        (message,) = decode_messages(stored)
        shown.append(message.body)
        return message.body == b"b"

    subscription = SubscriptionData.parse("T", "A")
    passes = Passes(matches, entries_max=800)
    result = store.get("T", 0, 0, 32, subscription, passes)
    assert [message.queue_offset for message in decode_messages(result.body)] == [1, 3]
    assert (result.status, result.next_begin_offset, result.message_count) == (S.FOUND, 4, 2)
    assert shown == [b"a", b"b", b"c", b"b"]
    rest = store.get("T", 0, 5, 32, subscription, passes)
    assert (rest.status, rest.next_begin_offset, rest.body) == (S.NO_MATCHED_MESSAGE, 6, b"")
    shown.clear()
    slow = store.get("T", 0, 2, 32, subscription, Passes(matches, entries_max=1))
    assert (slow.status, slow.next_begin_offset, shown) == (S.NO_MATCHED_MESSAGE, 3, [b"c"])


@pytest.mark.parametrize(("text_bytes_max", "examined"), [(0, 1), (250, 2), (10_000, 5)])
def test_a_filter_is_shown_so_many_bytes_of_properties(
    new_store: MakeStore, text_bytes_max: int, examined: int
) -> None:
    """To look at 800 messages with 8,000 tiny properties each would keep a broker for a second. One is always shown."""
    store = new_store()
    for number in range(5):
        store.append(record(b"x" * 1000 * number, tag="t" * 100))
    passes = Passes(lambda _: False, entries_max=800, text_bytes_max=text_bytes_max)
    result = store.get("T", 0, 0, 32, None, passes)
    assert (result.status, result.next_begin_offset) == (S.NO_MATCHED_MESSAGE, examined)
