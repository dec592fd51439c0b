"""Puts the clocks of several machines on one time axis: which records share a clock, and bounds of clock differences.

`mono_ns` counts from the boot of one machine. Records of version 2 name that clock with `machine` and `boot`. Older
records have only `host`, and two machines may have the same host name. So two stretches of records share a clock if
their differences of wall clock and monotonic clock agree. A new stretch begins when the monotonic clock goes back, or
when it moves away from the wall clock.

*Causes* bound the difference of two clocks: if one client read an offset that another client committed, the commit came
first. Each such pair is a difference constraint, and the longest path between two clocks is the bound. Where this bound
is wider, wall clocks are assumed to agree within `WALL_SKEW_MS`, unless causes contradict this.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from lockstep.order.reader import Record, TraceFile

__all__ = ["WALL_SKEW_MS", "Clocks", "Stretches", "Trace", "survey"]

WALL_SKEW_MS: Final = 1000
_JUMP_NS: Final = 1_000_000_000  # a larger jump since the last record means another clock
_SAME_CLOCK_NS: Final = 50_000_000
_DRIFT: Final = 0.0002  # allowed drift of a corrected wall clock against the monotonic clock
_SLACKS_NS: Final = (0, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
_TOLD_MAX: Final = 20
_BULK = (b'{"event":"handled",', b'{"event":"sent",')
_BEGIN: Final = b'{"event":'
_HEAD = re.compile(rb'"wall_ms":(\d+),"mono_ns":(\d+)(,.*?"client_id":)')


class Trace(Protocol):
    """The records of one process in the order of writing. It can be iterated more than once."""

    def __iter__(self) -> Iterator[Record]: ...


class _Identity(NamedTuple):
    host: Any
    machine: Any
    boot: Any


@dataclass(slots=True)
class _Stretch:
    """Consecutive records of one trace on one clock."""

    identity: _Identity
    wall_ns: int
    mono_ns: int | None  # None: no monotonic clock; wall_ns is the time
    last_ns: int = 0

    @property
    def wall_minus_mono_ns(self) -> int:
        return 0 if self.mono_ns is None else self.wall_ns - self.mono_ns


class Stretches:
    """Divides one trace into stretches. Two passes over the same records give the same stretches."""

    def __init__(self) -> None:
        self.all: list[_Stretch] = []
        self._last_mono_ns = 0
        self._apart_ns = 0
        self._host: Any = None
        self._boot: Any = None
        self._machine: Any = None
        self._bytes = b""  # what the last record of a bulk line had between its times and its client
        self._next_bytes = b""  # the same of a line that is read now, and may be no record

    def of(self, record: Record) -> int:
        """The number of the stretch of the next record."""
        mono, wall_ns = record.get("mono_ns"), record["wall_ms"] * 1_000_000
        host, boot = record.get("host"), record.get("boot")
        stretches = self.all
        if mono is None:
            for number, stretch in enumerate(stretches):
                if stretch.mono_ns is None:
                    return number
            stretches.append(_Stretch(_Identity(host, None, None), wall_ns, None))
            return len(stretches) - 1
        if (
            not stretches
            or host != self._host
            or boot != self._boot
            or record.get("machine") != self._machine
            or (boot is None and self._is_other(mono, wall_ns))
        ):
            self._host, self._boot, self._machine = host, boot, record.get("machine")
            stretches.append(_Stretch(_Identity(host, self._machine, boot), wall_ns, mono))
            self._bytes = b""
        self._bytes = self._next_bytes or self._bytes
        self._last_mono_ns = mono
        self._apart_ns = wall_ns - mono
        number = len(stretches) - 1
        if stretches[number].mono_ns is None:
            number = next(place for place in range(number, -1, -1) if stretches[place].mono_ns is not None)
        if mono > stretches[number].last_ns:
            stretches[number].last_ns = mono
        return number

    def needs(self, line: bytes) -> bool:
        """Whether a line must be decoded. Most lines contain nothing new about clocks."""
        self._next_bytes = b""
        if not line.startswith(_BULK) or line.find(_BEGIN, 1) > 0:  # behind a torn line another clock may begin
            return True
        if self._boot is not None and self._bytes and self._bytes in line:  # `boot` names the clock
            return b'"mono_ns":' not in line or b'"mono_ns":null' in line
        head = _HEAD.search(line)
        if head is None or not self._bytes or head[3] != self._bytes:
            self._next_bytes = head[3] if head is not None else b""
            return True
        mono = int(head[2])
        if self._is_other(mono, int(head[1]) * 1_000_000):
            return True
        self._last_mono_ns = mono
        self._apart_ns = int(head[1]) * 1_000_000 - mono
        return False

    def _is_other(self, mono: int, wall_ns: int) -> bool:
        """Whether a clock went back or jumped against the wall clock. Without `boot` this means another clock."""
        away_ns = wall_ns - mono - self._apart_ns
        return mono < self._last_mono_ns - _JUMP_NS or not -_JUMP_NS <= away_ns <= _JUMP_NS


class _Clock(NamedTuple):
    name: str
    wall_minus_mono_ns: int
    wall_ns: int
    is_monotonic: bool = True


class Clocks:
    """The numbered clocks of all traces. `axis_ns[clock] + mono_ns` is a common time that agrees with all causes."""

    def __init__(
        self, clocks: Sequence[_Clock], of_stretch: Sequence[Sequence[int]], edges: dict[tuple[int, int], int],
        wall_skew_ms: int,
    ) -> None:  # fmt: skip
        self._clocks = clocks
        self._of_stretch = of_stretch
        self._skew_ns = wall_skew_ms * 1_000_000
        self._bounds: dict[tuple[int, int], tuple[float, float, bool]] = {}
        self._longest: dict[int, list[float]] = {}
        self.skew_ns = self._skew_ns
        for slack in _SLACKS_NS:
            self._edges = {pair: least - slack for pair, least in edges.items()}
            found = self._feasible()
            if found is not None:
                break
        else:
            self._edges, found = {}, [clock.wall_minus_mono_ns for clock in clocks]
        self.slack_ns = slack if self._edges else 0
        self.axis_ns: list[int] = found

    def __len__(self) -> int:
        return len(self._clocks)

    def of(self, source: int, stretch: int) -> int:
        """The number of the clock of a stretch in a trace."""
        return self._of_stretch[source][stretch]

    def is_one(self, source: int) -> bool:
        """Whether all records of a trace have the same monotonic clock."""
        return len(self._of_stretch[source]) == 1 and self._clocks[self.of(source, 0)].is_monotonic

    def gap_ns(self, one: int, one_ns: int, other: int, other_ns: int) -> tuple[float, float]:
        """The least and the most nanoseconds from `one_ns` on clock `one` to `other_ns` on clock `other`."""
        if one == other:
            return other_ns - one_ns, other_ns - one_ns
        least, most, _ = self.apart(one, other)
        return other_ns - one_ns + least, other_ns - one_ns + most

    def apart(self, one: int, other: int) -> tuple[float, float, bool]:
        """(least, most, by_causes): bounds of the shift of `other` against `one`; whether only causes set them."""
        found = self._bounds.get((one, other))
        if found is None:
            found = self._bounds[one, other] = self._apart(one, other)
        return found

    def _apart(self, one: int, other: int) -> tuple[float, float, bool]:
        least, most = self._paths(one)[other], -self._paths(other)[one]
        middle = self._clocks[other].wall_minus_mono_ns - self._clocks[one].wall_minus_mono_ns
        low, high = middle - self._skew_ns, middle + self._skew_ns
        if low > most or high < least:
            return least, most, True
        return max(least, low), min(most, high), least >= low and most <= high

    def lines(self) -> list[str]:
        """Sentences with the bounds: each wall clock against the first one."""
        lines = []
        for other in range(1, min(len(self), _TOLD_MAX)):
            least, most, by_causes = self.apart(0, other)
            middle = self._clocks[other].wall_minus_mono_ns - self._clocks[0].wall_minus_mono_ns
            low, high = (middle - most) / 1e6, (middle - least) / 1e6
            why = (
                "by causes"
                if by_causes
                else f"by causes, and wall clocks at most {self._skew_ns // 1_000_000} ms apart"
            )
            lines.append(
                f"the wall clock of {self._clocks[other].name} is {_ms(low)} to {_ms(high)} ms ahead of that of "
                f"{self._clocks[0].name} ({why})"
            )
        if len(self) > _TOLD_MAX:
            lines.append(f"and {len(self) - _TOLD_MAX} clocks more")
        if self.slack_ns:
            lines.append(
                f"causes contradict each other by up to {self.slack_ns // 1_000_000} ms: clocks drift, or records err"
            )
        return lines

    def _feasible(self) -> list[int] | None:
        """Shifts near the wall clocks that put every cause before its effect; None if causes contradict each other."""
        axis = [clock.wall_minus_mono_ns for clock in self._clocks]
        for _ in range(len(axis) + 1):
            changed = False
            for (one, other), least in self._edges.items():
                if axis[other] - axis[one] < least:
                    axis[other] = axis[one] + least
                    changed = True
            if not changed:
                return axis
        return None

    def _paths(self, source: int) -> list[float]:
        """The longest path from one clock to each clock; -inf if there is no path."""
        found = self._longest.get(source)
        if found is None:
            found = [-inf] * len(self._clocks)
            found[source] = 0
            changed = True
            while changed:  # this ends: `_feasible` found a solution, so no cycle is positive
                changed = False
                for (one, other), least in self._edges.items():
                    if found[one] + least > found[other]:
                        found[other] = found[one] + least
                        changed = True
            self._longest[source] = found
        return found


def _ms(value: float) -> str:
    return f"{value:+.1f}" if abs(value) < inf else "any number of"


class _Causes:
    """Collects which clients wrote and read each offset of each queue."""

    def __init__(self) -> None:
        self._written: dict[tuple[Any, ...], dict[tuple[int, int], int]] = {}
        self._read: list[tuple[tuple[Any, ...], tuple[int, int], int]] = []

    def note(self, record: Record, stretch: tuple[int, int], time_ns: int) -> None:
        event = record["event"]
        if event in ("committed", "reset", "positioned", "stored"):
            place = (record["group"], record["topic"], record["broker"], record["queue_id"], record["offset"])
            if event in ("positioned", "stored"):
                self._read.append((place, stretch, time_ns))
            elif "client_id" in record:  # a broker's `reset` only repeats a written offset
                self._written.setdefault(place, {}).setdefault(stretch, time_ns)

    def edges(self, of_stretch: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
        """(one, other) -> the least shift of clock `other` against clock `one`, in nanoseconds."""
        found: dict[tuple[int, int], int] = {}
        for place, (source, number), read_ns in self._read:
            first: dict[int, int] = {}
            for (writer, stretch), time_ns in self._written.get(place, {}).items():
                clock = of_stretch[writer][stretch]
                first[clock] = min(time_ns, first.get(clock, time_ns))
            reader = of_stretch[source][number]
            if reader in first and first[reader] <= read_ns:
                continue  # its own machine may have written the offset
            first.pop(reader, None)
            if len(first) == 1:
                [(writer, written_ns)] = first.items()
                least = written_ns - read_ns + 1  # a cause is earlier, by a nanosecond at least
                found[writer, reader] = max(least, found.get((writer, reader), least))
        return found


def survey(traces: Sequence[Iterable[Record]], wall_skew_ms: int = WALL_SKEW_MS) -> Clocks:
    """Read all traces once to find their clocks and the bounds between them. Raises OSError."""
    divided = [Stretches() for _ in traces]
    causes = _Causes()
    for source, (trace, stretches) in enumerate(zip(traces, divided, strict=True)):
        records = trace.records(stretches.needs) if isinstance(trace, TraceFile) else trace
        for record in records:
            number = stretches.of(record)
            mono = record.get("mono_ns")
            causes.note(record, (source, number), record["wall_ms"] * 1_000_000 if mono is None else mono)
    clocks: list[_Clock] = []
    named: dict[tuple[Any, ...], list[int]] = {}
    of_stretch = [
        [_clock_of(stretch, source, clocks, named) for stretch in stretches.all]
        for source, stretches in enumerate(divided)
    ]
    edges = causes.edges(of_stretch) if len(clocks) > 1 else {}
    for numbers, stretches in zip(of_stretch, divided, strict=True):
        timed = [place for place, one in enumerate(stretches.all) if one.mono_ns is not None]
        for one, other in pairwise(timed):
            if numbers[one] != numbers[other]:
                least = stretches.all[one].last_ns - (stretches.all[other].mono_ns or 0)
                pair = numbers[one], numbers[other]
                edges[pair] = max(least, edges.get(pair, least))
    return Clocks(clocks, of_stretch, edges, wall_skew_ms)


def _clock_of(
    stretch: _Stretch, source: int, clocks: list[_Clock], named: dict[tuple[Any, ...], list[int]]
) -> int:  # fmt: skip
    """The number of a stretch's clock. Adds a new clock if no known one fits."""
    identity, apart = stretch.identity, stretch.wall_minus_mono_ns
    host = "no name" if identity.host is None else str(identity.host)
    number = len(clocks)
    if stretch.mono_ns is None:
        clocks.append(_Clock(f"trace {source + 1} (wall clock only)", 0, stretch.wall_ns, is_monotonic=False))
        return number
    if identity.boot is not None:
        known = named.setdefault((identity.machine, identity.boot), [])
        if known:
            return known[0]
        name = f"{host} (machine {identity.machine}, boot {identity.boot})"
    else:
        known = named.setdefault((identity.host,), [])
        for one in known:
            allowed = _SAME_CLOCK_NS + _DRIFT * abs(stretch.wall_ns - clocks[one].wall_ns)
            if abs(apart - clocks[one].wall_minus_mono_ns) <= allowed:
                return one
        name = f"{host} (clock {len(known) + 1})" if known else host
    known.append(number)
    clocks.append(_Clock(name, apart, stretch.wall_ns))
    return number
