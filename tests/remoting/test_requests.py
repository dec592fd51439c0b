"""Requests and replies over real localhost connections, in both directions."""

import asyncio

import pytest

from lockstep.protocol.codes import RemotingFlag, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import OffsetResponseHeader, QueueRequestHeader
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import ConnectionLost, RemotingError
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.remoting.helpers import ECHO, ENCODINGS, RecordingLog, echo, linked, until


@pytest.mark.parametrize("offer", [None, *ENCODINGS])
async def test_a_request_brings_its_reply(offer: SerializeType | None) -> None:
    """Header, body, code and remark arrive as they were sent, in every encoding."""

    def answer(_: Endpoint, command: RemotingCommand) -> RemotingCommand:
        asked = command.decode_header(QueueRequestHeader)
        header = OffsetResponseHeader(asked.queue_id * 100)
        return command.reply(ResponseCode.SUCCESS, header, command.body[::-1], remark=asked.topic)

    async with linked(answer, offer=offer) as (client, _):
        for queue_id in (1, 2):
            command = RemotingCommand(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("T", queue_id), b"abc")
            reply = await client.request(command, 60_000)
            assert reply.code == ResponseCode.SUCCESS
            assert reply.decode_header(OffsetResponseHeader).offset == queue_id * 100
            assert (reply.body, reply.remark) == (b"cba", "T")


async def test_replies_out_of_order_find_their_requests() -> None:
    """A thousand requests in flight are answered last first, each with its own reply."""
    asked: list[RemotingCommand] = []

    def keep(_: Endpoint, command: RemotingCommand) -> None:
        asked.append(command)

    async with linked(keep) as (client, server):
        futures = [client.request_nowait(RemotingCommand(ECHO, body=b"%d" % i), 60_000) for i in range(1000)]
        await until(lambda: len(asked) == 1000)
        assert [command.body for command in asked] == [b"%d" % i for i in range(1000)]
        for command in reversed(asked):
            server.reply(command.reply(ResponseCode.SUCCESS, body=b"to " + command.body))
        replies = await asyncio.gather(*futures)
        assert [reply.body for reply in replies] == [b"to %d" % i for i in range(1000)]


