"""Delayed messages: where they wait, when they are due, and their form on delivery (wire.md 10.2)."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.delay_levels import DELAY_LEVELS, parse_delay_levels
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.remoting.settings import SettingError
from lockstep.store import AppendResult, GetResult, GetStatus, Record, StoreFull
from tests.broker.fronts.test_send import stored
from tests.broker.helpers import NOW_MS, Peer, consumer, pull_header

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
SUSPEND_AND_TEXT = 6


def send_delayed(peer: Peer, level: object, body: bytes = b"x", **fields: Any) -> SendMessageResponseHeader:
    reply = peer.send(body=body, properties=f"DELAY\x01{level}\x02TAGS\x01A\x02UNIQ_KEY\x01U", **fields)
    assert reply.code == 0, reply
    return reply.decode_header(SendMessageResponseHeader)


def waiting(peer: Peer, level: int) -> list[MessageExt]:
    return stored(peer, SCHEDULE, level - 1)


def test_the_levels_are_rocketmqs() -> None:
    """Eighteen of them, from a second to two hours."""
    levels_ms = parse_delay_levels(DELAY_LEVELS)
    assert len(levels_ms) == 18
    assert [levels_ms[i] for i in (0, 1, 4, 13, 17)] == [1000, 5000, 60_000, 600_000, 7_200_000]
    assert parse_delay_levels("2d") == (172_800_000,)


@pytest.mark.parametrize("text", ["", "1", "s", "1x", "-1s", "1.5s", "1s,2s"])
def test_levels_that_cannot_be_are_refused_at_the_start(text: str) -> None:
    """As a setting that names itself."""
    with pytest.raises(SettingError, match="delay_levels"):
        replace(BrokerConfig(), delay_levels=text)


def test_a_delayed_message_waits_in_the_schedule_topic() -> None:
    """In the queue of its level, with its real queue in its properties; the reply names the real queue (10.2)."""
    peer = Peer()
    response = send_delayed(peer, 3, b"later", queue_id=2)
    assert response.queue_id == 2
    (message,) = waiting(peer, 3)
    assert message.body == b"later"
    assert message.properties["REAL_TOPIC"] == "T"
    assert message.properties["REAL_QID"] == "2"
    assert response.msg_id == message.offset_message_id
    assert peer.broker.messages.store.entries(SCHEDULE, 2, 0, 1)[0].tags_code == NOW_MS + 10_000
    assert peer.broker.messages.store.max_offset("T", 2) == 0
    assert peer.broker.messages.delays.next_due_ms == NOW_MS + 10_000


def test_it_is_delivered_when_its_time_has_come_and_not_before() -> None:
    """Unchanged, in its queue, with a new store time; its properties still have the delay."""
    peer = Peer()
    send_delayed(peer, 3, b"later", queue_id=2, flag=9, reconsume_times=4)
    peer.broker.messages.deliver_delayed(NOW_MS + 9999)
    assert stored(peer, queue_id=2) == []
    peer.broker.messages.deliver_delayed(NOW_MS + 10_000)
    (before,), (message,) = waiting(peer, 3), stored(peer, queue_id=2)
    assert (message.body, message.flag, message.reconsume_times) == (b"later", 9, 4)
    assert (message.topic, message.queue_id, message.store_timestamp) == ("T", 2, NOW_MS + 10_000)
    assert (message.born_timestamp, message.born_host) == (before.born_timestamp, before.born_host)
    assert message.properties == before.properties
    assert message.properties["DELAY"] == "3"
    assert peer.broker.messages.delays.next_due_ms is None
    peer.broker.messages.deliver_delayed(NOW_MS + 99_999)
    assert len(stored(peer, queue_id=2)) == 1


def test_delivered_messages_are_found_by_their_tags() -> None:
    """The index entry of the real queue has the tag's hash again."""
    peer = Peer()
    send_delayed(peer, 1)
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    assert peer.pull(0, subscription="A").code == 0  # type: ignore[union-attr]
    assert peer.pull(0, subscription="B").code == 20  # type: ignore[union-attr]


@pytest.mark.parametrize(("level", "expected"), [(18, 18), (19, 18), (2147483647, 18), ("+2", 2)])
def test_levels_above_the_last_act_as_the_last(level: object, expected: int) -> None:
    """And the stored text says so."""
    peer = Peer()
    send_delayed(peer, level)
    (message,) = waiting(peer, expected)
    assert message.properties["DELAY"] == (str(expected) if level != "+2" else "+2")


