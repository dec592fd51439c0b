"""The control port of a broker, for tests: one JSON object a line, answered in order, on the loopback address only.

`{"call": "advance", "seconds": 61}` is answered `{"ok": true, "result": ...}` or `{"ok": false, "error": "..."}`.
Any other line closes the connection. Other connections have their turn after each line. A peer that does not read its
answers is not read from.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from lockstep.broker.cannot_listen import CannotListen
from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.protocol.bodies.rows import ROWS_A_STEP
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.remoting.host.manual_clock import ManualClockRuntime
from lockstep.remoting.host.runtime import Listening, ProtocolFactory, Runtime
from lockstep.remoting.logs import EventLog
from lockstep.testing.control_port.calls import CallError, ControlledBroker
from lockstep.testing.control_port.faults import Faults

if TYPE_CHECKING:
    from lockstep.broker.fronts.grpc.call import OnCall

__all__ = ["ControlServer", "FaultInterceptor", "make_controlled"]

_HOST: Final = "127.0.0.1"
_LINE_BYTES_MAX: Final = 1024 * 1024
_CONNECTIONS_MAX: Final = 64


class FaultInterceptor:
    """The Interceptor and CallInterceptor of a BrokerServer with faults.

    `runtime` is the one whose clock tests do not move: a round trip takes real time.
    """

    def __init__(self, faults: Faults, runtime: Runtime) -> None:
        self._faults = faults
        self._runtime = runtime

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def intercepted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            error = self._faults.on_request(endpoint.address, command, endpoint.read_at_ms)
            if error is None or error.execute_first:
                reply = on_request(endpoint, command)
            if error is None:
                return reply
            if error.drop_connection:
                endpoint.close(error.remark)
                return None
            code = ResponseCode.SYSTEM_ERROR if error.response_code is None else error.response_code
            return command.reply(code, remark=error.remark)

        return intercepted

    def intercept_calls(self, on_call: "OnCall") -> "OnCall":
        from lockstep.testing.control_port.grpc_faults import with_faults  # with the first client of gRPC

        return with_faults(on_call, self._faults)

    def delay(self, factory: ProtocolFactory) -> ProtocolFactory:
        return lambda: _DelayedProtocol(factory(), self._faults, self._runtime)


class _DelayedProtocol(asyncio.Protocol):
    """Passes on arrived bytes in order, each piece `rtt_ms` after its arrival."""

    def __init__(self, inner: asyncio.Protocol, faults: Faults, runtime: Runtime) -> None:
        self._inner = inner
        self._faults = faults
        self._runtime = runtime
        self._waiting: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._faults.rtt_ms or self._waiting:
            self._waiting.append(data)
            self._runtime.call_later_ms(self._faults.rtt_ms, self._deliver)
        else:
            self._inner.data_received(data)

    def _deliver(self) -> None:
        if self._waiting:
            self._inner.data_received(self._waiting.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        while self._waiting:
            # Bytes that were sent before the end arrive before it.
            self._deliver()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _ControlConnection(asyncio.Protocol):
    def __init__(self, broker: ControlledBroker, runtime: Runtime, connections: dict[Any, None]) -> None:
        self._broker = broker
        self._runtime = runtime
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._lines: deque[bytes] = deque()
        self._working = False
        self._unread = False  # the peer does not read its answers

    @property
    def is_idle(self) -> bool:
        """Whether no line waits for its answer."""
        return not self._lines and not self._working

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._connections) >= _CONNECTIONS_MAX:
            self.close()
        else:
            self._connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.pop(self, None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._lines.extend(lines)
        if len(self._buffer) > _LINE_BYTES_MAX:
            self.close()
        else:
            self._go_on()

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        self._go_on()

    def _go_on(self) -> None:
        """Work on the lines that have arrived, and then read on; no others are read meanwhile."""
        transport = self._transport
        if self._working or self._unread or transport is None or transport.is_closing():
            return
        if self._lines:
            self._working = True
            transport.pause_reading()
            self._runtime.create_task(self._work(), name="control")
        else:
            transport.resume_reading()

    async def _work(self) -> None:
        try:
            while self._lines and not self._unread and self._transport is not None:
                await self._answer(self._lines.popleft())
                await asyncio.sleep(0)
        finally:
            self._working = False
            if not self._lines:
                self._go_on()

    async def _answer(self, line: bytes) -> None:
        try:
            arguments = json.loads(line)
        except (ValueError, RecursionError):
            arguments = None
        name = arguments.pop("call", None) if isinstance(arguments, dict) else None
        if not isinstance(name, str):
            self._lines.clear()
            self.close()
            return
        try:
            result = await self._broker.call(name, arguments)
        except CallError as error:
            self._write(_encode({"ok": False, "error": str(error)}) + b"\n")
            return
        if not isinstance(result, list) or len(result) <= ROWS_A_STEP:
            self._write(_encode({"ok": True, "result": result}) + b"\n")
            return
        self._write(b'{"ok": true, "result": [')  # as long as the broker's tables
        for start in range(0, len(result), ROWS_A_STEP):
            rows = b", ".join(map(_encode, result[start : start + ROWS_A_STEP]))
            self._write((b", " if start else b"") + rows)
            await asyncio.sleep(0)
        self._write(b"]}\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _encode(value: object) -> bytes:
    return json.dumps(value, default=str).encode()


class ControlServer:
    def __init__(self, broker: ControlledBroker, runtime: Runtime) -> None:
        self.broker = broker
        self._runtime = runtime
        self._connections: dict[_ControlConnection, None] = {}
        self._listening: Listening | None = None

    @property
    def address(self) -> str:
        assert self._listening is not None
        return f"{_HOST}:{self._listening.port}"

    @property
    def is_idle(self) -> bool:
        """Whether all calls of open connections are answered."""
        return all(connection.is_idle for connection in self._connections)

    async def start(self, port: int) -> None:
        """Raises CannotListen."""

        def new_connection() -> _ControlConnection:
            return _ControlConnection(self.broker, self._runtime, self._connections)

        try:
            self._listening = await self._runtime.create_server(new_connection, _HOST, port)
        except OSError as error:
            raise CannotListen("control port", "--control-port", _HOST, port, error) from None

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.close()


def make_controlled(
    config: BrokerConfig, runtime: Runtime, log: EventLog, on_progress: Callable[[str], None] = lambda _: None
) -> tuple[BrokerServer, ControlServer]:
    """A broker with a movable clock, and the server of its control port. Start them in this order.

    Each send and each commit is a request of its own, as from RocketMQ's clients: tests count them and push errors.
    """
    faults, movable = Faults(), ManualClockRuntime(runtime)
    interceptor = FaultInterceptor(faults, runtime)
    server = BrokerServer(config, movable, log, interceptor, on_progress, together=False, call_interceptor=interceptor)
    return server, ControlServer(ControlledBroker(server, faults, movable, config), runtime)
