"""Exact cases of one endpoint: what it writes and when, what closes it, and with which words."""

import asyncio
import struct

import pytest

from lockstep.protocol.codes import FRAME_BYTES_MAX, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, Taken
from lockstep.remoting.errors import ConnectionLost
from tests.remoting.helpers import ECHO, Peer, echo, frame_of

# What differs from loop to loop is proved on both.
pytestmark = pytest.mark.each_loop


async def test_all_replies_of_one_read_leave_with_one_writelines() -> None:
    """A hundred requests in one read cost one system call's worth of writing, and `after_read` comes once."""
    peer = Peer(echo)
    peer.send(*[RemotingCommand(ECHO, body=b"%d" % i, opaque=i) for i in range(100)])
    assert [call for call, _ in peer.transport.calls] == ["writelines"]
    replies = peer.received()
    assert [reply.opaque for reply in replies] == list(range(100))
    assert [reply.body for reply in replies] == [b"%d" % i for i in range(100)]
    assert peer.reads == 1


async def test_a_request_leaves_with_one_write_small_or_large() -> None:
    """Header and body of a request never go as two packets."""
    peer = Peer(server=False)
    for size in (0, 100, 1_000_000):
        peer.transport.calls.clear()
        future = peer.endpoint.request_nowait(RemotingCommand(ECHO, body=b"b" * size), 1000)
        assert len(peer.transport.calls) == 1
        future.cancel()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff" * 40, "outside"),
        (struct.pack(">I", FRAME_BYTES_MAX + 1), "outside"),
        (struct.pack(">II", 10, 9 << 24 | 2) + b"{}abcd", "header type 9"),
        (struct.pack(">II", 6, 100) + b"{}", "does not fit"),
        (struct.pack(">II", 6, 2) + b"[]", "not a JSON object"),
        (struct.pack(">II", 5, 2 << 24 | 1) + b"\xc1", "not msgpack"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "the peer speaks HTTP"),
    ],
    ids=["random", "over the limit", "unknown type", "header too long", "not an object", "not msgpack", "http"],
)
async def test_what_cannot_be_read_closes_the_connection(data: bytes, words: str) -> None:
    """Bytes that are no frame end the connection with one line in the log, and the requests before are answered."""
    peer = Peer(echo)
    peer.endpoint.data_received(frame_of(RemotingCommand(ECHO, opaque=1)) + data)
    assert peer.transport.ended == "abort"
    assert [reply.opaque for reply in peer.received()] == [1]
    ((level, event, fields),) = peer.log.events
    assert (level, event) == ("warning", "frame_unreadable")
    assert words in fields["reason"]
    assert fields["peer"] == "10.0.0.9:4711"


async def test_a_fault_of_ours_closes_the_connection() -> None:
    """Its outcome is unknown, so it has no answer. The answers before it leave, and the log has the fault."""
    taken = [Taken(len(frame_of(RemotingCommand(ECHO))), 1, frame_of(RemotingCommand(0, flag=1)), more=True)]
    peer = Peer(echo, on_bytes=lambda *_: taken.pop())
    peer.send(RemotingCommand(ECHO), RemotingCommand(ECHO))
    assert len(peer.received()) == 1
    assert peer.transport.ended == "abort"
    ((level, event, fields),) = peer.log.events
    assert (level, event) == ("error", "read_failed")
    assert isinstance(fields["exc_info"], IndexError)


async def test_a_binary_request_has_a_binary_reply() -> None:
    """A Java client with rocketmq.serialize.type=ROCKETMQ is answered in kind, and pushed to in JSON (wire.md 1.3)."""
    peer = Peer(echo)
    peer.send(RemotingCommand(ECHO, opaque=7, remark="hi", serialize_type=SerializeType.ROCKETMQ))
    peer.endpoint.send_one_way(RemotingCommand(ECHO))
    reply, push = peer.received()
    assert (reply.opaque, reply.is_reply, reply.serialize_type) == (7, True, SerializeType.ROCKETMQ)
    assert push.serialize_type == SerializeType.JSON


async def test_a_request_that_fails_inside_has_a_json_reply() -> None:
    """As from RocketMQ, to a binary request too: clients read each frame by its own type (wire.md 1.3)."""

    def failing(_: Endpoint, command: RemotingCommand) -> RemotingCommand:
        raise LookupError("no such thing")

    peer = Peer(failing)
    peer.send(RemotingCommand(ECHO, opaque=7, serialize_type=SerializeType.ROCKETMQ))
    (reply,) = peer.received()
    assert (reply.code, reply.opaque, reply.serialize_type) == (ResponseCode.SYSTEM_ERROR, 7, SerializeType.JSON)


