"""How two peers agree on an encoding: offered with the first two-way request, settled by an echo."""

import pytest

from lockstep.protocol.codes import FRAME_BYTES_MAX, ResponseCode, SerializeType
from lockstep.protocol.command import SERIALIZE_FIELD, RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint
from tests.remoting.helpers import ECHO, ENCODINGS, Peer, echo, linked


def offered(command: RemotingCommand) -> object:
    return (command.ext_fields or {}).get(SERIALIZE_FIELD)


def accept(request: RemotingCommand) -> RemotingCommand:
    """The reply of a peer that knows the offer."""
    reply = request.reply(ResponseCode.SUCCESS)
    reply.ext_fields = {SERIALIZE_FIELD: str(offered(request))}
    return reply


@pytest.mark.parametrize("offer", ENCODINGS)
async def test_both_ends_switch_after_the_first_reply(offer: SerializeType) -> None:
    """The first request and its reply are what every server reads; from then on both sides use what was agreed."""
    seen: list[int] = []
    at_first = SerializeType.JSON if offer == SerializeType.MSGPACK else offer

    def note(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        seen.append(command.serialize_type)
        return echo(endpoint, command)

    async with linked(note, note, offer=offer) as (client, server):
        first = await client.request(RemotingCommand(ECHO), 60_000)
        assert first.serialize_type == at_first
        assert client.agreed
        assert server.agreed
        second = await client.request(RemotingCommand(ECHO), 60_000)
        assert second.serialize_type == offer
        from_server = await server.request(RemotingCommand(ECHO), 60_000)
        assert from_server.serialize_type == offer
    assert seen == [at_first, offer, offer]


async def test_without_an_offer_everything_stays_json() -> None:
    """A client that asks for nothing gets JSON, and the server counts it as a stranger."""
    async with linked() as (client, server):
        for _ in range(3):
            assert (await client.request(RemotingCommand(ECHO), 60_000)).serialize_type == SerializeType.JSON
        assert not client.agreed
        assert not server.agreed


async def test_a_peer_that_does_not_echo_gets_json_for_ever() -> None:
    """Apache's broker ignores the field: the offer is made once and never again."""
    peer = Peer(server=False, offer=SerializeType.MSGPACK)
    for i in range(3):
        future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
        (request,) = peer.received()
        assert offered(request) == ("MSGPACK" if i == 0 else None)
        assert request.serialize_type == SerializeType.JSON
        peer.send(request.reply(ResponseCode.SUCCESS))
        await future
    assert not peer.endpoint.agreed


async def test_an_error_reply_settles_it_too() -> None:
    """A refusal that echoes agrees, and one that does not declines."""
    for echoes in (True, False):
        peer = Peer(server=False, offer=SerializeType.MSGPACK)
        future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
        (request,) = peer.received()
        reply = request.reply(ResponseCode.SYSTEM_ERROR)
        if echoes:
            reply.ext_fields = {SERIALIZE_FIELD: "MSGPACK"}
        peer.send(reply)
        await future
        assert peer.endpoint.agreed is echoes


async def test_only_the_first_of_many_in_flight_offers() -> None:
    """Requests that leave before the answer is known are plain JSON."""
    peer = Peer(server=False, offer=SerializeType.MSGPACK)
    futures = [peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000) for _ in range(3)]
    requests = peer.received()
    assert [offered(request) for request in requests] == ["MSGPACK", None, None]
    peer.send(requests[2].reply(0), requests[1].reply(0), accept(requests[0]))
    for future in futures:
        await future
    assert peer.endpoint.agreed


async def test_the_offer_is_repeated_after_a_timeout() -> None:
    """When the first offering request gets no reply in time, the next one offers again."""
    peer = Peer(server=False, offer=SerializeType.MSGPACK)
    lost = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    peer.runtime.advance(1000)
    assert lost.exception() is not None
    future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    _, second = peer.received()
    assert offered(second) == "MSGPACK"
    peer.send(accept(second))
    await future
    assert peer.endpoint.serialize_type == SerializeType.MSGPACK


async def test_a_late_echo_agrees_too() -> None:
    """The caller has given up, but the peer has said that it knows us; it counts as agreed on its side already."""
    peer = Peer(server=False, offer=SerializeType.MSGPACK)
    lost = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    (request,) = peer.received()
    peer.runtime.advance(1000)
    assert lost.exception() is not None
    peer.send(accept(request))
    assert peer.endpoint.agreed


