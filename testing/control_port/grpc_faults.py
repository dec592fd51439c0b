"""Faults in the calls of gRPC clients, as `faults.py` has them for requests. It needs the extra `grpc`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

from google.protobuf import json_format

from lockstep.broker.fronts.grpc.call import Call, OnCall, answer_with
from lockstep.broker.limits.connections import OpenConnection
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import GrpcStatus
from lockstep.testing.control_port.faults import Faults, PushedError

__all__ = ["CALLS", "CallArrival", "response_code_of", "with_faults"]

_REQUEST: Final = "Request"
_TELEMETRY: Final = "Telemetry"
CALLS: Final = frozenset({_TELEMETRY, *(name.removesuffix(_REQUEST) for name in dir(pb) if name.endswith(_REQUEST))})
"""The names of the calls."""

_STATUS_MAX: Final = max(GrpcStatus)


class CallArrival(NamedTuple):
    """A message of a client that arrived. `at_ms` is the time of the broker's clock, which tests move."""

    serial: int
    at_ms: int
    peer: str
    code: str
    metadata: Mapping[str, str]
    message: Any  # without the bodies; None: it could not be read
    message_bytes: int

    def to_wire(self) -> dict[str, Any]:
        """With the members of a request of RocketMQ 4: `extFields` are the metadata, `header` the message."""
        return {
            "serial": self.serial,
            "atMs": self.at_ms,
            "peer": self.peer,
            "code": 0,
            "name": self.code,
            "opaque": 0,
            "oneWay": False,
            "bodyBytes": self.message_bytes,
            "extFields": dict(self.metadata),
            "header": {} if self.message is None else _fields(self.message),
        }


def _fields(message: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", json_format.MessageToDict(message, preserving_proto_field_name=True))


def response_code_of(wanted: int | str) -> int:
    """Of a Code of apache.rocketmq.v2, or a status of gRPC, by name or number. Raises ValueError for another."""
    # Of a name that both have, NOT_FOUND, the Code. 0 is none: gRPC's OK is no answer without a message.
    named = {status.name: int(status) for status in GrpcStatus} | dict(pb.Code.items())
    number = named.get(wanted, 0) if isinstance(wanted, str) else wanted
    if number and number in named.values():
        return number
    text = "use a Code of apache.rocketmq.v2, such as 'TOO_MANY_REQUESTS', or a status of gRPC, such as 'UNAVAILABLE'"
    raise ValueError(f"unknown response {wanted!r} to a gRPC call; {text}")


def with_faults(on_call: OnCall, faults: Faults) -> OnCall:
    """The handler of calls that records them, and lets them fail."""

    def handle(call: Call, message: bytes, now_ms: int) -> None:
        error = faults.on_arrival(_arrival(faults.last_serial + 1, call, message, now_ms))
        if error is None:
            on_call(call, message, now_ms)
        elif error.execute_first:
            replaced = _Replaced(call, partial(_fail, call, error))
            on_call(replaced, message, now_ms)
            if call.method == _TELEMETRY:
                replaced.finish()  # it has no end of its own
        else:
            _fail(call, error)

    return handle


def _arrival(serial: int, call: Call, message: bytes, now_ms: int) -> CallArrival:
    try:
        read = getattr(pb, call.method + _REQUEST, pb.TelemetryCommand).FromString(message)
    except Exception:  # protobuf's errors are of several kinds; the front refuses the call
        read = None
    if isinstance(read, pb.SendMessageRequest):
        for one in read.messages:
            one.ClearField("body")  # 10,000 of them would be the memory of a machine
    return CallArrival(serial, now_ms, call.peer.address, call.method, call.metadata, read, len(message))


def _fail(call: Call, error: PushedError) -> None:
    if error.go_away:
        cast("OpenConnection", call.peer).close(error.remark)
    elif error.drop_connection:
        call.peer.abort(error.remark)
    elif error.response_code is not None and error.response_code <= _STATUS_MAX:
        call.finish(GrpcStatus(error.response_code), error.remark)
    else:
        answer = getattr(pb, f"{call.method}Response", pb.TelemetryCommand)()
        answer.status.code = pb.INTERNAL_SERVER_ERROR if error.response_code is None else error.response_code
        answer.status.message = error.remark
        answer_with(call, answer)


class _Replaced:
    """A call whose answer nobody gets: `then` is called in its place."""

    def __init__(self, call: Call, then: Callable[[], None]) -> None:
        self._call = call
        self._then: Callable[[], None] | None = then
        self.method = call.method
        self.metadata = call.metadata
        self.peer = call.peer
        self.received_ms = call.received_ms
        self.deadline_ms = call.deadline_ms
        self.code = 0
        self.on_end = call.on_end
        self.on_unsent = call.on_unsent

    @property
    def on_gone(self) -> Callable[[int], object]:
        return self._call.on_gone

    @on_gone.setter
    def on_gone(self, on_gone: Callable[[int], object]) -> None:
        self._call.on_gone = on_gone

    @property
    def is_open(self) -> bool:
        return self._then is not None and self._call.is_open

    def send(self, message: bytes) -> None: ...
    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        then, self._then = self._then, None
        if then is not None:
            then()