async def test_who_does_not_wait_is_called_with_the_reply_or_with_why_there_is_none() -> None:
    """A connection that ends under way, or is closed already, is an error that the callback gets."""
    outcomes: list[RemotingCommand | RemotingError] = []

    def answer_echoes(_: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        return echo(_, command) if command.code == ECHO else None

    async with linked(answer_echoes) as (client, server):
        client.request_then(RemotingCommand(ECHO, body=b"x"), 5000, outcomes.append)
        await until(lambda: len(outcomes) == 1)
        client.request_then(RemotingCommand(9999), 5000, outcomes.append)
        server.abort("end")
        await until(lambda: len(outcomes) == 2)
        client.request_then(RemotingCommand(ECHO), 5000, outcomes.append)
    reply, *errors = outcomes
    assert isinstance(reply, RemotingCommand)
    assert reply.body == b"x"
    assert [type(error) for error in errors] == [ConnectionLost, ConnectionLost]


async def test_a_large_body_arrives_whole() -> None:
    """A body far above a socket's buffer and the join limit goes both ways unharmed."""
    body = bytes(range(256)) * 16384  # 4 MiB
    async with linked() as (client, _):
        reply = await client.request(RemotingCommand(ECHO, body=body), 10_000)
        assert reply.body == body


async def test_one_way_is_handled_and_not_answered() -> None:
    """A one-way request reaches the handler; whatever that returns stays here."""
    seen: list[RemotingCommand] = []

    def note(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        seen.append(command)
        return echo(endpoint, command)

    async with linked(note) as (client, _):
        client.send_one_way(RemotingCommand(ECHO, body=b"hush"))
        reply = await client.request(RemotingCommand(ECHO, body=b"loud"), 60_000)
        assert [(command.body, command.flag) for command in seen] == [(b"hush", RemotingFlag.ONE_WAY), (b"loud", 0)]
        assert reply.body == b"loud"


async def test_both_sides_may_ask() -> None:
    """Requests cross on one connection, with opaques of either side's own counting."""
    async with linked(echo, echo) as (client, server):
        asked_by_client = [client.request_nowait(RemotingCommand(ECHO, body=b"c%d" % i), 60_000) for i in range(50)]
        asked_by_server = [server.request_nowait(RemotingCommand(ECHO, body=b"s%d" % i), 60_000) for i in range(50)]
        assert [r.body for r in await asyncio.gather(*asked_by_client)] == [b"c%d" % i for i in range(50)]
        assert [r.body for r in await asyncio.gather(*asked_by_server)] == [b"s%d" % i for i in range(50)]


async def test_a_handler_that_fails_costs_one_request() -> None:
    """The caller gets SYSTEM_ERROR with the reason, the log the traceback, and the connection lives."""
    log = RecordingLog()

    def sometimes(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        if command.body == b"bad":
            raise LookupError("no such thing")
        return echo(endpoint, command)

    async with linked(sometimes, server_log=log) as (client, _):
        bad = await client.request(RemotingCommand(ECHO, body=b"bad"), 60_000)
        good = await client.request(RemotingCommand(ECHO, body=b"good"), 60_000)
    assert bad.code == ResponseCode.SYSTEM_ERROR
    assert bad.remark == "GET_MAX_OFFSET (30): LookupError: no such thing"
    assert good.body == b"good"
    assert [(level, event) for level, event, _ in log.events] == [("error", "request_failed")]


async def test_a_field_that_is_missing_costs_one_request() -> None:
    """A header that cannot be typed is answered with SYSTEM_ERROR naming the field."""

    def strict(_: Endpoint, command: RemotingCommand) -> RemotingCommand:
        command.decode_header(QueueRequestHeader)
        return command.reply(ResponseCode.SUCCESS)

    async with linked(strict) as (client, _):
        reply = await client.request(RemotingCommand(RequestCode.GET_MAX_OFFSET), 60_000)
        assert (reply.code, reply.remark) == (1, "GET_MAX_OFFSET (30): the field topic (topic) is missing")
        header = QueueRequestHeader("T", 0)
        assert (await client.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, header), 60_000)).code == 0


async def test_a_lost_connection_fails_everything_in_flight() -> None:
    """Every waiting caller gets ConnectionLost, at once, and later calls too."""
    asked: list[RemotingCommand] = []

    def keep(_: Endpoint, command: RemotingCommand) -> None:
        asked.append(command)

    async with linked(keep) as (client, server):
        futures = [client.request_nowait(RemotingCommand(ECHO), 60_000) for _ in range(64)]
        await until(lambda: len(asked) == 64)
        server.abort("the test cuts it")
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 64
        with pytest.raises(ConnectionLost):
            client.request_nowait(RemotingCommand(ECHO), 60_000)
        client.send_one_way(RemotingCommand(ECHO))  # dropped, as a one-way call may be
        server.reply(asked[0].reply(ResponseCode.SUCCESS))  # too late, and harmless


async def test_close_lets_what_was_written_leave() -> None:
    """A reply of many socket buffers, written just before `close`, arrives whole; then the connection is gone."""
    body = b"x" * 8_000_000

    def last_words(endpoint: Endpoint, command: RemotingCommand) -> None:
        endpoint.reply(command.reply(ResponseCode.SUCCESS, body=body))
        endpoint.close("that was all")

    async with linked(last_words) as (client, server):
        reply = await client.request(RemotingCommand(ECHO), 10_000)
        assert reply.body == body
        await until(lambda: not client.is_open)
        assert not server.is_open


async def test_addresses_name_the_peer() -> None:
    """`address` is where the peer is, as logs and errors want it."""
    async with linked(runtime=AsyncioRuntime()) as (client, server):
        host, _, port = client.address.partition(":")
        assert (host, port.isdigit()) == ("127.0.0.1", True)
        assert server.address != client.address