async def test_a_reply_that_has_no_binary_form_becomes_an_error_reply() -> None:
    """A code over 16 bits cannot be told in a binary header; the caller learns that and stays connected."""
    peer = Peer(lambda _, command: command.reply(200_050))
    peer.send(RemotingCommand(ECHO, opaque=7, serialize_type=SerializeType.ROCKETMQ))
    (reply,) = peer.received()
    assert (reply.code, reply.opaque, reply.serialize_type) == (ResponseCode.SYSTEM_ERROR, 7, SerializeType.ROCKETMQ)
    assert "200050" in (reply.remark or "")
    assert not peer.transport.ended


async def test_a_reply_over_the_frame_limit_becomes_an_error_reply() -> None:
    """The caller learns why instead of losing the connection."""
    peer = Peer(lambda _, command: command.reply(ResponseCode.SUCCESS, body=bytes(FRAME_BYTES_MAX)))
    peer.send(RemotingCommand(ECHO, opaque=5))
    (reply,) = peer.received()
    assert (reply.code, reply.opaque, reply.is_reply, reply.body) == (ResponseCode.SYSTEM_ERROR, 5, True, b"")
    assert reply.remark is not None
    assert "over the limit" in reply.remark
    assert not peer.transport.ended


async def test_a_reply_that_nobody_asked_for_is_ignored() -> None:
    """An unknown opaque, and a second reply to a known one, change nothing."""
    peer = Peer(server=False)
    future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    (request,) = peer.received()
    peer.send(RemotingCommand(0, flag=1, opaque=999))
    assert not future.done()
    peer.send(request.reply(0, remark="first"), request.reply(0, remark="second"))
    assert (await future).remark == "first"
    assert not peer.transport.ended


async def test_opaques_wrap_below_the_sign_bit() -> None:
    """Java reads an opaque as a signed int; after 2^31 - 1 comes 0."""
    peer = Peer(server=False)
    peer.endpoint._connection._opaque = 0x7FFFFFFE
    futures = [peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000) for _ in range(3)]
    requests = peer.received()
    assert [request.opaque for request in requests] == [0x7FFFFFFF, 0, 1]
    peer.send(*[request.reply(0) for request in requests])
    await asyncio.gather(*futures)


async def test_a_closing_endpoint_handles_nothing_more() -> None:
    """When a handler ends the connection, the requests behind it in the same read are not worked on."""
    seen = []

    def hang_up(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        seen.append(command.opaque)
        if command.opaque == 2:
            endpoint.close("enough")
        return echo(endpoint, command)

    peer = Peer(hang_up)
    peer.send(*[RemotingCommand(ECHO, opaque=i) for i in range(5)])
    assert seen == [0, 1, 2]
    assert [reply.opaque for reply in peer.received()] == [0, 1, 2], "answered before the connection closes"
    assert peer.transport.ended == "close"


async def test_an_aborted_endpoint_writes_nothing_more() -> None:
    """The replies of the read during which it was aborted are dropped, not written to a dead transport."""

    def cut(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        if command.opaque == 1:
            endpoint.abort("enough")
        return echo(endpoint, command)

    peer = Peer(cut)
    peer.send(*[RemotingCommand(ECHO, opaque=i) for i in range(3)])
    assert peer.transport.calls == []


async def test_the_reason_of_a_close_reaches_the_callers() -> None:
    """ConnectionLost says who ended the connection and why: the first reason given counts."""
    peer = Peer(server=False)
    future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    peer.endpoint.close("this client is shut down")
    peer.endpoint.abort("never mind")
    with pytest.raises(ConnectionLost, match=r"10\.0\.0\.9:4711 ended: this client is shut down"):
        peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    peer.lose()
    with pytest.raises(ConnectionLost, match="this client is shut down"):
        await future
    assert peer.closed == [peer.endpoint]
    assert not peer.endpoint.is_open


async def test_the_peers_end_is_named() -> None:
    """Without a reason of ours, the transport's error is the reason, or that the peer closed."""
    for error, words in ((ConnectionResetError("reset by peer"), "reset by peer"), (None, "the peer closed it")):
        peer = Peer(server=False)
        future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
        peer.lose(error)
        with pytest.raises(ConnectionLost, match=words):
            await future


async def test_no_timer_outlives_a_connection() -> None:
    """A lost connection leaves neither its idle timer nor a request's behind."""
    peer = Peer(server=False)
    future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    peer.lose()
    assert isinstance(future.exception(), ConnectionLost)
    assert peer.runtime.live_timers() == []


async def test_before_the_connection_there_is_nothing_to_send_to() -> None:
    """An endpoint that was never connected refuses requests and drops one-way calls."""
    peer = Peer()
    fresh = Endpoint(peer.runtime, peer.endpoint._settings, EndpointCallbacks(echo), peer.log)
    with pytest.raises(ConnectionLost, match="it is closed"):
        fresh.request_nowait(RemotingCommand(ECHO), 1000)
    fresh.send_one_way(RemotingCommand(ECHO))
    fresh.close("x")
    fresh.abort("x")
    assert not fresh.is_open
