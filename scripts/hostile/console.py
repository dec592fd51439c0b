"""Attacks on the port of `lockstep console`, an HTTP server: connections, headers, bodies, odd requests, many pages."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import count

from scripts.hostile.run import Attack
from scripts.hostile.target import Target

__all__ = ["CONSOLE_ATTACKS"]

CONNECTIONS = 2000
DRIPS_S = 13  # the console waits 10 s for a request
STREAMS = 200
PIPELINED = 2000
ENDLESS_BYTES = 15 * 1024 * 1024
PARAMETERS = 5000
PAGES = 300
ANSWER_S = 20.0
HOST = "127.0.0.1"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(path: str, *lines: str, method: str = "GET", host: str = HOST) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode("latin-1")


class Browser:
    """Connections of one attack; they are closed at its end."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Stream | None:
        """None when the console does not accept."""
        try:
            reader, writer = await asyncio.open_connection(HOST, self._target.port)
        except OSError:
            return None
        self._writers.append(writer)
        return reader, writer

    async def ask(self, *parts: bytes) -> str:
        """The status of the answer to one request on a connection of its own; "closed" without one."""
        stream = await self.connect()
        return "refused" if stream is None else await answer_to(stream, *parts)

    async def ask_all(self, requests: Iterable[bytes]) -> str:
        return counted(await asyncio.gather(*map(self.ask, requests)))

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


async def answer_to(stream: Stream, *parts: bytes) -> str:
    reader, writer = stream
    try:
        async with asyncio.timeout(ANSWER_S):
            for part in parts:
                writer.write(part)
                await writer.drain()
            line = await reader.readline()
    except ConnectionError:
        return "closed"
    except TimeoutError:
        return "no answer"
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", line)
    return found[1].decode() if found else "closed"


def counted(outcomes: Iterable[str]) -> str:
    return ", ".join(f"{outcome}: {number}" for outcome, number in sorted(Counter(outcomes).items()))


async def is_open(stream: Stream) -> bool:
    """Whether the console has not closed it; nothing is waited for."""
    reader, writer = stream
    await asyncio.sleep(0)
    return not (reader.at_eof() or writer.is_closing())


async def silent_connections(target: Target) -> str:
    """They send nothing; then a page is asked for."""
    browser = Browser(target)
    opened = [stream for stream in [await browser.connect() for _ in range(CONNECTIONS)] if stream is not None]
    page = await browser.ask(request("/"))
    await asyncio.sleep(DRIPS_S)
    left = sum([await is_open(stream) for stream in opened])
    browser.close()
    return f"{len(opened)} accepted, a page: {page}, {left} open after {DRIPS_S} s"


async def slow_headers(target: Target) -> str:
    """A byte each second."""
    browser = Browser(target)
    streams = [stream for stream in [await browser.connect() for _ in range(200)] if stream is not None]
    for byte in request("/", "X: " + "x" * 100)[:DRIPS_S]:
        for _, writer in streams:
            if not writer.is_closing():
                writer.write(bytes([byte]))
        await asyncio.sleep(1.0)
    left = sum([await is_open(stream) for stream in streams])
    browser.close()
    return f"{left} of {len(streams)} are open after {DRIPS_S} s"


async def slow_bodies(target: Target) -> str:
    """Forms of which a byte comes each second; a page is asked for beside them."""
    browser = Browser(target)
    head = request("/release", f"Origin: http://{HOST}", "Content-Length: 1000", method="POST")
    streams = [stream for stream in [await browser.connect() for _ in range(200)] if stream is not None]
    for _, writer in streams:
        writer.write(head)
    page = asyncio.create_task(browser.ask(request("/groups")))
    for second in range(DRIPS_S):
        for _, writer in streams:
            if not writer.is_closing():
                writer.write(b"a")
        await asyncio.sleep(1.0)
        if second == 0:
            answered = await page if page.done() else "not yet"
    left = sum([await is_open(stream) for stream in streams])
    await page
    browser.close()
    return f"a page in the first second: {answered}, {left} of {len(streams)} are open after {DRIPS_S} s"


async def endless(target: Target) -> str:
    """A request line, headers, many headers, forms of a length and in tiny chunks, a body of a page."""
    browser = Browser(target)
    block = b"x" * 65536
    times = ENDLESS_BYTES // len(block)
    chunks = b"1\r\nx\r\n" * 10_000
    of_form = request("/reset", f"Origin: http://{HOST}", f"Content-Length: {ENDLESS_BYTES}", method="POST")
    chunked = request("/reset", f"Origin: http://{HOST}", "Transfer-Encoding: chunked", method="POST")
    found = {
        "line": await browser.ask(b"GET /", *[block] * times),
        "header": await browser.ask(b"GET / HTTP/1.1\r\nX: ", *[block] * times),
        "headers": await browser.ask(b"GET / HTTP/1.1\r\n", *[b"a:b\r\n" * 10_000] * 300),
        "form": await browser.ask(of_form, *[block] * times),
        "chunks": await browser.ask(chunked, *[chunks] * 50),
        "foreign": await browser.ask(chunked.replace(b"Origin: ", b"Origin: x"), *[chunks] * 50),
        "page": await browser.ask(request("/", f"Content-Length: {ENDLESS_BYTES}"), *[block] * times),
    }
    browser.close()
    return ", ".join(f"{name}: {status}" for name, status in found.items())


