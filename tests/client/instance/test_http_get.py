"""One HTTP GET: whole replies are read, everything else is an error that says what came."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lockstep.client.instance.http_get import HttpGetFailed, http_get
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.simulation import World, simulate
from tests.client.instance.web import WebServer
from tests.rows import by_row

URL = "http://names:8080/rocketmq/nsaddr"


def page(reply: bytes) -> str:
    """What a client reads when a server answers with these bytes and ends the connection."""
    pages: list[str] = []

    async def story(world: World) -> None:
        server = world.host("names")
        web = WebServer(server)
        web.reply = reply
        await server.run(web.start(server.address, 8080))
        client = world.host("client")
        pages.append(await client.run(http_get(client, URL, 3000)))
        web.stop()

    simulate(story)
    return pages[0]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n10.0.0.1;", "10.0.0.1;"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", "until the end"),
        (b"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nab and what nobody counted", "ab"),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", "x"),
    ],
)
def test_a_whole_reply(reply: bytes, text: str) -> None:
    """By its length, in chunks, or to its end."""
    assert page(reply) == text


@by_row(
    "reply, reason",
    [
        (b"", "not a whole HTTP reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "not a whole HTTP reply"),
        (b"SSH-2.0-x\r\n\r\n", "not a whole HTTP reply"),
        (b"HTTP/1.1 404 Not Found\r\n\r\nnothing", "status 404 Not Found"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "status 302 Found"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "received 5 bytes, expected 10"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 70_000, "bytes came; expected were at most 65536"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000, "not a whole HTTP reply"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx", "not a whole HTTP reply"),
    ],
)
def test_what_is_no_whole_reply(reply: bytes, reason: str) -> None:
    """The error names the page and what came instead."""
    with pytest.raises(HttpGetFailed, match=f"GET {URL} failed: .*{reason}"):
        page(reply)


def test_a_page_of_a_simulated_host() -> None:
    """The same code on virtual time; a server that is silent costs the timeout, and one that is not there nothing."""

    async def story(world: World) -> None:
        server = world.host("names")
        web = WebServer(server, "10.0.0.1:9876")
        await server.run(web.start(server.address, 8080))
        client = world.host("client")
        assert await client.run(http_get(client, f"{URL}?nofix=1", 3000)) == "10.0.0.1:9876"
        assert web.asked == ["GET /rocketmq/nsaddr?nofix=1 HTTP/1.1"]
        web.reply = None
        began_ms = world.elapsed_ms
        with pytest.raises(HttpGetFailed, match="no answer within 3000 ms"):
            await client.run(http_get(client, URL, 3000))
        assert world.elapsed_ms - began_ms == 3000
        web.stop()
        with pytest.raises(HttpGetFailed, match="Connect call failed"):
            await client.run(http_get(client, URL, 3000))

    simulate(story)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://names/x", "must be http://"),
        ("names:8080/x", "must be http://"),
        ("http://", "must be http://"),
        ("http://names:eighty/", "[Pp]ort"),
    ],
)
async def test_what_is_no_address_of_a_page(url: str, reason: str) -> None:
    """Nothing is connected to."""
    with pytest.raises(HttpGetFailed, match=reason):
        await http_get(AsyncioRuntime(), url, 3000)


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/rocketmq/nsaddr" else 404)
        self.end_headers()
        self.wfile.write(b"127.0.0.1:9876\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{pages.server_address[1]}"
        pages.shutdown()
        thread.join()


async def test_a_page_of_a_real_server(server: str) -> None:
    """Python's own, over a socket."""
    runtime = AsyncioRuntime()
    assert await http_get(runtime, f"{server}/rocketmq/nsaddr", 100_000) == "127.0.0.1:9876\n"
    with pytest.raises(HttpGetFailed, match="status 404"):
        await http_get(runtime, f"{server}/elsewhere", 100_000)
