"""Frames of an attack, and connections that send them."""

import asyncio
import json
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from lockstep.protocol.codes import RemotingFlag, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command
from lockstep.protocol.frame import FrameDecoder

__all__ = ["ONE_WAY", "Peer", "Target", "frame", "json_request", "outcome_of"]

ONE_WAY = int(RemotingFlag.ONE_WAY)
_LENGTHS = struct.Struct(">II")
_READ_BYTES = 1 << 18


def frame(header_type: int, header: bytes, body: bytes = b"") -> bytes:
    return _LENGTHS.pack(4 + len(header) + len(body), header_type << 24 | len(header)) + header + body


def json_request(
    code: int, ext_fields: Mapping[str, Any] | None = None, body: bytes = b"", *, opaque: int = 7, flag: int = 0
) -> bytes:
    header = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 401}
    if ext_fields is not None:
        header["extFields"] = {name: str(value) for name, value in ext_fields.items()}
    return frame(SerializeType.JSON, json.dumps(header).encode(), body)


def outcome_of(reply: RemotingCommand | None) -> str:
    """A reply in a few words, for the table."""
    if reply is None:
        return "closed"
    remark = (reply.remark or "").replace("\n", " ")
    return f"code {int(reply.code)}" + (f": {remark[:60]}" if remark else "")


class Peer:
    """A connection. `ask` returns None when the connection ended before the reply."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()

    async def send(self, data: bytes) -> bool:
        """Returns False when the broker has closed."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            return False
        return not self._writer.is_closing()

    async def read(self) -> RemotingCommand | None:
        """The next frame; None when the connection ended."""
        while (found := self._decoder.next_frame()) is None:
            try:
                data = await self._reader.read(_READ_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._decoder.feed(data)
        return decode_command(found)

    async def ask(self, data: bytes) -> RemotingCommand | None:
        """The next reply; requests of the broker before it are skipped."""
        await self.send(data)
        while (command := await self.read()) is not None and not command.is_reply:
            pass
        return command

    async def ask_all(self, requests: Iterable[bytes], window: int = 64) -> dict[str, int]:
        """Send with up to `window` requests in flight. Returns the number of each outcome."""
        outcomes: dict[str, int] = {}
        waiting = 0
        for request in requests:
            if not await self.send(request):
                break
            waiting += 1
            if waiting >= window:
                waiting -= 1
                if not await self._count(outcomes):
                    return outcomes
        for _ in range(waiting):
            if not await self._count(outcomes):
                break
        return outcomes

    async def _count(self, outcomes: dict[str, int]) -> bool:
        while (command := await self.read()) is not None and not command.is_reply:
            pass
        outcome = "closed" if command is None else f"code {int(command.code)}"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return command is not None

    def abort(self) -> None:
        self._writer.transport.abort()


class Target:
    """An attacked process and its ports: `port` is the broker's or the console's.

    It closes all connections of an attack when the attack has ended.
    """

    def __init__(self, pid: int, port: int, name_server_port: int) -> None:
        self.pid, self.port, self.name_server_port = pid, port, name_server_port
        self._peers: list[Peer] = []

    async def connect(self, *, name_server: bool = False, host: str = "127.0.0.1") -> Peer:
        """`host` is the address to come from. Raises OSError when the broker does not accept."""
        port = self.name_server_port if name_server else self.port
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
        self._peers.append(peer)
        return peer

    async def ask(self, data: bytes, *, name_server: bool = False) -> str:
        """One request on a connection of its own; its outcome in a few words."""
        return outcome_of(await (await self.connect(name_server=name_server)).ask(data))

    def close(self) -> None:
        for peer in self._peers:
            peer.abort()
        self._peers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
