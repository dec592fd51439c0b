"""The control port of a broker: JSON objects, one a line, answered in order; on the loopback alone.

`{"call": "advance", "seconds": 61}` is answered `{"ok": true, "result": ...}` or `{"ok": false, "error": "..."}`.
What is no such line ends its connection.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from lockstep.broker.config import BrokerConfig
from lockstep.broker.fault_api.calls import CallError, ControlledBroker
from lockstep.broker.fault_api.faults import Control
from lockstep.broker.server import BrokerServer, CannotListen
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.endpoint import Endpoint, RequestHandler
from lockstep.remoting.logs import EventLog
from lockstep.remoting.manual_clock import MovableRuntime
from lockstep.remoting.runtime import Listening, ProtocolFactory, Runtime

__all__ = ["ControlServer", "ControlledGate", "make_controlled"]

_HOST: Final = "127.0.0.1"
_LINE_BYTES_MAX: Final = 1024 * 1024


class ControlledGate:
    """Stands before the ports of a BrokerServer. `runtime` is the real one: a round trip lasts its time."""

    def __init__(self, control: Control, runtime: Runtime) -> None:
        self._control = control
        self._runtime = runtime

    def guard(self, on_request: RequestHandler) -> RequestHandler:
        def guarded(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            error = self._control.on_request(endpoint.address, command, endpoint.read_at_ms)
            if error is None or error.carry_out:
                reply = on_request(endpoint, command)
            if error is None:
                return reply
            if error.drop_connection:
                endpoint.close(error.remark)
                return None
            return command.reply(error.response_code, remark=error.remark)

        return guarded

    def slow(self, factory: Callable[[], Endpoint]) -> ProtocolFactory:
        return lambda: _SlowProtocol(factory(), self._control, self._runtime)


class _SlowProtocol(asyncio.Protocol):
    """Hands on what arrives in its order, each piece `rtt_ms` after it came."""

    def __init__(self, inner: Endpoint, control: Control, runtime: Runtime) -> None:
        self._inner = inner
        self._control = control
        self._runtime = runtime
        self._waiting: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._control.rtt_ms or self._waiting:
            self._waiting.append(data)
            self._runtime.call_later_ms(self._control.rtt_ms, self._deliver)
        else:
            self._inner.data_received(data)

    def _deliver(self) -> None:
        if self._waiting:
            self._inner.data_received(self._waiting.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        while self._waiting:  # what was sent before the end arrives before it
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
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
        elif self._lines and not self._working:
            self._working = True
            self._runtime.create_task(self._work(), name="control")

    async def _work(self) -> None:
        try:
            while self._lines and self._transport is not None:
                answer = await self._answer(self._lines.popleft())
                if answer is None:
                    self.close()
                    break
                if self._transport is not None:
                    self._transport.write(json.dumps(answer, default=str).encode() + b"\n")
        finally:
            self._working = False

    async def _answer(self, line: bytes) -> dict[str, Any] | None:
        try:
            arguments = json.loads(line)
        except (ValueError, RecursionError):
            return None
        name = arguments.pop("call", None) if isinstance(arguments, dict) else None
        if not isinstance(name, str):
            return None
        try:
            return {"ok": True, "result": await self._broker.call(name, arguments)}
        except CallError as error:
            return {"ok": False, "error": str(error)}


class ControlServer:
    def __init__(self, broker: ControlledBroker, runtime: Runtime) -> None:
        self._broker = broker
        self._runtime = runtime
        self._connections: dict[_ControlConnection, None] = {}
        self._listening: Listening | None = None

    @property
    def address(self) -> str:
        assert self._listening is not None
        return f"{_HOST}:{self._listening.port}"

    async def start(self, port: int) -> None:
        """Raises CannotListen."""

        def new_connection() -> _ControlConnection:
            return _ControlConnection(self._broker, self._runtime, self._connections)

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
    config: BrokerConfig, runtime: Runtime, log: EventLog, tell: Callable[[str], None] = lambda _: None
) -> tuple[BrokerServer, ControlServer]:
    """A broker whose clock can be moved, and the server of its control port; start them in this order."""
    control, movable = Control(), MovableRuntime(runtime)
    server = BrokerServer(config, movable, log, ControlledGate(control, runtime), tell)
    return server, ControlServer(ControlledBroker(server, control, movable, config), runtime)
