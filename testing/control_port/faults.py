"""Faults for tests: a record of the requests that arrived, and errors for the next ones.

Only a broker with a control port uses this; `server.py` beside it connects the two.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import REQUEST_HEADERS
from lockstep.protocol.headers.spec import spec_of

__all__ = ["REQUESTS_KEPT_MAX", "Arrival", "Faults", "PushedError", "code_of"]

REQUESTS_KEPT_MAX: Final = 10_000
_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in RequestCode}


def code_of(wanted: int | str) -> int:
    """The request code of 41 or "LOCK_BATCH_MQ". Raises ValueError for an unknown name."""
    if isinstance(wanted, int):
        return wanted
    if wanted in RequestCode.__members__:
        return int(RequestCode[wanted])
    raise ValueError(f"unknown request {wanted!r}; use a name of RocketMQ's RequestCode, such as 'PULL_MESSAGE'")


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

    `execute_first`: handle the request, and then replace its answer: the sender does not learn that it was handled.
    """

    codes: tuple[int, ...]
    response_code: int = ResponseCode.SYSTEM_ERROR
    remark: str = "an error of the test"
    times: int = 1
    drop_connection: bool = False
    execute_first: bool = False


class Faults:
    """`rtt_ms`: the delay from the arrival of a request to its handling."""

    def __init__(self) -> None:
        self.rtt_ms = 0
        self.errors: list[PushedError] = []
        self._arrivals: deque[Arrival] = deque(maxlen=REQUESTS_KEPT_MAX)
        self._serial = 0

    @property
    def last_serial(self) -> int:
        """The serial number of the latest request."""
        return self._serial

    def on_request(self, peer: str, command: RemotingCommand, now_ms: int) -> PushedError | None:
        """Record a request. Returns the error that must answer it, if any."""
        self._serial += 1
        self._arrivals.append(
            Arrival(
                self._serial,
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
        for error in self.errors:
            if command.code in error.codes:
                error.times -= 1
                if not error.times:
                    self.errors.remove(error)
                return error
        return None

    def arrivals(self, after: int, codes: Iterable[int] = ()) -> list[Arrival]:
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
