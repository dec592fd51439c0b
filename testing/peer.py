"""A raw peer of a broker: it sends any bytes, well formed or not, and reads the frames that come back."""

import asyncio
import json
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgpack

from lockstep.protocol.codes import RemotingFlag, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.frame import FrameDecoder

__all__ = ["CLOSED", "ONE_WAY", "Peer", "binary_request", "frame", "json_request", "msgpack_request", "outcome_of"]

ONE_WAY = int(RemotingFlag.ONE_WAY)
CLOSED = "closed"  # the outcome of a request when the connection ended before the reply
_LENGTHS = struct.Struct(">II")
_READ_BYTES = 1 << 18


def frame(header_type: int, header: bytes, body: bytes = b"", *, header_bytes: int | None = None) -> bytes:
    """A frame. Source: wire.md 1.1.

    Args:
        header_bytes: The header length that the frame states, when it shall be a wrong one.
    """
    word = header_type << 24 | (len(header) if header_bytes is None else header_bytes)
    return _LENGTHS.pack(4 + len(header) + len(body), word) + header + body


def json_request(
    code: Any, ext_fields: Any = None, body: bytes = b"", *, opaque: Any = 7, flag: Any = 0, **more: Any
) -> bytes:
    """A request with a JSON header; whatever JSON can hold may stand in it."""
    header = {"code": code, "flag": flag, "language": "PYTHON", "opaque": opaque, "version": 409, **more}
    if ext_fields is not None:
        header["extFields"] = ext_fields
    return frame(SerializeType.JSON, json.dumps(header).encode(), body)


def binary_request(code: int, ext_fields: dict[str, Any], body: bytes = b"", *, opaque: int = 7) -> bytes:
    """A request with RocketMQ's binary header; all its values are text."""
    command = RemotingCommand(code, None, body, opaque=opaque, serialize_type=SerializeType.ROCKETMQ)
    command.ext_fields = ext_fields
    return encode_command(command) + body


def msgpack_request(code: int, fields: Any = None, body: bytes = b"", *, opaque: int = 7, flag: int = 0) -> bytes:
    """A request with a MSGPACK header."""
    return frame(SerializeType.MSGPACK, msgpack.packb([code, flag, opaque, 409, None, fields, None]), body)


def outcome_of(reply: RemotingCommand) -> str:
    """A reply in a few words, for a table."""
    remark = (reply.remark or "").replace("\n", " ")
    return f"code {int(reply.code)}" + (f": {remark[:60]}" if remark else "")


class Peer:
    """A connection. Who opened it passes its streams, of a socket or of a simulated network, and ends it by `abort`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def write_eof(self) -> None:
        self._writer.write_eof()

    async def send(self, data: bytes) -> bool:
        """Write, and wait until the broker reads. Returns False when it has closed."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            return False
        return not self._writer.is_closing()

    async def read(self) -> RemotingCommand:
        """The next frame. Raises ConnectionError when the connection ends before."""
        while (found := self._decoder.next_frame()) is None:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the connection ended instead of a frame")
            self._decoder.feed(data)
        return decode_command(found)

    async def reply(self) -> RemotingCommand:
        """The next reply; requests of the broker before it are skipped. Raises as `read`."""
        while not (command := await self.read()).is_reply:
            pass
        return command

    async def ask(self, data: bytes) -> RemotingCommand:
        """Send, and the next reply. Raises as `read`."""
        await self.send(data)
        return await self.reply()

    async def outcome(self, data: bytes) -> str:
        """The next reply in a few words, or CLOSED."""
        try:
            return outcome_of(await self.ask(data))
        except ConnectionError:
            return CLOSED

    async def ask_all(self, requests: Iterable[bytes], window: int = 64) -> dict[str, int]:
        """Send with up to `window` requests in flight. Returns the number of each response code, and of CLOSED."""
        outcomes: Counter[str] = Counter()
        waiting = 0
        try:
            for request in requests:
                if not await self.send(request):
                    break
                waiting += 1
                if waiting >= window:
                    waiting -= 1
                    await self._count(outcomes)
            for _ in range(waiting):
                await self._count(outcomes)
        except ConnectionError:
            outcomes[CLOSED] += 1
        return dict(outcomes)

    async def _count(self, outcomes: Counter[str]) -> None:
        outcomes[f"code {int((await self.reply()).code)}"] += 1

    async def is_refused(self, data: bytes) -> bool:
        """Whether the connection ends after `data`, without a word."""
        self.write(data)
        return await self.is_closed()

    async def is_closed(self) -> bool:
        """Whether the connection ends now, without a word."""
        try:
            return await self._reader.read(_READ_BYTES) == b""
        except ConnectionError:
            return True

    def abort(self) -> None:
        self._writer.transport.abort()
