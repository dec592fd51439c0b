"""A web server of a few lines on a runtime, for what a client asks over HTTP."""

import asyncio
from typing import cast

from lockstep.remoting.host.runtime import Listening, Runtime

__all__ = ["WebServer"]


class WebServer:
    """Answers every request with `reply`, or never when that is None; `asked` are the first lines of requests, `at_ms`
    when they came."""

    def __init__(self, runtime: Runtime, text: str = "") -> None:
        self._runtime = runtime
        self._listening: Listening | None = None
        self.reply: bytes | None = None
        self.asked: list[str] = []
        self.at_ms: list[int] = []
        self.says(text)

    def says(self, text: str, status: str = "200 OK") -> None:
        body = text.encode()
        self.reply = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def start(self, host: str, port: int = 0) -> str:
        """Returns "host:port"."""
        self._listening = await self._runtime.create_server(lambda: _Visitor(self), host, port)
        return f"{host}:{self._listening.port}"

    def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()

    def on_request(self, head: bytes, transport: asyncio.Transport) -> None:
        self.asked.append(head.split(b"\r\n")[0].decode())
        self.at_ms.append(self._runtime.now_ms())
        if self.reply is not None:
            transport.write(self.reply)
            transport.close()


class _Visitor(asyncio.Protocol):
    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._server.on_request(self._head, self._transport)
