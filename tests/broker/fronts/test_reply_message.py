"""Request and reply: an answer goes to the client that asked, and is kept (wire.md 2.1, codes 324 to 326)."""

import pytest

from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    PushReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.messages.properties import decode_properties
from lockstep.remoting.errors import RequestTimeout
from tests.broker.fronts.test_send import stored
from tests.broker.helpers import NOW_MS, Peer, heartbeat_of, send_header

C = ResponseCode
TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "CORRELATION_ID\x01q1\x02REPLY_TO_CLIENT\x01asker\x02MSG_TYPE\x01reply\x02TAGS\x01A"


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    """The one that answers; a producer with the client id "asker" is on the connection `asker`."""
    return Peer(header_encoding)


@pytest.fixture
def asker(peer: Peer) -> Peer:
    asker = peer.beside()
    asker.answer(RequestCode.HEART_BEAT, None, heartbeat_of("asker", producers=("PG",)))
    return asker


def send_reply(
    peer: Peer, properties: str = PROPERTIES, code: int = 325, body: bytes = b"yes"
) -> RemotingCommand | None:
    header = send_header(TOPIC, properties=properties, flag=3)
    if code == RequestCode.SEND_REPLY_MESSAGE:
        header = SendMessageRequestHeader(*header)  # type: ignore[assignment]
    return peer.call(code, header, body)


@pytest.mark.parametrize("code", [324, 325])
def test_an_answer_is_pushed_to_the_client_that_asked(peer: Peer, asker: Peer, code: int) -> None:
    """Unchanged, with the time of the push; its sender gets the reply when the asker has the answer."""
    assert send_reply(peer, code=code) is None
    ((question, timeout_ms, then),) = asker.connection.asked
    assert (question.code, question.body, timeout_ms) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"yes", 10_000)
    header = question.header
    assert isinstance(header, PushReplyMessageRequestHeader)
    assert (header.topic, header.queue_id, header.flag, header.store_timestamp) == (TOPIC, 0, 3, NOW_MS)
    assert (header.born_host, header.store_host) == ("127.0.0.1:50000", "127.0.0.1:10911")
    expected = {**decode_properties(PROPERTIES), "PUSH_REPLY_TIME": str(NOW_MS)}
    assert decode_properties(header.properties or "") == expected
    assert peer.connection.replies == []
    then(RemotingCommand(C.SUCCESS))
    (reply,) = peer.connection.replies
    (kept,) = stored(peer, TOPIC)
    response = reply.decode_header(SendMessageResponseHeader)
    assert (reply.code, response.msg_id, response.queue_offset) == (0, kept.offset_message_id, 0)
    assert (kept.body, kept.properties) == (b"yes", decode_properties(PROPERTIES))


@pytest.mark.parametrize(
    "answer", [RemotingCommand(C.SYSTEM_ERROR), RequestTimeout("127.0.0.1:50001", "a reply", 10_000)]
)
def test_an_asker_that_does_not_take_it(peer: Peer, asker: Peer, answer: RemotingCommand | RequestTimeout) -> None:
    """Code 1 with the reason; the answer is stored."""
    send_reply(peer)
    asker.connection.asked[0][2](answer)
    (reply,) = peer.connection.replies
    assert (reply.code, reply.remark) == (C.SYSTEM_ERROR, "push reply message to asker fail.")
    assert len(stored(peer, TOPIC)) == 1


@pytest.mark.parametrize("properties", ["CORRELATION_ID\x01q1", PROPERTIES.replace("asker", "nobody")])
def test_an_answer_to_nobody(peer: Peer, asker: Peer, properties: str) -> None:
    """Answered at once."""
    reply = send_reply(peer, properties)
    assert reply is not None
    assert (reply.code, bool(reply.remark)) == (C.SYSTEM_ERROR, True)
    assert asker.connection.asked == []
    assert len(stored(peer, TOPIC)) == 1


def test_an_asker_that_left_is_not_there(peer: Peer, asker: Peer) -> None:
    """Its connection is closed, whatever the table still says."""
    asker.connection.is_open = False
    reply = send_reply(peer)
    assert reply is not None
    assert reply.code == C.SYSTEM_ERROR


def test_an_answer_too_large_is_refused(peer: Peer, asker: Peer) -> None:
    """As a send of that size; the asker gets nothing."""
    reply = send_reply(peer, PROPERTIES + "\x02k\x01" + "v" * 32_767)
    assert reply is not None
    assert reply.code == C.MESSAGE_ILLEGAL
    assert asker.connection.asked == []
    assert decode_messages(peer.broker.messages.store.get(TOPIC, 0, 0, 1, None).body) == []


@pytest.mark.parametrize("fields", [{}, {"e": "0"}, {"b": "no spaces", "e": "0", "f": "0", "g": "0", "h": "0"}])
def test_a_refused_answer_has_the_fields_of_every_reply_to_a_send(fields: dict[str, str]) -> None:
    """Without a topic, and with one that cannot be, as from RocketMQ."""
    reply = Peer().answer(RequestCode.SEND_REPLY_MESSAGE_V2, ext_fields=fields)
    assert (reply.code, reply.ext_fields) == (1, {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})