@pytest.mark.parametrize("level", [0, -1])
def test_a_level_below_one_is_no_delay(level: int) -> None:
    """Stored at once where it belongs."""
    peer = Peer()
    send_delayed(peer, level)
    assert len(stored(peer)) == 1
    assert peer.broker.messages.delays.next_due_ms is None


def test_levels_are_delivered_each_at_its_time() -> None:
    """However they were sent, and the next due time is always the earliest."""
    peer = Peer()
    for level in (5, 1, 3, 1):
        send_delayed(peer, level, b"%d" % level)
    seen = []
    while (due_ms := peer.broker.messages.delays.next_due_ms) is not None:
        peer.broker.messages.deliver_delayed(due_ms)
        seen.append((due_ms - NOW_MS, [message.body for message in stored(peer)]))
    assert seen == [(1000, [b"1", b"1"]), (10_000, [b"1", b"1", b"3"]), (60_000, [b"1", b"1", b"3", b"5"])]
    assert peer.broker.messages.delays.offsets == {1: 2, 3: 1, 5: 1}


def test_a_jump_of_the_clock_delivers_all_that_is_due() -> None:
    """`now_ms` alone decides, in bounded pieces: the rest is due at once."""
    peer = Peer()
    for i in range(1200):
        send_delayed(peer, 2, b"%d" % i)
    rounds = 0
    while peer.broker.messages.delays.next_due_ms is not None:
        peer.broker.messages.deliver_delayed(NOW_MS + 7_200_000)
        rounds += 1
    assert rounds == 3
    bodies = [message.body for at in range(0, 1200, 32) for message in decode_messages(pulled(peer, at))]
    assert bodies == [b"%d" % i for i in range(1200)]


def pulled(peer: Peer, offset: int) -> bytes:
    reply = peer.pull(offset)
    assert reply is not None
    return reply.body


def test_a_delivery_wakes_a_parked_pull() -> None:
    """As any message that arrives."""
    peer = Peer()
    peer.send("T", queue_id=1)
    waiter = peer.beside()
    assert waiter.call(11, pull_header(0, sys_flag=SUSPEND_AND_TEXT)) is None
    send_delayed(peer, 1)
    assert waiter.connection.replies == []
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    assert peer.broker.messages.hold.has_arrivals
    peer.heartbeat("c9", consumer("other"))  # the end of a read wakes
    assert [reply.code for reply in waiter.connection.replies] == [0]


def test_what_the_store_drops_before_its_time_is_counted_and_said() -> None:
    """Those delivered already are no loss, and later ones are still delivered."""
    peer = Peer(memory_limit_bytes=6 << 20, segment_bytes=1 << 20, max_message_bytes=1 << 20)
    send_delayed(peer, 1)
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    send_delayed(peer, 1)
    send_delayed(peer, 2)
    for _ in range(9):
        peer.send("filler", bytes(900_000))
    assert peer.broker.messages.store.min_offset(SCHEDULE, 0) == 2
    assert peer.broker.messages.dropped.ahead_count == 2
    assert peer.log.names("warning").count("delayed_messages_dropped") == 2
    send_delayed(peer, 1, b"later")
    peer.broker.messages.deliver_delayed(NOW_MS + 5000)
    assert peer.broker.messages.store.max_offset("T", 0) == 2
    assert peer.broker.messages.delays.next_due_ms is None


def test_a_full_store_delays_a_delivery_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried again a second later, from the message that was not stored."""
    peer = Peer()
    for body in (b"1", b"2", b"3"):
        send_delayed(peer, 1, body)
    append, full = peer.broker.messages.store.append, [False, True]

    def sometimes_full(record: Record) -> AppendResult:
        if full and full.pop(0):
            raise StoreFull("the disk is full")
        return append(record)

    monkeypatch.setattr(peer.broker.messages.store, "append", sometimes_full)
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    assert [message.body for message in stored(peer)] == [b"1"]
    assert peer.broker.messages.delays.next_due_ms == NOW_MS + 2000
    peer.broker.messages.deliver_delayed(NOW_MS + 2000)
    assert [message.body for message in stored(peer)] == [b"1", b"2", b"3"]


def test_a_message_that_is_searched_for_holds_up_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again a little later, and none is passed over. Other levels go on."""
    peer = Peer()
    for level, body in ((1, b"1"), (1, b"2"), (2, b"other")):
        send_delayed(peer, level, body)
    get, damaged = peer.broker.messages.store.get, [(SCHEDULE, 0)]

    def sometimes_damaged(topic: str, queue_id: int, offset: int, *limits: Any) -> GetResult:
        if (topic, queue_id) in damaged:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, offset, 0, 2)
        return get(topic, queue_id, offset, *limits)

    monkeypatch.setattr(peer.broker.messages.store, "get", sometimes_damaged)
    peer.broker.messages.deliver_delayed(NOW_MS + 5000)
    assert [message.body for message in stored(peer)] == [b"other"]
    assert peer.broker.messages.delays.next_due_ms == NOW_MS + 5100
    damaged.clear()
    peer.broker.messages.deliver_delayed(NOW_MS + 5100)
    assert [message.body for message in stored(peer)] == [b"other", b"1", b"2"]


