"""The calls of the control port, by name: arguments, actions and results (docs/testing.md)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from lockstep.broker.cannot_listen import CannotListen
from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.protocol.bodies.attributes import MESSAGE_TYPES, MIXED
from lockstep.protocol.bodies.codec import as_list, take
from lockstep.protocol.bodies.rows import ROWS_A_STEP
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.errors import BodyError, LocalProtocolError
from lockstep.protocol.names import check_group
from lockstep.remoting.host.manual_clock import HeldPort, ManualClockRuntime
from lockstep.testing.control_port.codes import code_of
from lockstep.testing.control_port.faults import Code, Faults, PushedError

__all__ = ["ADVANCE_SECONDS_MAX", "CALLS", "CallError", "ControlledBroker"]

# Our limit: every timer of that time runs.
ADVANCE_SECONDS_MAX: Final = 31 * 24 * 3600
_RTT_MS_MAX: Final = 60_000
# Every request looks for its error among them.
_ERRORS_MAX: Final = 1000
# RocketMQ's binary header has 16 bits, with a sign.
_RESPONSE_CODE_MAX: Final = 32_767
_REMARK_MAX: Final = 1000
_HEARTBEAT_MS: Final = 30_000  # how often RocketMQ's clients send one (wire.md 9.2)
Arguments = dict[str, Any]


class CallError(Exception):
    """A call is invalid; the text says why."""


class ControlledBroker:
    """A broker with its faults and its clock, on which the calls act."""

    def __init__(self, server: BrokerServer, faults: Faults, runtime: ManualClockRuntime, config: BrokerConfig) -> None:
        self.server = server
        self.faults = faults
        self.runtime = runtime
        self.config = config
        self._held_ports: list[HeldPort] = []
        # Calls of several connections may meet.
        self._ports_change = asyncio.Lock()

    async def call(self, name: str, arguments: Arguments) -> Any:
        """Raises CallError."""
        if name not in CALLS:
            raise CallError(f"unknown call {name!r}; the calls are {', '.join(sorted(CALLS))}")
        function, known = CALLS[name]
        if unknown := sorted(arguments.keys() - known):
            raise CallError(f"{name} takes {', '.join(sorted(known)) or 'nothing'}, not {', '.join(unknown)}")
        try:
            return await function(self, arguments)
        except (BodyError, LocalProtocolError, CannotListen, ValueError) as error:
            raise CallError(str(error)) from None

    async def close_ports(self) -> None:
        """Stop listening, and hold the ports, so that no other process takes them."""
        async with self._ports_change:
            ports = await self.server.close_ports()
            for port in ports if not self._held_ports else ():
                try:
                    self._held_ports.append(HeldPort(self.config.host, port))
                except OSError:
                    # Another process has it already; `reopen_ports` reports that.
                    pass

    async def reopen_ports(self) -> None:
        """Raises CannotListen."""
        async with self._ports_change:
            try:
                await self.server.reopen_ports()
            finally:
                for held in self._held_ports:
                    held.close()
                self._held_ports.clear()

    def advance(self, delta_ms: int, *, heartbeats: bool) -> None:
        """Move the clock forward. With `heartbeats`, connected clients count as alive every 30 s of that time."""
        while heartbeats and delta_ms > _HEARTBEAT_MS:
            self.runtime.advance(_HEARTBEAT_MS)
            self.server.refresh_heartbeats(self.runtime.now_ms())
            delta_ms -= _HEARTBEAT_MS
        self.runtime.advance(delta_ms)
        if heartbeats:
            self.server.refresh_heartbeats(self.runtime.now_ms())


def _codes(arguments: Arguments) -> tuple[Code, ...]:
    given = arguments.get("codes", [])
    codes = [given] if isinstance(given, int | str) else as_list(given, "codes")
    if not all(isinstance(code, int | str) for code in codes):
        raise BodyError("codes must be request codes or their names, or names of gRPC calls")
    return tuple(code_of(code) for code in codes)


async def _status(broker: ControlledBroker, _: Arguments) -> Any:
    return {
        "brokerName": broker.config.broker_name,
        "lockMaxLiveTimeMs": broker.config.lock_max_live_time_ms,
        "nowMs": broker.runtime.now_ms(),
        "advancedMs": broker.runtime.advanced_ms,
        "lastSerial": broker.faults.last_serial,
        "rttMs": broker.faults.rtt_ms,
        "errorsWaiting": sum(error.times for error in broker.faults.errors),
    }


async def _requests(broker: ControlledBroker, arguments: Arguments) -> Any:
    arrivals = broker.faults.arrivals(take(arguments, "after", int, 0), _codes(arguments))
    rows = []
    for number, arrival in enumerate(arrivals):
        rows.append(arrival.to_wire())
        if number % ROWS_A_STEP == 0:
            await asyncio.sleep(0)
    return rows


async def _push_error(broker: ControlledBroker, arguments: Arguments) -> Any:
    codes, times = _codes(arguments), take(arguments, "times", int, 1)
    if not codes or times < 1:
        raise BodyError("an error needs at least one request code in codes, and times of at least 1")
    if len(broker.faults.errors) >= _ERRORS_MAX:
        raise BodyError(f"{_ERRORS_MAX} errors wait already; `reset` removes them")
    error = PushedError(codes, _response_code(arguments.get("responseCode"), codes), times=times)
    error.remark = take(arguments, "remark", str, error.remark)
    if len(error.remark) > _REMARK_MAX:
        raise BodyError(f"remark must have at most {_REMARK_MAX} characters")
    error.drop_connection = take(arguments, "dropConnection", bool, False)
    error.execute_first = take(arguments, "executeFirst", bool, False)
    error.go_away = take(arguments, "goAway", bool, False)
    if error.go_away and not all(isinstance(code, str) for code in codes):
        raise BodyError("goAway is of HTTP/2: it needs names of gRPC calls")
    broker.faults.errors.append(error)
    return None


def _response_code(wanted: object, codes: tuple[Code, ...]) -> int | None:
    if wanted is None:
        return None
    if isinstance(wanted, bool) or not isinstance(wanted, int | str):
        raise BodyError("responseCode must be a number or a name")
    if all(isinstance(code, str) for code in codes):
        from lockstep.testing.control_port.grpc_faults import response_code_of  # few tests need it

        return response_code_of(wanted)
    if any(isinstance(code, str) for code in codes):
        raise BodyError("requests and gRPC calls have other response codes: push an error for each")
    if isinstance(wanted, str):
        if wanted not in ResponseCode.__members__:
            raise BodyError(f"unknown response {wanted!r}; use a name of RocketMQ, such as 'SYSTEM_BUSY'")
        wanted = int(ResponseCode[wanted])
    if not 0 <= wanted <= _RESPONSE_CODE_MAX:
        raise BodyError(f"responseCode must be 0 to {_RESPONSE_CODE_MAX}, not {wanted}")
    return wanted


async def _set_rtt(broker: ControlledBroker, arguments: Arguments) -> Any:
    rtt_ms = take(arguments, "ms", int)
    if not 0 <= rtt_ms <= _RTT_MS_MAX:
        raise BodyError(f"ms must be 0 to {_RTT_MS_MAX}")
    broker.faults.rtt_ms = rtt_ms


async def _down(broker: ControlledBroker, _: Arguments) -> Any:
    await broker.close_ports()


async def _up(broker: ControlledBroker, _: Arguments) -> Any:
    await broker.reopen_ports()


async def _advance(broker: ControlledBroker, arguments: Arguments) -> Any:
    seconds = arguments.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= ADVANCE_SECONDS_MAX:
        raise BodyError(f"seconds must be a number from 0 to {ADVANCE_SECONDS_MAX}")
    broker.advance(round(seconds * 1000), heartbeats=take(arguments, "heartbeats", bool, False))
    return broker.runtime.now_ms()


async def _create_topic(broker: ControlledBroker, arguments: Arguments) -> Any:
    queues, message_type = take(arguments, "queues", int, 4), take(arguments, "messageType", str, MIXED)
    if queues < 1:
        raise BodyError("queues must be at least 1")
    if message_type not in (MIXED, *MESSAGE_TYPES):
        raise BodyError(f"messageType must be one of {', '.join((MIXED, *MESSAGE_TYPES))}")
    if broker.server.broker is None:
        raise BodyError("a name server without a broker has no topics")
    broker.server.create_topic(take(arguments, "topic", str), queues, message_type)


async def _create_group(broker: ControlledBroker, arguments: Arguments) -> Any:
    if broker.server.broker is None:
        raise BodyError("a name server without a broker has no groups")
    group, retries = take(arguments, "group", str), take(arguments, "retries", int, 16)
    check_group(group)
    fifo = take(arguments, "fifo", bool, False)
    config = SubscriptionGroupConfig(group, retry_max_times=retries, consume_message_orderly=fifo)
    broker.server.broker.catalog.groups.put(config, broker.runtime.now_ms())


async def _locks(broker: ControlledBroker, arguments: Arguments) -> Any:
    if broker.server.broker is None:
        raise BodyError("a name server without a broker has no locks")
    group = take(arguments, "group", str, "") or None
    return [row.to_wire() for row in broker.server.broker.ownership.table.rows(broker.runtime.now_ms(), group)]


async def _reset(broker: ControlledBroker, _: Arguments) -> Any:
    broker.faults.reset()
    await broker.reopen_ports()
    return await _status(broker, {})


_Call = Callable[[ControlledBroker, Arguments], Awaitable[Any]]
CALLS: Final[Mapping[str, tuple[_Call, frozenset[str]]]] = {
    "status": (_status, frozenset()),
    "requests": (_requests, frozenset({"after", "codes"})),
    "push_error": (
        _push_error,
        frozenset({"codes", "responseCode", "remark", "times", "dropConnection", "executeFirst", "goAway"}),
    ),
    "set_rtt": (_set_rtt, frozenset({"ms"})),
    "down": (_down, frozenset()),
    "up": (_up, frozenset()),
    "advance": (_advance, frozenset({"seconds", "heartbeats"})),
    "create_topic": (_create_topic, frozenset({"topic", "queues", "messageType"})),
    "create_group": (_create_group, frozenset({"group", "fifo", "retries"})),
    "locks": (_locks, frozenset({"group"})),
    "reset": (_reset, frozenset()),
}
