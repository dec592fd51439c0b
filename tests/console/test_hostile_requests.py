"""The console on a socket, and peers that are slow, endless, many or from another site."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from lockstep.cli.output import StderrLog
from lockstep.console import connections, events, guard
from lockstep.console.console import Cluster
from lockstep.console.server import serve
from tests.commands import TIMEOUT_S
from tests.console.pages_inside import NOWHERE, ask, make_console
from tests.rows import by_row

HOST = "127.0.0.1"
ORIGIN = f"Origin: http://{HOST}"


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, line: str, *headers: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join([f"{line} HTTP/1.1", f"Host: {HOST}", *headers, "", ""]).encode() + body)

    async def status(self) -> int:
        """Of the next answer; 0 when the connection ended before."""
        with suppress(ConnectionError):
            async with asyncio.timeout(TIMEOUT_S):
                line = await self.reader.readline()
                return int(line.split()[1]) if line else 0
        return 0

    async def rest(self) -> bytes:
        """What comes until the console ends the connection."""
        with suppress(ConnectionError):
            async with asyncio.timeout(TIMEOUT_S):
                return await self.reader.read()
        return b""


class Served:
    def __init__(self, port: int, stack: AsyncExitStack) -> None:
        self._port, self._stack = port, stack

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection(HOST, self._port))
        self._stack.callback(peer.writer.transport.abort)
        return peer


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve([Cluster(NOWHERE)], HOST, 0, StderrLog(verbose=False), ready.set_result))
    try:
        async with AsyncExitStack() as stack:
            yield Served(int((await ready).rstrip("/").rpartition(":")[2]), stack)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@by_row(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nX: y", b"POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\na"],
)
async def test_a_request_that_does_not_end_is_ended(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a whole request is closed after a time."""
    monkeypatch.setattr(connections, "_REQUEST_S", 0.1)
    monkeypatch.setattr(connections, "_NEXT_REQUEST_S", 0.1)
    async with serving() as served:
        peer = await served.connect()
        peer.writer.write(sent)
        assert (await peer.rest()).partition(b"\r\n")[0] in (b"", b"HTTP/1.1 403 Forbidden")


async def test_a_stream_outlives_the_time_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time ends with the request: a page that is open gets events for as long as it wants."""
    monkeypatch.setattr(connections, "_REQUEST_S", 2.0)
    monkeypatch.setattr(events, "_SILENCE_S", 1.2)
    async with serving() as served:
        peer = await served.connect()
        peer.send("GET /events")
        async with asyncio.timeout(TIMEOUT_S):
            await peer.reader.readuntil(b": still here")
            await peer.reader.readuntil(b": still here")


async def test_an_answer_that_is_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers fill the buffers of the connection; then it is closed."""
    monkeypatch.setattr(connections, "_STALLED_S", 0.1)
    async with serving() as served:
        peer = await served.connect()
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a browser that stands still
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionError):
                while not peer.writer.is_closing():
                    peer.send("GET /static/style.css")
                    await peer.writer.drain()
                    await asyncio.sleep(0)


async def test_many_connections_that_wait_leave_room_for_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has waited longest is closed; a stream of events stays."""
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 8)
    monkeypatch.setattr(connections, "_REQUEST_S", 3600.0)
    async with serving() as served:
        stream = await served.connect()
        stream.send("GET /events")
        assert await stream.status() == 200
        silent = [await served.connect() for _ in range(20)]
        page = await served.connect()
        page.send("GET /groups")
        assert await page.status() == 200
        assert await silent[0].rest() == b""
        async with asyncio.timeout(TIMEOUT_S):
            await stream.reader.readuntil(b"retry: 1000")


@by_row(
    "line, headers, statuses",
    [
        ("GET /", [f"X: {'x' * 20_000}"], (0, 400)),
        (f"GET /?{'x' * 20_000}", [], (0, 400)),
        ("GET /", ["a:b"] * 200, (0,)),
        ("GET /", ["Content-Length: 20000"], (413,)),
        ("GET /", ["Transfer-Encoding: chunked"], (413,)),
        ("POST /reset", [ORIGIN, "Content-Length: 20000"], (413,)),
        ("POST /reset", [ORIGIN, "Transfer-Encoding: chunked"], (413,)),
        ("GET /groups?" + "&".join(f"f{number}=" for number in range(65)), [], (400,)),
        ("GET /groups?" + "&".join(f"f{number}=" for number in range(64)), [], (200,)),
    ],
)
async def test_large_requests_are_refused(line: str, headers: list[str], statuses: tuple[int, ...]) -> None:
    """Long lines, many headers, bodies that are no form, many fields: refused before they are read."""
    async with serving() as served:
        peer = await served.connect()
        peer.send(line, *headers)
        assert await peer.status() in statuses


async def test_a_body_in_tiny_chunks_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a refused request is dropped: 300,000 chunks of a byte would take seconds."""
    parsed: list[int] = []
    parse = H11Protocol.data_received

    def counted(connection: H11Protocol, data: bytes) -> None:
        parsed.append(len(data))
        parse(connection, data)

    monkeypatch.setattr(H11Protocol, "data_received", counted)
    async with serving() as served:
        peer = await served.connect()
        first = b"1000\r\n" + b"x" * 4096 + b"\r\n"  # with few lines, so that the headers are read
        peer.send("POST /reset", ORIGIN, "Transfer-Encoding: chunked", body=first + b"1\r\nx\r\n" * 300_000)
        await peer.status()
        await peer.rest()
    assert 0 < sum(parsed) <= 2 * connections._SLICE_BYTES


