"""The ceiling: a bare uvloop echo of frames of the same sizes. One asyncio future a call, one connection.

A request of the right size comes in, a canned reply of the right size goes out; nothing is parsed but the lengths.
"""

import asyncio
import struct
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import uvloop
from broker_process import end_process

__all__ = ["EchoClient", "echo_process"]

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


class EchoClient(_FrameProtocol):
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


@asynccontextmanager
async def echo_process() -> AsyncIterator[int]:
    """The echo server in a process of its own; its port."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(await process.stdout.readline())
    finally:
        await end_process(process)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_EchoServer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        uvloop.run(_serve())
    except KeyboardInterrupt:
        sys.exit(130)
