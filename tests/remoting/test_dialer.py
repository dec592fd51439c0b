"""Connections by address: one each, made when needed, greeted before use, made again after a loss."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks, DialerSettings
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, EndpointSettings
from lockstep.remoting.errors import ConnectFailed, ConnectionLost, RequestRefused, RequestTimeout
from lockstep.remoting.host.runtime import AsyncioRuntime, Listening
from lockstep.simulation import World, simulate
from tests.remoting.helpers import ECHO, Handler, RecordingLog, echo, refuse, until

# What differs from loop to loop is proved on both.
pytestmark = pytest.mark.each_loop


class Server:
    """Accepts, counts, answers by `handler`."""

    def __init__(self, runtime: AsyncioRuntime) -> None:
        self.runtime = runtime
        self.handler: Handler = echo
        self.accepted: list[Endpoint] = []
        self.listening: Listening

    async def start(self, port: int = 0) -> "Server":
        self.listening = await self.runtime.create_server(self._accept, "127.0.0.1", port)
        return self

    def _accept(self) -> Endpoint:
        callbacks = EndpointCallbacks(
            lambda endpoint, command: self.handler(endpoint, command), on_opened=self.accepted.append
        )
        return Endpoint(self.runtime, EndpointSettings(server=True), callbacks, RecordingLog())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listening.port}"

    async def stop(self) -> None:
        self.listening.close()
        for endpoint in self.accepted:
            endpoint.abort("the server stops")
        await until(lambda: not any(endpoint.is_open for endpoint in self.accepted))
        await self.listening.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = await Server(AsyncioRuntime()).start()
    yield server
    await server.stop()


def dialer_of(
    server: Server,
    *,
    greet: Callable[[str, Endpoint], Awaitable[None]] | None = None,
    on_closed: Callable[[str], None] | None = None,
    offer: SerializeType | None = None,
) -> Dialer:
    callbacks = DialerCallbacks(refuse, greet=greet, on_closed=on_closed)
    return Dialer(server.runtime, callbacks, RecordingLog(), DialerSettings(offer=offer))


async def ended(dialer: Dialer) -> None:
    """Close, and wait until the connections are gone."""
    open_ones = list(dialer._open.values())
    dialer.close()
    await until(lambda: not any(endpoint.is_open for endpoint in open_ones))


async def test_callers_at_the_same_time_share_one_connect(server: Server) -> None:
    """A hundred callers, one connection; later ones find it, and `open_endpoint` shows it."""
    dialer = dialer_of(server)
    assert dialer.open_endpoint(server.address) is None
    endpoints = await asyncio.gather(*[dialer.endpoint(server.address) for _ in range(100)])
    assert len(set(map(id, endpoints))) == 1
    assert await dialer.endpoint(server.address) is endpoints[0]
    assert dialer.open_endpoint(server.address) is endpoints[0]
    await until(lambda: server.accepted)
    assert len(server.accepted) == 1
    await ended(dialer)


async def test_call_connects_and_asks(server: Server) -> None:
    """One line for a caller who wants one answer; an error code is a reply like any other."""
    dialer = dialer_of(server)
    assert (await dialer.call(server.address, RemotingCommand(ECHO, body=b"x"), 60_000)).body == b"x"
    server.handler = refuse
    reply = await dialer.call(server.address, RemotingCommand(ECHO), 60_000)
    assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert len(server.accepted) == 1
    await ended(dialer)


async def test_a_caller_that_gives_up_does_not_stop_the_others(server: Server) -> None:
    """The connect belongs to all who wait for it."""
    dialer = dialer_of(server)
    first = asyncio.ensure_future(dialer.endpoint(server.address))
    second = asyncio.ensure_future(dialer.endpoint(server.address))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_open
    await ended(dialer)


async def test_a_refused_connection_fails_every_caller_and_is_tried_anew(server: Server) -> None:
    """ConnectFailed names the address; when the server is back, the next call connects."""
    port = server.listening.port
    address = server.address
    await server.stop()
    dialer = dialer_of(server)
    outcomes = await asyncio.gather(*[dialer.endpoint(address) for _ in range(5)], return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectFailed] * 5
    assert f"cannot connect to {address}" in str(outcomes[0])
    await server.start(port)
    assert (await dialer.call(address, RemotingCommand(ECHO, body=b"back"), 60_000)).body == b"back"
    await ended(dialer)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "x" * 70 + ".example:80", "a..b:80"])
async def test_an_address_that_cannot_be(server: Server, address: str) -> None:
    """Also what only the resolver refuses is a ConnectFailed: addresses come from name servers."""
    with pytest.raises(ConnectFailed):
        await dialer_of(server).endpoint(address)


async def test_a_lost_connection_is_made_again(server: Server) -> None:
    """Whoever was waiting gets ConnectionLost, `on_closed` is told, the next call gets a new connection."""
    lost: list[str] = []
    dialer = dialer_of(server, on_closed=lost.append)
    first = await dialer.endpoint(server.address)
    server.handler = lambda *_: None
    future = first.request_nowait(RemotingCommand(ECHO), 60_000)
    await until(lambda: server.accepted)
    server.accepted[0].abort("cut")
    with pytest.raises(ConnectionLost):
        await future
    assert lost == [server.address]
    assert dialer.open_endpoint(server.address) is None
    second = await dialer.endpoint(server.address)
    assert second is not first
    assert second.is_open
    await ended(dialer)


async def test_a_closing_connection_is_not_handed_out(server: Server) -> None:
    """From the moment it takes no more requests, callers get a new one, and its end does not take that away."""
    dialer = dialer_of(server)
    first = await dialer.endpoint(server.address)
    first.close("no longer wanted")
    assert dialer.open_endpoint(server.address) is None
    second = await dialer.endpoint(server.address)
    assert second is not first
    await until(lambda: first._transport is None)
    assert dialer.open_endpoint(server.address) is second
    await ended(dialer)


async def test_a_connection_that_ends_late_does_not_take_the_next_one_away(server: Server) -> None:
    """It takes no more requests and sends what was written, while callers have a new one already."""
    lost: list[str] = []
    dialer = dialer_of(server, on_closed=lost.append)
    first = await dialer.endpoint(server.address)
    await until(lambda: server.accepted)
    peer = server.accepted[0]._transport
    assert peer is not None
    peer.pause_reading()
    first.send_one_way(RemotingCommand(ECHO, body=bytes(8 * 1024 * 1024)))
    first.close("no longer wanted")
    second = await dialer.endpoint(server.address)
    assert lost == []
    peer.resume_reading()
    await until(lambda: lost)
    assert dialer.open_endpoint(server.address) is second
    await ended(dialer)


async def test_a_connection_that_ends_with_its_greeting(server: Server) -> None:
    """The greeting did not notice: callers learn that there is no connection."""

    async def greet(_: str, endpoint: Endpoint) -> None:
        endpoint.abort("cut")

    dialer = dialer_of(server, greet=greet)
    with pytest.raises(ConnectFailed, match="it closed at once: cut"):
        await dialer.endpoint(server.address)
    await ended(dialer)


async def test_nobody_uses_a_connection_before_its_greeting(server: Server) -> None:
    """Ten callers wait until the greeting has been answered; the encoding is agreed by then."""
    order: list[bytes] = []

    def note(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        order.append(command.body)
        return echo(endpoint, command)

    async def greet(address: str, endpoint: Endpoint) -> None:
        assert dialer.open_endpoint(address) is None
        await endpoint.request(RemotingCommand(ECHO, body=b"hello"), 60_000)
        await asyncio.sleep(0)
        order.append(b"greeted")

    server.handler = note
    dialer = dialer_of(server, greet=greet, offer=SerializeType.MSGPACK)
    calls = [dialer.call(server.address, RemotingCommand(ECHO, body=b"call"), 60_000) for _ in range(10)]
    replies = await asyncio.gather(*calls)
    assert order == [b"hello", b"greeted"] + [b"call"] * 10
    assert {reply.serialize_type for reply in replies} == {SerializeType.MSGPACK}
    await ended(dialer)


@pytest.mark.parametrize("failure", ["timeout", "refused", "lost", "bug"])
async def test_a_greeting_that_fails_fails_the_connection(server: Server, failure: str) -> None:
    """Callers learn that there is no connection, whatever went wrong; it is closed, and the next call tries anew."""
    tries: list[Endpoint] = []

    async def greet(address: str, endpoint: Endpoint) -> None:
        tries.append(endpoint)
        if len(tries) == 1:
            if failure == "lost":
                endpoint.abort("cut")
                await endpoint.request(RemotingCommand(ECHO), 60_000)
            raise {
                "timeout": RequestTimeout(address, "HEART_BEAT (34)", 3000),
                "refused": RequestRefused(address, "HEART_BEAT (34)", 1, "not now"),
                "bug": LookupError("a bug"),
            }[failure]

    dialer = dialer_of(server, greet=greet)
    with pytest.raises(LookupError if failure == "bug" else ConnectFailed):
        await dialer.endpoint(server.address)
    assert dialer.open_endpoint(server.address) is None
    await until(lambda: not tries[0].is_open)
    assert (await dialer.endpoint(server.address)) is tries[1]
    await ended(dialer)


async def test_close_ends_every_connection_and_all_use(server: Server) -> None:
    """What was written leaves; later calls fail, and so do those that were under way."""
    dialer = dialer_of(server)
    endpoint = await dialer.endpoint(server.address)
    dialer.close()
    assert not endpoint.is_open
    with pytest.raises(ConnectFailed, match="this client is shut down"):
        await dialer.endpoint(server.address)
    await until(lambda: server.accepted and not server.accepted[0].is_open)


async def test_close_during_a_connect_and_during_a_greeting(server: Server) -> None:
    """No connection comes to life after the end."""
    dialer = dialer_of(server)
    connecting = asyncio.ensure_future(dialer.endpoint(server.address))
    await asyncio.sleep(0)
    dialer.close()
    with pytest.raises(ConnectFailed, match="this client is shut down"):
        await connecting

    greeted = asyncio.Event()

    async def greet(_: str, endpoint: Endpoint) -> None:
        greeted.set()
        await endpoint.request(RemotingCommand(ECHO), 60_000)

    server.handler = lambda *_: None  # the greeting is never answered
    dialer = dialer_of(server, greet=greet)
    connecting = asyncio.ensure_future(dialer.endpoint(server.address))
    await greeted.wait()
    dialer.close()
    with pytest.raises(ConnectFailed, match="this client is shut down"):
        await connecting
    await until(lambda: not any(endpoint.is_open for endpoint in server.accepted))


async def test_close_after_a_greeting_that_did_not_notice(server: Server) -> None:
    """A greeting that ends well just when the client is shut down leaves no connection behind either."""
    seen: list[Endpoint] = []

    async def greet(_: str, endpoint: Endpoint) -> None:
        seen.append(endpoint)
        dialer._stopped.set()

    dialer = dialer_of(server, greet=greet)
    with pytest.raises(ConnectFailed, match="this client is shut down"):
        await dialer.endpoint(server.address)
    await until(lambda: not seen[0].is_open)


def test_a_server_that_does_not_answer_the_connect() -> None:
    """Behind a partition a connect fails after the time that was given for it, on virtual time."""

    async def scenario(world: World) -> int:
        client, server = world.host("client"), world.host("server")
        world.partition("client", "server")
        dialer = Dialer(client, DialerCallbacks(refuse), RecordingLog())
        with pytest.raises(ConnectFailed, match="no answer within 3000 ms"):
            await client.run(dialer.endpoint(f"{server.address}:1"))
        return world.elapsed_ms

    assert simulate(scenario).value == 3000
