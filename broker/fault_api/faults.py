"""What a test asks of its broker: what arrived, and how the next requests are to fail.

Nothing here is part of a broker that is not under control; `control_server` ties it to one.
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

__all__ = ["REQUESTS_KEPT_MAX", "Arrival", "Control", "PushedError", "code_of"]

REQUESTS_KEPT_MAX: Final = 10_000
_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in RequestCode}


def code_of(wanted: int | str) -> int:
    """41 and "LOCK_BATCH_MQ" are 41. Raises ValueError for a name that no request has."""
    if isinstance(wanted, int):
        return wanted
    if wanted in RequestCode.__members__:
        return int(RequestCode[wanted])
    raise ValueError(f"no request is called {wanted!r}; names are those of RocketMQ's RequestCode, as 'PULL_MESSAGE'")


class Arrival(NamedTuple):
    """One request as it came. `at_ms` is the broker's clock, which may be ahead of the wall's."""

    serial: int
    at_ms: int
    peer: str
    code: int
    opaque: int
    one_way: bool
    body_bytes: int
    ext_fields: Mapping[str, Any] | None
    positional: list[Any] | None  # a MSGPACK header's values

    def to_wire(self) -> dict[str, Any]:
        """`extFields` are what was sent; `header` is the same typed and by the names of ours, where it can be read."""
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
                pass  # the handler has refused it too
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
    """What the next `times` requests with one of `codes` are answered.

    `carry_out`: the request is handled first, and then its answer is replaced: the sender cannot know that it was.
    """

    codes: tuple[int, ...]
    response_code: int = ResponseCode.SYSTEM_ERROR
    remark: str = "an error that the test asked for"
    times: int = 1
    drop_connection: bool = False
    carry_out: bool = False


class Control:
    """`rtt_ms`: how much later than they came requests are handled."""

    def __init__(self) -> None:
        self.rtt_ms = 0
        self.errors: list[PushedError] = []
        self._arrivals: deque[Arrival] = deque(maxlen=REQUESTS_KEPT_MAX)
        self._serial = 0

    @property
    def last_serial(self) -> int:
        """Of the latest request; those of a test are the ones after it."""
        return self._serial

    def on_request(self, peer: str, command: RemotingCommand, now_ms: int) -> PushedError | None:
        """Note a request. Returns the error that it is to be answered, when one waits for it."""
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
        """Those after that serial, of these codes or of all, oldest first.

        Raises ValueError when some of them have been forgotten: at most REQUESTS_KEPT_MAX are kept.
        """
        wanted = frozenset(codes)
        if self._serial - after > len(self._arrivals):
            count = self._serial - after
            text = f"{count} requests came after {after}, and only the last {REQUESTS_KEPT_MAX} are kept"
            raise ValueError(f"{text}: ask sooner, for those after the last one that you have seen")
        return [
            arrival for arrival in self._arrivals if arrival.serial > after and (not wanted or arrival.code in wanted)
        ]

    def reset(self) -> None:
        """As at start, but for what arrived."""
        self.rtt_ms = 0
        self.errors.clear()
