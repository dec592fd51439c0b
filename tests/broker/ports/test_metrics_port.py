"""The port for Prometheus on a socket: requests, peers that say nothing or too much, and its end."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator

import pytest

from lockstep.broker.cannot_listen import CannotListen
from lockstep.broker.metrics.server import CONNECTION_LIFE_MS, CONNECTIONS_MAX, MetricsServer
from lockstep.remoting.host.manual_clock import ManualClockRuntime
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.broker.helpers import Peer

GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n"


class Port:
    """A metrics port of a broker, with a clock that the test moves."""

    def __init__(self) -> None:
        self.runtime = ManualClockRuntime(AsyncioRuntime())
        self.server = MetricsServer(Peer().broker, self.runtime, "127.0.0.1")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.server.address.partition(":")
        return await asyncio.open_connection(host, int(port))

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """The head and the body of the answer."""
        reader, writer = await self.connect()
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return head, body


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    """A port that listens."""
    port = Port()
    await port.server.start(0)
    yield port
    port.server.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the peer ended the connection without an answer; waits for its end."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_requests(port: Port) -> None:
    """A scrape in pieces, packed or in OpenMetrics if the peer takes it; another method is refused."""
    head, body = await port.ask(GET + b"\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"\nrocketmq_half_messages{" in body
    assert b"\nprocess_cpu_seconds_total " in body
    head, packed = await port.ask(GET + b"Accept-Encoding: gzip\r\naccept: application/openmetrics-text\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    assert b"Content-Type: application/openmetrics-text" in head
    assert gzip.decompress(packed).endswith(b"# EOF\n")
    head, _ = await port.ask(b"POST /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ")
    reader, writer = await port.connect()
    for piece in (GET[:10], GET[10:], b"\r\n"):
        writer.write(piece)
        await writer.drain()
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_a_peer_that_says_nothing_is_cut(port: Port) -> None:
    """Also one that stops within its request. Others are served meanwhile."""
    silent, half = await port.connect(), await port.connect()
    half[1].write(GET)
    assert (await port.ask(GET + b"\r\n"))[0]
    port.runtime.advance(CONNECTION_LIFE_MS - 1000)
    assert not silent[0].at_eof()
    port.runtime.advance(1000)
    for reader, writer in (silent, half):
        assert await ended(reader)
        writer.close()


async def test_a_request_in_single_bytes_is_cut(port: Port) -> None:
    """Each byte comes before a deadline of its own would, but there is one for the whole connection."""
    reader, writer = await port.connect()
    assert (await port.ask(GET + b"\r\n"))[0]  # the first connection is accepted by now
    for number in range(CONNECTION_LIFE_MS // 1000):
        writer.write(GET[number : number + 1])
        await writer.drain()
        assert not reader.at_eof()
        port.runtime.advance(1000)
    assert await ended(reader)
    writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (GET + b"a: b\r\n" * 2000 + b"\r\n", b"200"),
        (b"GET /metrics?" + b"name[]=x&" * 1500 + b" HTTP/1.0\r\n\r\n", b"200"),
        (b"DELETE / HTTP/1.1\r\nHost: here\r\n\r\n", b"405"),
        (b"HEAD /metrics HTTP/1.1\r\nHost: here\r\n\r\n", b"405"),
    ],
    ids=["many headers", "a long query", "another method", "HEAD"],
)
async def test_odd_requests(port: Port, request_bytes: bytes, status: bytes) -> None:
    """They are answered as any other, and what follows the head is not read."""
    head, _ = await port.ask(request_bytes + GET + b"\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b" ")
    assert head.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "request_bytes",
    [b"x" * 20_000, b"nonsense\r\n\r\n", b"\xff\x00 /\xff HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"],
    ids=["no end", "no request", "bytes that are no text", "no host"],
)
async def test_what_is_no_request_ends_the_connection(port: Port, request_bytes: bytes) -> None:
    """A head without end, lines that are no request, and a request of HTTP 1.1 that names no host."""
    reader, writer = await port.connect()
    writer.write(request_bytes)
    assert await ended(reader)
    writer.close()


async def test_the_oldest_connection_goes_when_there_are_too_many(port: Port) -> None:
    """So peers that say nothing do not keep Prometheus out."""
    opened = [await port.connect() for _ in range(CONNECTIONS_MAX)]
    assert (await port.ask(GET + b"\r\n"))[0].startswith(b"HTTP/1.1 200 OK")
    assert await ended(opened[0][0])
    for _, writer in opened:
        writer.close()


async def test_many_connections_in_one_turn(port: Port) -> None:
    """Each one above the bound cuts another, though the ends of those are told only after the turn."""
    host, _, number = port.server.address.partition(":")
    above = 5
    opened = [socket.create_connection((host, int(number))) for _ in range(CONNECTIONS_MAX + above)]
    for one in opened[:above]:
        reader, writer = await asyncio.open_connection(sock=one)
        assert await ended(reader)
        writer.close()
    for one in opened[above:]:
        one.close()


async def test_the_end() -> None:
    """Closing ends the port and its connections at once, and is no error before the start."""
    port = Port()
    port.server.close()
    port = Port()
    await port.server.start(0)
    with pytest.raises(CannotListen, match="is in use"):
        await Port().server.start(int(port.server.address.partition(":")[2]))
    reader, writer = await port.connect()
    asking, other = await port.connect()
    other.write(GET + b"\r\n")
    await port.ask(GET + b"\r\n")  # both connections are accepted by now
    port.server.close()
    assert await ended(reader)
    await ended(asking)
    with pytest.raises(ConnectionRefusedError):
        await port.connect()
    writer.close()
    other.close()