async def full_headers(target: Target) -> str:
    """As many lines, cookies and languages as a request may have, 200 at once."""
    browser = Browser(target)
    long = 15_000
    requests = [
        request("/", *["a:b"] * (long // 5)),
        request("/", "Cookie: " + "a=b;" * (long // 4)),
        request("/", "Accept-Language: " + "fr;q=0.1," * (long // 9)),
        request("/groups?" + "&".join(f"{number:x}=" for number in range(long // 5))),
        request("/?group=" + "%00" * (long // 3)),
        request("/" + "../" * (long // 3)),
    ]
    answers = await browser.ask_all(requests * 33)
    browser.close()
    return answers


async def odd_requests(target: Target) -> str:
    """What must be answered with 400, 403, 404 or 405, and is not."""
    browser = Browser(target)
    numbers = ["-1", "1e30", str(10**30), "NaN", "0x10", "%D9%A3", "1" * 5000, "%00", "%FF"]
    paths = [f"/{name}?topic=t&broker=b&{field}={number}" for number in numbers
             for name, field in [("message", "queue"), ("message", "queue=0&offset"), ("topics", "page")]]  # fmt: skip
    hosts = ["evil.example", "127.0.0.1.evil.example", ""]
    outside = ["/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e/server.py", "/static/....//x",
               "/static/%00", "//evil.example/",
               "/static/style.css/../../app.py", "/%2e%2e/%2e%2e/etc/passwd"]  # fmt: skip
    methods = ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "BREW", "PROPFIND"]
    found = {
        "numbers": [await browser.ask(request(path)) for path in paths],
        "paths": [await browser.ask(request(path)) for path in outside],
        "methods": [await browser.ask(request("/", method=method)) for method in methods],
        "hosts": [await browser.ask(request("/", host=host)) for host in hosts],
    }
    cross_site = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"]
    origins = ["Origin: http://evil.example", "Origin: null", "X-Origin: none", f"Origin: http://{HOST}"]
    found["sites"] = [
        *[await browser.ask(request("/doctor", one, "Content-Length: 0", method="POST")) for one in origins[:3]],
        *[await browser.ask(request(path, *cross_site)) for path in ("/events", "/doctor", "/messages")],
    ]
    token = request("/reset", origins[3], "Content-Length: 7", method="POST") + b"token=x"
    found["tokens"] = [await browser.ask(token)]
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x"]
    found["websocket"] = [await browser.ask(request("/events/x", *upgrade))]
    browser.close()
    return "; ".join(f"{name}: {counted(statuses)}" for name, statuses in found.items())


async def event_streams(target: Target) -> str:
    """All at once; none is read or closed."""
    browser = Browser(target)
    events = await browser.ask_all([request("/events")] * STREAMS)
    heads = await browser.ask_all([request("/events", method="HEAD")] * STREAMS)
    page = await browser.ask(request("/"))
    browser.close()
    return f"streams: {events}; HEAD: {heads}; a page: {page}"


async def pipelined(target: Target) -> str:
    """Pages that nobody reads, and nonsense: each a line of the log."""
    browser = Browser(target)
    many = request("/") * PIPELINED
    for stream in [await browser.connect() for _ in range(50)]:
        if stream is not None:
            stream[1].write(many)
    nonsense = await browser.ask_all([b"\x00\xff nonsense\r\n\r\n"] * 500)
    await asyncio.sleep(5.0)
    page = await browser.ask(request("/"))
    browser.close()
    return f"nonsense: {nonsense}; a page: {page}"


async def pages(target: Target) -> str:
    """Pages for which brokers are asked, all at once."""
    browser, number = Browser(target), count()
    answers = await browser.ask_all(
        request(path.format(next(number)))
        for _ in range(PAGES // 5)
        for path in ("/messages?topic=t{}", "/messages?topic=TBW102&by=key&text=k{}", "/doctor?group=g{}",
                     "/key?topic=TBW102&key=k{}", "/group?group=g{}")
    )  # fmt: skip
    browser.close()
    return answers


def _attack(name: str, sends: str, run: Callable[[Target], Awaitable[str]]) -> Attack:
    return Attack(f"console-{name}", 21, f"console: {sends}", run, 60.0, on_console=True)


CONSOLE_ATTACKS = (
    _attack("silent", f"{CONNECTIONS:,} connections that send nothing", silent_connections),
    _attack("slow-headers", "200 connections, a byte of a request each second", slow_headers),
    _attack("slow-bodies", "200 connections, a byte of a form each second", slow_bodies),
    _attack("endless", "endless lines, headers, forms and bodies", endless),
    _attack("full-headers", "198 requests with 15 kB of headers, cookies, languages or parameters", full_headers),
    _attack("odd-requests", "odd numbers, paths, methods, hosts, origins, tokens, a websocket", odd_requests),
    _attack("streams", f"{STREAMS} streams of events, and {STREAMS} HEAD requests for one", event_streams),
    _attack("pipelined", f"50 times {PIPELINED:,} pipelined pages that are not read, 500 times nonsense", pipelined),
    _attack("pages", f"{PAGES} pages at once for which brokers are asked", pages),
)