async def test_one_way_requests_offer_nothing() -> None:
    """Nobody would answer; the offer waits for the first request that wants a reply."""
    peer = Peer(server=False, offer=SerializeType.MSGPACK)
    peer.endpoint.send_one_way(RemotingCommand(ECHO))
    future = peer.endpoint.request_nowait(RemotingCommand(ECHO), 1000)
    one_way, request = peer.received()
    assert (offered(one_way), offered(request)) == (None, "MSGPACK")
    future.cancel()


async def test_an_offer_of_a_one_way_request_is_not_taken() -> None:
    """No reply could carry the echo."""
    peer = Peer(echo)
    peer.send(RemotingCommand(ECHO, flag=2, ext_fields={SERIALIZE_FIELD: "MSGPACK"}))
    assert not peer.endpoint.agreed


@pytest.mark.parametrize("offer", ["rocketmq", "msgpack", "", "XML", 2, True])
async def test_an_unknown_offer_is_ignored(offer: str | int) -> None:
    """The request is served as if nothing had been offered."""
    peer = Peer(echo)
    peer.send(RemotingCommand(ECHO, body=b"b", ext_fields={SERIALIZE_FIELD: offer}))
    (reply,) = peer.received()
    assert (reply.body, offered(reply)) == (b"b", None)
    assert not peer.endpoint.agreed


async def test_an_offer_that_is_no_text_is_ignored() -> None:
    """A list in extFields is legal JSON, and no reason for a traceback."""
    peer = Peer(echo)
    header = b'{"code":%d,"flag":0,"opaque":7,"version":409,"extFields":{"lockstep.serialize":["MSGPACK"]}}' % ECHO
    peer.endpoint.data_received((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
    (reply,) = peer.received()
    assert (reply.opaque, reply.code) == (7, ResponseCode.SUCCESS)


async def test_a_reply_that_comes_later_echoes_too() -> None:
    """A request that is held, as a pull is, and answered through `reply` still settles the offer."""
    held: list[RemotingCommand] = []

    def hold(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        if command.body == b"hold":
            held.append(command)
            return None
        return echo(endpoint, command)

    peer = Peer(hold)
    peer.send(
        RemotingCommand(ECHO, body=b"hold", opaque=1, ext_fields={SERIALIZE_FIELD: "MSGPACK"}),
        RemotingCommand(ECHO, opaque=2),
    )
    assert [offered(reply) for reply in peer.received()] == [None]
    assert not peer.endpoint.agreed
    peer.endpoint.reply(held[0].reply(ResponseCode.SUCCESS))
    assert [offered(reply) for reply in peer.received()] == ["MSGPACK"]
    assert peer.endpoint.agreed


async def test_the_echo_keeps_the_replys_own_fields() -> None:
    """Agreeing takes nothing away from the reply."""
    peer = Peer(lambda _, c: RemotingCommand(0, flag=1, opaque=c.opaque, ext_fields={"mine": "1"}))
    peer.send(RemotingCommand(ECHO, ext_fields={SERIALIZE_FIELD: "JSON"}))
    (reply,) = peer.received()
    assert reply.ext_fields == {"mine": "1", SERIALIZE_FIELD: "JSON"}
    assert peer.endpoint.agreed
    assert peer.endpoint.serialize_type == SerializeType.JSON


async def test_both_ends_agree_even_when_the_first_reply_was_too_large() -> None:
    """The error reply that takes its place carries the echo, or one side would count on what the other does not."""
    peer = Peer(lambda _, command: command.reply(ResponseCode.SUCCESS, body=bytes(FRAME_BYTES_MAX)))
    peer.send(RemotingCommand(ECHO, ext_fields={SERIALIZE_FIELD: "MSGPACK"}))
    (reply,) = peer.received()
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert peer.endpoint.agreed is (offered(reply) == "MSGPACK")


async def test_a_reply_has_the_encoding_of_its_request() -> None:
    """Both type bytes may come mixed on one connection, and each is answered in kind."""
    peer = Peer(echo)
    peer.send(*[RemotingCommand(ECHO, opaque=i, serialize_type=SerializeType(i % 2 * 2)) for i in range(6)])
    assert [reply.serialize_type for reply in peer.received()] == [0, 2, 0, 2, 0, 2]
