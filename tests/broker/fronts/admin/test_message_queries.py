"""Codes 12, 33 and 321: messages by key, by id, and what a queue's index holds (wire.md 2.3)."""

from typing import Any

import pytest

from lockstep.protocol.bodies.admin import QueryConsumeQueueResponseBody
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import FRAME_BYTES_MAX, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.filter import tags_code
from lockstep.protocol.headers.admin import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from lockstep.protocol.messages.ids import decode_offset_message_id
from lockstep.protocol.messages.message import decode_messages
from tests.broker.helpers import NOW_MS, Peer, consumer

C = ResponseCode
FOREVER = 2**63 - 1


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


def query(peer: Peer, key: str, max_num: int = 64, **fields: Any) -> RemotingCommand:
    header = QueryMessageRequestHeader("T", key, max_num, 0, FOREVER)._replace(**fields)
    return peer.answer(RequestCode.QUERY_MESSAGE, header)


def test_a_query_by_key_gives_whole_messages(peer: Peer) -> None:
    """In the stored layout, back to back, with the newest of the log in the header."""
    for i in range(3):
        peer.send(body=b"%d" % i, queue_id=i, properties=f"KEYS\x01k{i % 2} all\x02UNIQ_KEY\x01U{i}")
    reply = query(peer, "k0")
    messages = decode_messages(reply.body)
    assert (reply.code, [message.body for message in messages]) == (0, [b"0", b"2"])
    header = reply.decode_header(QueryMessageResponseHeader)
    assert header == (NOW_MS, decode_messages(query(peer, "U2").body)[0].commit_log_offset)
    assert [message.body for message in decode_messages(query(peer, "all", 2).body)] == [b"1", b"2"]


def test_a_query_without_a_result_is_22_and_has_its_header(peer: Peer) -> None:
    """Unknown key, other topic, other time."""
    peer.send(properties="KEYS\x01k")
    for reply in (query(peer, "other"), query(peer, "k", topic="other"), query(peer, "k", end_timestamp=1)):
        assert (reply.code, reply.body) == (C.QUERY_NOT_FOUND, b"")
        assert reply.remark
        assert reply.decode_header(QueryMessageResponseHeader).index_last_update_timestamp == NOW_MS


def test_how_many_a_query_gives_at_most(peer: Peer) -> None:
    """64 by key and 32 by unique key, whatever is asked for."""
    for _ in range(70):
        peer.send(properties="KEYS\x01k\x02UNIQ_KEY\x01u")
    assert len(decode_messages(query(peer, "k", 1000).body)) == 64
    assert len(decode_messages(query(peer, "u", 1, unique_key_query=True).body)) == 32


def test_a_query_fits_a_frame_with_the_newest() -> None:
    """Messages of 4 MiB each: three go into one."""
    peer = Peer()
    for i in range(5):
        peer.send(body=bytes((4 << 20) - 1) + b"%d" % i, properties="KEYS\x01k")
    reply = query(peer, "k")
    assert len(reply.body) < FRAME_BYTES_MAX
    assert [message.body[-1:] for message in decode_messages(reply.body)] == [b"2", b"3", b"4"]


def test_a_message_is_seen_by_the_offset_of_its_id(peer: Peer) -> None:
    """And only where one begins."""
    peer.send()
    sent = peer.send(body=b"this one").decode_header(SendMessageResponseHeader)
    offset = decode_offset_message_id(sent.msg_id).commit_log_offset
    reply = peer.answer(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
    assert (reply.code, decode_messages(reply.body)[0].body) == (0, b"this one")
    for wrong in (offset + 1, -1, 1 << 40):
        reply = peer.answer(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(wrong))
        assert (reply.code, reply.body) == (C.SYSTEM_ERROR, b"")


def queue_of(reply: RemotingCommand) -> QueryConsumeQueueResponseBody:
    assert reply.code == 0, reply
    return decode_body(QueryConsumeQueueResponseBody, reply.body, reply.serialize_type)


def ask_queue(peer: Peer, index: int = 0, count: int = 10, **fields: Any) -> RemotingCommand:
    header = QueryConsumeQueueRequestHeader("T", 0, index, count)._replace(**fields)
    return peer.answer(RequestCode.QUERY_CONSUME_QUEUE, header)


def test_the_index_of_a_queue_is_shown(peer: Peer) -> None:
    """Places, sizes, tag hashes, and the bounds of the queue."""
    for tag in "AB":
        peer.send(properties=f"TAGS\x01{tag}")
    body = queue_of(ask_queue(peer, 1))
    (entry,) = body.queue_data
    stored = peer.broker.messages.store.entries("T", 0, 1, 1)[0]
    assert (entry.physic_offset, entry.physic_size, entry.tags_code) == stored
    assert (body.min_queue_index, body.max_queue_index) == (0, 2)
    assert (body.subscription_data, body.filter_data) == (None, None)
    assert len(queue_of(ask_queue(peer, 0, 1)).queue_data) == 1


def test_the_index_shows_what_a_group_subscribes_to(peer: Peer) -> None:
    """A group that is not there is said to be offline; no entry is judged, as RocketMQ judges none."""
    for tag in "AB":
        peer.send(properties=f"TAGS\x01{tag}")
    assert queue_of(ask_queue(peer, consumer_group="G")).filter_data == "G@T is not online!"
    peer.heartbeat("c1", consumer("G", SubscriptionData.parse("T", "B")))
    body = queue_of(ask_queue(peer, consumer_group="G"))
    assert [(entry.tags_code, entry.eval) for entry in body.queue_data] == [
        (tags_code("A"), False),
        (tags_code("B"), False),
    ]
    assert body.subscription_data is not None
    assert body.subscription_data.sub_string == "B"


def test_an_index_that_is_not_there(peer: Peer) -> None:
    """A queue or an entry that is not there is a remark and no body; it is no error."""
    reply = ask_queue(peer)
    assert (reply.code, reply.body, reply.remark) == (0, b"", "Index 0 of 0@T is not exist!")
    peer.send()
    reply = ask_queue(peer, 5)
    assert (reply.code, reply.body, reply.remark) == (0, b"", "Index 5 of 0@T is not exist!")


def test_a_negative_number_of_messages_is_no_number(peer: Peer) -> None:
    """RocketMQ fails at it too."""
    with pytest.raises(HeaderError, match="maxNum"):
        peer.answer(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader("T", "k", -1, 0, NOW_MS))