async def test_forms_that_do_not_end_hold_up_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form takes its turn when it has arrived; then it is read as it came."""
    monkeypatch.setattr(connections, "_REQUEST_S", 3600.0)
    async with serving() as served:
        forms = [await served.connect() for _ in range(guard._UNDER_WAY_MAX)]
        for form in forms:
            form.send("POST /reset", ORIGIN, "Content-Length: 7", "Expect: 100-continue")
            assert await form.status() == 100  # its body is waited for
            await form.reader.readuntil(b"\r\n")
            form.writer.write(b"token")
        page = await served.connect()
        page.send("GET /groups")
        assert await page.status() == 200
        for form in forms:
            form.writer.write(b"=x")
            assert await form.status() == 403


async def test_nonsense_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A peer that sends nonsense, asks for a websocket or leaves in a form cannot fill the log."""
    async with serving() as served:
        nonsense, upgrade, form = [await served.connect() for _ in range(3)]
        nonsense.writer.write(b"\x00\xff\r\n\r\n")
        assert await nonsense.status() == 400
        chunks = [await served.connect() for _ in range(3)]
        for method, chunk in zip(("GET", "HEAD", "POST"), chunks, strict=True):
            chunk.send(f"{method} /groups", ORIGIN, "Transfer-Encoding: chunked", body=b"zz\r\n")
            assert await chunk.status() in (0, 400)
        upgrade.send("GET /", "Connection: Upgrade", "Upgrade: websocket")
        assert await upgrade.status() == 200
        form.send("POST /reset", ORIGIN, "Content-Length: 9")
        await form.writer.drain()
        await asyncio.sleep(0)
        form.writer.transport.abort()
        again = await served.connect()
        again.send("GET /groups")
        assert await again.status() == 200
    # asyncio itself warns of slow callbacks
    seen = [one for one in caplog.records if one.name.startswith("uvicorn") or one.levelno >= logging.ERROR]
    assert [one.message for one in seen if one.levelno >= logging.WARNING] == []


async def test_streams_that_are_asked_for_at_once_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counts from its request on; HEAD, whose answer would not end, has none."""
    monkeypatch.setattr(events, "_CLIENTS_MAX", 3)
    async with serving() as served:
        head = await served.connect()
        head.send("HEAD /events")
        assert await head.status() == 405
        peers = [await served.connect() for _ in range(6)]
        for peer in peers:
            peer.send("GET /events")
        assert sorted([await peer.status() for peer in peers]) == [200] * 3 + [503] * 3


@by_row(
    "site, mode, dest, status",
    [
        (site, *row)
        for site in ("cross-site", "same-site")
        for row in (
            ("no-cors", "image", 403),
            ("cors", "empty", 403),
            ("no-cors", "document", 403),
            ("navigate", "iframe", 403),
            ("navigate", "document", 200),
        )
    ],
)
async def test_another_site_loads_nothing(site: str, mode: str, dest: str, status: int) -> None:
    """It may have a link to a page; images, scripts, frames and streams of ours are refused, also to another port."""
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
    assert (await ask(make_console(), "/groups", headers=headers)).status == status


async def test_an_origin_is_of_the_web() -> None:
    """The name alone is not enough: the page of an extension is none of ours."""
    headers = {"origin": "extension://127.0.0.1:8088"}
    assert (await ask(make_console(), "/doctor", method="POST", headers=headers)).status == 403
