"""One connection on a plain socket: requests, their replies in any order, and a deadline for each.

The first request offers MSGPACK (docs/architecture.md); only a peer that agreed gets it.
"""

import socket
import time
from typing import Final

from lockstep.protocol.codes import SerializeType, request_name
from lockstep.protocol.command import SERIALIZE_FIELD, RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.frame import FrameDecoder
from lockstep.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from lockstep.remoting.settings import SettingError, parse_address

__all__ = ["Wire"]

_READ_BYTES: Final = 1 << 20
_OPAQUE_MASK: Final = 0x7FFFFFFF


class Wire:
    """A connection for one thread; `address` is "host:port". After any RemotingError it is closed: make another one."""

    def __init__(self, address: str, timeout_ms: int, serialize_type: SerializeType = SerializeType.MSGPACK) -> None:
        """Raises ConnectFailed."""
        self.address = address
        self.agreed = False
        self._offers = serialize_type is SerializeType.MSGPACK
        self._serialize_type = SerializeType.JSON if self._offers else serialize_type
        self._offered_opaque = -1
        self._opaque = 0
        self._decoder = FrameDecoder()
        self._names: dict[int, str] = {}  # requests without a reply yet
        self._replies: dict[int, RemotingCommand] = {}
        self.closed = False
        try:
            host, port = parse_address(address)
            self._socket = socket.create_connection((host, port), timeout_ms / 1000)
        except TimeoutError:
            raise ConnectFailed(address, f"no answer within {timeout_ms} ms") from None
        except (OSError, SettingError) as error:
            raise ConnectFailed(address, str(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def start(self, command: RemotingCommand, timeout_ms: int) -> int:
        """Send a request. Returns its number for `finish`.

        Raises ConnectionLost, RequestTimeout when the peer does not read.

        Before the peer has agreed to an encoding only one request is in flight: `finish` it first.
        """
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.opaque = self._opaque
        if self._offers and self._offered_opaque < 0:
            command.ext_fields = {**(command.ext_fields or {}), SERIALIZE_FIELD: SerializeType.MSGPACK.name}
            self._offered_opaque = command.opaque
        command.serialize_type = self._serialize_type
        data = encode_command(command) + command.body
        name = request_name(command.code)
        try:
            self._socket.settimeout(timeout_ms / 1000)
            self._socket.sendall(data)
        except TimeoutError:
            self.close()
            raise RequestTimeout(self.address, name, timeout_ms) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(self.address, str(error)) from None
        self._names[command.opaque] = name
        return command.opaque

    def finish(self, number: int, timeout_ms: int) -> RemotingCommand:
        """The reply to a request, with any code. Raises ConnectionLost, RequestTimeout."""
        replies = self._replies
        deadline = time.monotonic() + timeout_ms / 1000
        while number not in replies:
            self._read(number, deadline, timeout_ms)
        self._names.pop(number, None)
        return replies.pop(number)

    def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        return self.finish(self.start(command, timeout_ms), timeout_ms)

    def _read(self, number: int, deadline: float, timeout_ms: int) -> None:
        try:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            self.close()
            raise RequestTimeout(self.address, self._names.get(number, "a request"), timeout_ms) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(self.address, str(error)) from None
        if not data:
            self.close()
            raise ConnectionLost(self.address, "the peer closed it")
        try:
            self._decoder.feed(data)
            for frame in self._decoder.frames():
                self._take(decode_command(frame))
        except RemoteProtocolError as error:
            self.close()
            raise ConnectionLost(self.address, f"what came is no frame: {error}") from None

    def _take(self, command: RemotingCommand) -> None:
        if not command.is_reply or command.opaque not in self._names:
            return  # brokers send requests only to clients that registered
        if command.opaque == self._offered_opaque and SERIALIZE_FIELD in (command.ext_fields or {}):
            self.agreed = True
            self._serialize_type = SerializeType.MSGPACK
        self._replies[command.opaque] = command
