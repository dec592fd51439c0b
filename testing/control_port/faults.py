"""Faults for tests: a record of the requests that arrived, and errors for the next ones.

Only a broker with a control port uses this; `server.py` beside it connects the two.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import REQUEST_HEADERS
from lockstep.protocol.headers.spec import spec_of

__all__ = ["REQUESTS_KEPT_MAX", "Arrival", "Arrived", "Code", "Faults", "PushedError"]

REQUESTS_KEPT_MAX: Final = 10_000
_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in RequestCode}


# A request code, or the name of a gRPC call.
Code = int | str


class Arrived(Protocol):
    """Something that arrived, of either protocol."""

    @property
    def serial(self) -> int: ...
    @property
    def code(self) -> Code: ...
    def to_wire(self) -> dict[str, Any]:
        """As JSON."""


class Arrival(NamedTuple):
    """One request that arrived. `at_ms` is the time of the broker's clock, which tests move."""

    serial: int
    at_ms: int
    peer: str
    code: int
    opaque: int
    one_way: bool
    body_bytes: int
    ext_fields: Mapping[str, Any] | None
    positional: list[Any] | None  # the values of a MSGPACK header

    def to_wire(self) -> dict[str, Any]:
        """As JSON: `extFields` as they were sent; `header` has typed values under Lockstep's names, if it is valid."""
        header_class = REQUEST_HEADERS.get(self.code)
        ext_fields = dict(self.ext_fields or {})
        header: dict[str, Any] = {}
        if header_class is not None:
            spec = spec_of(header_class)
            if self.positional is not None:
                named = zip(spec.fields, self.positional, strict=False)
                ext_fields |= {field.wire_name: value for field, value in named if value is not None}
            try:
                values = spec.from_ext_fields(ext_fields)
            except HeaderError:
                # The handler has refused the request too.
                pass
            else:
                header = {field.name: value for field, value in zip(spec.fields, values, strict=True)}
        return {
            "serial": self.serial,
            "atMs": self.at_ms,
            "peer": self.peer,
            "code": self.code,
            "name": _NAMES.get(self.code, ""),
            "opaque": self.opaque,
            "oneWay": self.one_way,
            "bodyBytes": self.body_bytes,
            "extFields": ext_fields,
            "header": header,
        }


@dataclass(slots=True)
class PushedError:
    """The answer to the next `times` requests with one of `codes`.

    Args:
        response_code: Of a gRPC call, one of apache.rocketmq.v2's Code, or below 20 gRPC's own status. None: that of
            any error.
        execute_first: Handle the request, and then replace its answer: the sender does not learn that it was handled.
        go_away: The connection of HTTP/2 ends in order: its calls end as UNAVAILABLE, and it says GOAWAY.
    """

    codes: tuple[Code, ...]
    response_code: int | None = None
    remark: str = "an error of the test"
    times: int = 1
    drop_connection: bool = False
    execute_first: bool = False
    go_away: bool = False


class Faults:
    """`rtt_ms`: the delay from the arrival of a request to its handling."""

    def __init__(self) -> None:
        self.rtt_ms = 0
        self.errors: list[PushedError] = []
        self._arrivals: deque[Arrived] = deque(maxlen=REQUESTS_KEPT_MAX)
        self._serial = 0

    @property
    def last_serial(self) -> int:
        """The serial number of the latest request."""
        return self._serial

    def on_request(self, peer: str, command: RemotingCommand, now_ms: int) -> PushedError | None:
        """Record a request. Returns the error that must answer it, if any."""
        return self.on_arrival(
            Arrival(
                self._serial + 1,
                now_ms,
                peer,
                command.code,
                command.opaque,
                command.is_one_way,
                len(command.body),
                command.ext_fields,
                command.positional,
            )
        )

    def on_arrival(self, arrival: Arrived) -> PushedError | None:
        """As `on_request`. The serial is one above `last_serial`."""
        self._serial += 1
        self._arrivals.append(arrival)
        for error in self.errors:
            if arrival.code in error.codes:
                error.times -= 1
                if not error.times:
                    self.errors.remove(error)
                return error
        return None

    def arrivals(self, after: int, codes: Iterable[Code] = ()) -> list[Arrived]:
        """Requests after serial number `after`, oldest first.

        Args:
            codes: Only requests with these codes; empty: all.

        Raises:
            ValueError: Some of them were dropped: at most REQUESTS_KEPT_MAX are kept.
        """
        wanted = frozenset(codes)
        if self._serial - after > len(self._arrivals):
            count = self._serial - after
            text = f"{count} requests came after {after}, but only the last {REQUESTS_KEPT_MAX} are kept"
            raise ValueError(f"{text}: ask more often, with the serial number of the last request that you have seen")
        return [
            arrival for arrival in self._arrivals if arrival.serial > after and (not wanted or arrival.code in wanted)
        ]

    def reset(self) -> None:
        """Remove all faults; the record of requests stays."""
        self.rtt_ms = 0
        self.errors.clear()
