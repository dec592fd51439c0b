"""A peer that does not read costs bounded memory; a client goes on reading while it cannot write."""

import asyncio
import socket

import pytest

from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, EndpointSettings
from lockstep.remoting.errors import ConnectionLost, RemotingError
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.remoting.helpers import ECHO, Peer, RecordingLog, frame_of, until

# What differs from loop to loop is proved on both.
pytestmark = pytest.mark.each_loop

HIGH_WATER = 64 * 1024
REPLY_BYTES = 10_000


def pull(_: Endpoint, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.SUCCESS, body=b"m" * REPLY_BYTES)


def pulls(count: int, start: int = 0) -> list[RemotingCommand]:
    return [RemotingCommand(ECHO, opaque=start + i) for i in range(count)]


async def test_a_server_stops_working_for_a_peer_that_does_not_read() -> None:
    """Of 10 000 pulls in one read only as many are answered as fill the buffer to its mark; reading stops."""
    peer = Peer(pull, write_high_water_bytes=HIGH_WATER)
    peer.transport.stuck = True
    peer.send(*pulls(10_000))
    assert peer.transport.buffered <= 2 * HIGH_WATER + REPLY_BYTES + 1000
    assert peer.endpoint.write_paused
    assert not peer.transport.reading


async def test_it_goes_on_where_it_stopped_when_the_peer_reads() -> None:
    """Nothing is lost, nothing is answered twice, and the order stays."""
    peer = Peer(pull, write_high_water_bytes=HIGH_WATER)
    peer.transport.stuck = True
    peer.send(*pulls(100))
    answered = peer.received()
    assert len(answered) < 100
    while peer.endpoint.write_paused:
        peer.transport.drain()
        peer.transport.stuck = True
        answered += peer.received()
    assert [reply.opaque for reply in answered] == list(range(100))
    assert peer.transport.reading
    peer.send(*pulls(1, start=100))
    assert [reply.opaque for reply in peer.received()] == [100]


async def test_frames_are_handled_at_the_time_of_the_resumption() -> None:
    """`read_at_ms` is the time of the work, not that of the bytes: a lock must not be granted in the past."""
    times: list[int] = []

    def note(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        times.append(endpoint.read_at_ms)
        return pull(endpoint, command)

    peer = Peer(note, write_high_water_bytes=1000)
    start_ms = peer.runtime.now_ms()
    peer.transport.stuck = True
    peer.send(*pulls(2))
    peer.runtime.advance(5000)
    peer.transport.drain()
    assert times == [start_ms, start_ms + 5000]


async def test_a_peer_that_leaves_while_it_is_waited_for() -> None:
    """The frames that still wait are dropped with the connection."""
    seen: list[int] = []

    def note(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        seen.append(command.opaque)
        return pull(endpoint, command)

    peer = Peer(note, write_high_water_bytes=1000)
    peer.transport.stuck = True
    peer.send(*pulls(5))
    peer.lose()
    assert seen == [0]
    assert peer.closed == [peer.endpoint]


async def test_a_peer_that_read_late_is_not_idle_at_once() -> None:
    """The time without traffic begins when its replies have left, not when they were written."""
    peer = Peer(pull, write_high_water_bytes=1000)
    peer.transport.stuck = True
    peer.send(*pulls(1))
    peer.runtime.advance(119_000)
    peer.transport.drain()
    peer.runtime.advance(119_000)
    assert peer.endpoint.is_open
    peer.runtime.advance(1000)
    assert not peer.endpoint.is_open


async def test_a_stalled_connection_falls_idle() -> None:
    """A peer that reads nothing for 120 s is cut off, whatever waits for it."""
    peer = Peer(pull, write_high_water_bytes=1000)
    peer.transport.stuck = True
    peer.send(*pulls(5))
    peer.runtime.advance(120_000)
    assert peer.transport.ended == "abort"


async def test_a_client_reads_replies_while_its_writes_are_paused() -> None:
    """Or the two would wait for each other: the server does not read until its replies are taken."""
    peer = Peer(server=False, write_high_water_bytes=HIGH_WATER)
    peer.transport.stuck = True
    futures = [peer.endpoint.request_nowait(RemotingCommand(ECHO, body=b"x" * 10_000), 1000) for _ in range(10)]
    assert peer.endpoint.write_paused
    assert peer.transport.reading
    peer.send(*[request.reply(ResponseCode.SUCCESS) for request in peer.received()])
    assert all(future.done() for future in futures)


async def test_writable_waits_for_room() -> None:
    """`writable()` returns at once on a free connection, and else when the buffer has drained; all waiters wake."""
    peer = Peer(server=False, write_high_water_bytes=1000)
    await peer.endpoint.writable()
    peer.transport.stuck = True
    peer.endpoint.send_one_way(RemotingCommand(ECHO, body=b"x" * 2000))
    waiters = [asyncio.ensure_future(peer.endpoint.writable()) for _ in range(3)]
    waiters[0].cancel()
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters[1:])
    peer.transport.drain()
    await asyncio.gather(*waiters[1:])


async def test_writable_ends_with_the_connection() -> None:
    """A caller that waits for room learns of the loss by its next call, not by waiting for ever."""
    peer = Peer(server=False, write_high_water_bytes=1000)
    peer.transport.stuck = True
    peer.endpoint.send_one_way(RemotingCommand(ECHO, body=b"x" * 2000))
    waiter = asyncio.ensure_future(peer.endpoint.writable())
    await asyncio.sleep(0)
    peer.lose()
    await waiter


async def test_who_does_not_read_is_not_asked_without_end() -> None:
    """Questions to a peer that takes nothing fail at once when 32 MiB of them wait; they are not kept for it."""
    peer = Peer()
    peer.transport.stuck = True
    outcomes: list[RemotingCommand | RemotingError] = []
    for _ in range(100):
        peer.endpoint.request_then(RemotingCommand(ECHO, body=bytes(1 << 20)), 10_000, outcomes.append)
    assert 32 << 20 < peer.transport.buffered < 34 << 20
    assert len(outcomes) > 60
    assert all(isinstance(outcome, ConnectionLost) and "does not read" in str(outcome) for outcome in outcomes)


async def test_a_real_socket_that_is_never_read() -> None:
    """Over a real connection: 64 MiB asked for, at most two high-water marks held, and all of it delivered later."""
    runtime = AsyncioRuntime()
    body = b"m" * 65_536
    accepted: list[Endpoint] = []

    def large(_: Endpoint, command: RemotingCommand) -> RemotingCommand:
        return command.reply(ResponseCode.SUCCESS, body=body)

    def make() -> Endpoint:
        settings = EndpointSettings(server=True)
        return Endpoint(runtime, settings, EndpointCallbacks(large, on_opened=accepted.append), RecordingLog())

    listening = await runtime.create_server(make, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", listening.port))
        await loop.sock_sendall(peer, b"".join(frame_of(command) for command in pulls(1024)))
        await until(lambda: accepted and accepted[0].write_paused)
        transport = accepted[0]._transport
        assert transport is not None
        assert transport.get_write_buffer_size() <= 2 * 1024 * 1024 + 2 * len(body)
        assert not transport.is_reading()
        received = 0
        while received < 1024 * len(body):
            received += len(await loop.sock_recv(peer, 1 << 20))
        assert not accepted[0].write_paused
        assert transport.is_reading()
    await until(lambda: not accepted[0].is_open)
    listening.close()
    await listening.wait_closed()
