"""A peer that sends given bytes on its own sockets and reads frames back."""

import asyncio
import json
import struct
from types import TracebackType
from typing import Any, Self

import msgpack

from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.frame import FrameDecoder

__all__ = ["RawPeer", "binary_request", "frame", "json_request", "msgpack_request"]

READ_S = 90.0  # of a busy machine
LENGTHS = struct.Struct(">II")


def frame(header_type: int, header: bytes, body: bytes = b"", *, header_bytes: int | None = None) -> bytes:
    """A frame, with a header length that lies if `header_bytes` is given."""
    word = header_type << 24 | (len(header) if header_bytes is None else header_bytes)
    return LENGTHS.pack(4 + len(header) + len(body), word) + header + body


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


class RawPeer:
    """`async with RawPeer(port) as peer:`; the connection is aborted at the end. `host`: its own address."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._port = port
        self._host = host
        self._decoder = FrameDecoder()

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._host, 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def write_eof(self) -> None:
        self._writer.write_eof()

    async def read(self) -> RemotingCommand:
        """The next frame that comes. Fails when the connection ends or nothing comes in time."""
        async with asyncio.timeout(READ_S):
            while (found := self._decoder.next_frame()) is None:
                data = await self._reader.read(1 << 18)
                assert data, "the connection ended instead of an answer"
                self._decoder.feed(data)
        return decode_command(found)

    async def ask(self, data: bytes) -> RemotingCommand:
        """The next reply; what is pushed in between is passed over."""
        self.write(data)
        while not (command := await self.read()).is_reply:
            pass
        return command

    async def is_refused(self, data: bytes) -> bool:
        """Whether the connection ends after `data`, without a word."""
        self.write(data)
        return await self.is_closed()

    async def is_closed(self) -> bool:
        """Whether the connection ends now, without a word."""
        async with asyncio.timeout(READ_S):
            try:
                return await self._reader.read(1 << 18) == b""
            except ConnectionError:
                return True
