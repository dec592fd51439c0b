"""An endpoint for a thread without a loop: requests, their replies in any order, and a deadline for each.

It moves bytes between a plain socket and a `RemotingConnection`, as `Endpoint` does on asyncio. It has no Runtime: a
thread that waits in a socket cannot be simulated.
"""

import secrets
import socket
import ssl
import time
from typing import Final

from lockstep.protocol.codes import SerializeType, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.connection import Ended, EndpointSettings, RemotingConnection
from lockstep.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from lockstep.remoting.settings import SettingError, parse_address
from lockstep.remoting.tls.session import ENDED_EARLY, reason_of

__all__ = ["BlockingEndpoint", "pause"]

_READ_BYTES: Final = 1 << 20
_NO_TIME_MS: Final = 0  # the deadlines are those of the socket
_NS_PER_MS: Final = 1_000_000
_SESSION_BYTES: Final = 12


class BlockingEndpoint:
    """A connection for one thread; `address` is "host:port". After any RemotingError it is closed: make another one."""

    def __init__(
        self,
        address: str,
        timeout_ms: int,
        serialize_type: SerializeType = SerializeType.MSGPACK,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises ConnectFailed. `credentials` sign the requests. `tls`: of a client; None: a plain connection."""
        self.address = address
        offer = serialize_type if serialize_type is SerializeType.MSGPACK else None
        settings = EndpointSettings(server=False, offer=offer, credentials=credentials)
        self._connection: RemotingConnection[int] = RemotingConnection(settings, secrets.token_hex(_SESSION_BYTES))
        if offer is None:
            self._connection.agreement.serialize_type = serialize_type
        self._number = 0
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
        if tls is not None:
            self._socket = _secured(self._socket, tls, host, address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.connected(address, _NO_TIME_MS)

    @property
    def agreed(self) -> bool:
        """The peer agreed on an encoding, so it is one of ours."""
        return self._connection.agreement.agreed

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def start(self, command: RemotingCommand, timeout_ms: int) -> int:
        """Send a request. Returns its number for `finish`.

        Raises ConnectionLost, RequestTimeout when the peer does not read.

        Until the first reply came, later requests go as JSON.
        """
        self._number = number = self._number + 1
        data = self._connection.request(command, timeout_ms, time.time_ns() // _NS_PER_MS, number)
        name = request_name(command.code)
        try:
            self._socket.settimeout(timeout_ms / 1000)
            self._socket.sendall(b"".join(data))
        except TimeoutError:
            self.close()
            raise RequestTimeout(self.address, name, timeout_ms) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(self.address, _why(error)) from None
        self._names[number] = name
        return number

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
            raise ConnectionLost(self.address, _why(error)) from None
        if not data:
            self.close()
            raise ConnectionLost(self.address, "the peer closed it")
        self._connection.receive(data, _NO_TIME_MS)
        try:
            for event in self._connection.events():
                # Brokers send requests only to clients that registered.
                if isinstance(event, Ended) and isinstance(event.outcome, RemotingCommand):
                    self._replies[event.waiter] = event.outcome
        except RemoteProtocolError as error:
            self.close()
            raise ConnectionLost(self.address, f"what came is no frame: {error}") from None


def pause(ms: int) -> None:
    """Let this thread wait, between two attempts."""
    time.sleep(ms / 1000)


def _secured(plain: socket.socket, tls: ssl.SSLContext, host: str, address: str) -> socket.socket:
    """The socket after a handshake, within its timeout; it is closed when that fails. Raises ConnectFailed."""
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except TimeoutError:
        reason = "the handshake takes too long"
    except (ssl.SSLEOFError, ConnectionError):
        reason = ENDED_EARLY
    except OSError as error:
        reason = _why(error)
    raise ConnectFailed(address, f"TLS: {reason}")


def _why(error: OSError) -> str:
    return reason_of(error) if isinstance(error, ssl.SSLError) else str(error)
