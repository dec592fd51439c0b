"""The upper limit: a plain uvloop echo of frames of the same sizes, with one future a call, on one connection.

Each request gets a prepared reply of the right size; only the lengths are parsed.
"""

import asyncio
import struct
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import uvloop

from lockstep.protocol.codes import SerializeType
from lockstep.remoting.host.runtime import AsyncioRuntime, ProtocolFactory
from lockstep.testing.process import ChildProcess
from scripts.bench import cases

__all__ = ["Sizes", "echo_process", "echo_rate", "sizes_of"]

ROOT = Path(__file__).parents[2]
SIZE_CALLS = 200
_LENGTH = struct.Struct(">I")


class _FrameProtocol(asyncio.Protocol):
    """Counts whole frames by their length field."""

    def __init__(self) -> None:
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def frames_in(self, data: bytes) -> list[bytes]:
        buffer = self._rest + data if self._rest else data
        frames, position = [], 0
        while len(buffer) - position >= 4:
            end = position + 4 + _LENGTH.unpack_from(buffer, position)[0]
            if end > len(buffer):
                break
            frames.append(buffer[position:end])
            position = end
        self._rest = buffer[position:]
        return frames


class _EchoServer(_FrameProtocol):
    def data_received(self, data: bytes) -> None:
        replies = []
        for frame in self.frames_in(data):
            reply_bytes = _LENGTH.unpack_from(frame, 4)[0]
            replies.append(_LENGTH.pack(reply_bytes - 4) + bytes(reply_bytes - 4))
        self.transport.writelines(replies)


class _EchoClient(_FrameProtocol):
    """`call()` is one round trip."""

    def __init__(self, request_bytes: int, reply_bytes: int) -> None:
        super().__init__()
        head = _LENGTH.pack(request_bytes - 4) + _LENGTH.pack(reply_bytes)
        self._request = head + bytes(request_bytes - len(head))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        for _ in self.frames_in(data):
            self._waiting.popleft().set_result(None)

    async def call(self) -> None:
        future = self._loop.create_future()
        self._waiting.append(future)
        self.transport.writelines((self._request,))
        await future


@contextmanager
def echo_process() -> Iterator[int]:
    """The echo server as a process; its port."""
    command = [sys.executable, "-m", "scripts.bench.echo"]
    with tempfile.TemporaryDirectory() as folder, ChildProcess("echo", command, Path(folder), cwd=ROOT) as echo:
        yield int(echo.wait_until(lambda: echo.stdout().partition("\n")[0], "its port"))


async def echo_rate(port: int, sizes: "Sizes", seconds: float, in_flight: int, per_call: int = 1) -> cases.Sample:
    """Round trips of frames of these sizes, for so many seconds."""
    client = _EchoClient(*sizes)
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
    try:
        return await cases.latencies(client.call, seconds, in_flight, per_call)
    finally:
        client.transport.close()


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_EchoServer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# How many bytes a call sends and receives, counted where the Runtime opens connections ----------------------------


class Sizes(NamedTuple):
    request_bytes: int
    reply_bytes: int


async def sizes_of(case: cases.Case, name_server: str, encoding: SerializeType) -> Sizes:
    """Bytes of one operation in both directions, when it is alone."""
    runtime = _CountingRuntime()
    client, operation = await case.open(name_server, encoding, runtime)
    try:
        await operation()
        runtime.written = runtime.read = 0
        for _ in range(SIZE_CALLS):
            await operation()
        return Sizes(round(runtime.written / SIZE_CALLS), round(runtime.read / SIZE_CALLS))
    finally:
        await client.shutdown()


class _CountingRuntime(AsyncioRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.written = self.read = 0

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await super().create_connection(lambda: _Tap(factory(), self), host, port)


class _Tap(asyncio.Protocol):
    """Counts between a transport and its protocol."""

    def __init__(self, inner: asyncio.Protocol, counter: _CountingRuntime) -> None:
        self._inner = inner
        self._counter = counter
        self.connection_lost = inner.connection_lost  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(_CountingTransport(transport, self._counter))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._counter.read += len(data)
        self._inner.data_received(data)


class _CountingTransport:
    def __init__(self, transport: Any, counter: _CountingRuntime) -> None:
        self._transport = transport
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._counter.written += len(data)
        self._transport.write(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        pieces = list(pieces)
        self._counter.written += sum(map(len, pieces))
        self._transport.writelines(pieces)


if __name__ == "__main__":
    try:
        uvloop.run(_serve())
    except KeyboardInterrupt:
        sys.exit(130)