def test_a_compressed_body_is_delivered_as_it_was_sent() -> None:
    """The broker never unpacks it, compressed or not."""
    peer = Peer()
    send_delayed(peer, 1, b"no zip", sys_flag=1)
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    (message,) = decode_messages(peer.broker.messages.store.get("T", 0, 0, 1, None).body, unzip=False)
    assert (message.body, message.sys_flag) == (b"no zip", 1)


def test_a_message_that_is_due_too_late_is_delivered_at_once() -> None:
    """Later than its level is long: the clock was ahead when it was stored. It holds up nothing behind it (10.2)."""
    peer = Peer()
    ahead_ms = 86_400_000
    peer.now_ms = NOW_MS + ahead_ms
    send_delayed(peer, 1, b"ahead")
    send_delayed(peer, 3, b"ahead too")
    peer.now_ms = NOW_MS
    send_delayed(peer, 1, b"on time")
    peer.broker.messages.delays.resume(NOW_MS)
    assert peer.broker.messages.delays.next_due_ms == NOW_MS
    peer.broker.messages.deliver_delayed(NOW_MS)
    assert [message.body for message in stored(peer)] == [b"ahead", b"ahead too"]
    assert peer.broker.messages.delays.next_due_ms == NOW_MS + 1000
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    assert [message.body for message in stored(peer)][2:] == [b"on time"]


def test_a_message_that_is_due_as_late_as_its_level_says_waits() -> None:
    """A full delay is not mistaken for the result of a clock that was ahead."""
    peer = Peer()
    send_delayed(peer, 1, b"on time")
    peer.broker.messages.delays.resume(NOW_MS)
    peer.broker.messages.deliver_delayed(NOW_MS)
    assert stored(peer) == []
    peer.broker.messages.delays.resume(NOW_MS - 1)
    assert peer.broker.messages.delays.next_due_ms == NOW_MS - 1


def test_offsets_beyond_what_the_store_has_are_lowered() -> None:
    """A level that lost messages delivers the next ones."""
    peer = Peer()
    peer.broker.messages.delays.restore({3: 7})
    peer.broker.messages.delays.cut()
    assert peer.broker.messages.delays.offsets[3] == 0
    send_delayed(peer, 3, b"later", queue_id=2)
    peer.broker.messages.deliver_delayed(NOW_MS + 10_000)
    assert [message.body for message in stored(peer, "T", 2)] == [b"later"]


@pytest.mark.parametrize(
    "properties",
    [
        b"REAL_TOPIC\x01T\x02REAL_QID\x01" + b"9" * 10,
        b"REAL_TOPIC\x01T\x02REAL_QID\x01" + b"9" * 5000,  # Python reads 4,300 digits at most
        b"REAL_QID\x010",
        b"REAL_TOPIC\x01" + b"T" * 300 + b"\x02REAL_QID\x010",
        b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02own\x01" + b"\xff" * 20_000,  # as text it is three times as long
    ],
)
def test_a_message_that_fits_no_queue_holds_up_none(properties: bytes) -> None:
    """Another broker's store may have it. It is skipped with a log line, once."""
    peer = Peer()
    send_delayed(peer, 1, b"before")
    odd = Record(SCHEDULE, 0, 0, 0, NOW_MS, b"\x7f\0\0\1", 1, NOW_MS, 0, 0, b"odd", properties, NOW_MS + 1000)
    peer.broker.messages.store.append(odd)
    send_delayed(peer, 1, b"behind")
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    assert [message.body for message in stored(peer)] == [b"before", b"behind"]
    assert peer.log.names("error") == ["delayed_message_skipped"]
    assert peer.broker.messages.delays.next_due_ms is None
