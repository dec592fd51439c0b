"""How many bytes an operation really sends and receives, counted at the Runtime's door."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from lockstep.remoting.runtime import AsyncioRuntime, ProtocolFactory

__all__ = ["CountingRuntime", "Sizes"]


class Sizes(NamedTuple):
    request_bytes: int
    reply_bytes: int


class CountingRuntime(AsyncioRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.written = self.read = 0

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await super().create_connection(lambda: _Tap(factory(), self), host, port)


class _Tap(asyncio.Protocol):
    """Stands between a transport and its protocol and counts."""

    def __init__(self, inner: asyncio.Protocol, counter: CountingRuntime) -> None:
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
    def __init__(self, transport: Any, counter: CountingRuntime) -> None:
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
