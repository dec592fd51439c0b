"""Clocks of several machines on one time axis: which records share a clock, and how far two clocks can be apart.

`mono_ns` counts from the boot of one machine. Records with `machine` and `boot` (version 2) say which clock that is. Of
older ones only `host` is known, which two machines may share: two stretches of records are of one clock if their wall
clocks minus their monotonic clocks agree. A clock that goes back, or away from the wall clock, begins a new stretch.

How far two clocks are apart is bounded by *causes*: an offset that one client committed and another one read was
committed first. Each such pair is a difference constraint, and the longest path between two clocks is the bound. Where
causes leave more open than that, wall clocks are taken to agree within `WALL_SKEW_MS`, unless causes contradict it.
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
_JUMP_NS: Final = 1_000_000_000  # a clock that moves by more against its last record is another clock
_SAME_CLOCK_NS: Final = 50_000_000
_DRIFT: Final = 0.0002  # of a wall clock that is being corrected while the monotonic one goes on
_SLACKS_NS: Final = (0, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
_TOLD_MAX: Final = 20
_BULK = (b'{"event":"handled",', b'{"event":"sent",')
_HEAD = re.compile(rb'"wall_ms":(\d+),"mono_ns":(\d+),(.*?)"client_id":')


class Trace(Protocol):
    """Records that can be read more than once, in the order in which one process wrote them."""

    def __iter__(self) -> Iterator[Record]: ...


class _Identity(NamedTuple):
    host: Any
    machine: Any
    boot: Any


@dataclass(slots=True)
class _Stretch:
    """Records of one trace that follow each other on one clock."""

    identity: _Identity
    wall_ns: int
    mono_ns: int | None  # None: there is no monotonic clock, and wall_ns is the time
    last_ns: int = 0

    @property
    def wall_minus_mono_ns(self) -> int:
        return 0 if self.mono_ns is None else self.wall_ns - self.mono_ns


class Stretches:
    """Divides one trace into stretches; two passes over the same records find the same ones."""

    def __init__(self) -> None:
        self.all: list[_Stretch] = []
        self._last_mono_ns = 0
        self._apart_ns = 0
        self._host: Any = None
        self._boot: Any = None
        self._machine: Any = None
        self._bytes = b""

    def of(self, record: Record) -> int:
        """The number of the stretch that the next record belongs to."""
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
        self._last_mono_ns = mono
        self._apart_ns = wall_ns - mono
        number = len(stretches) - 1
        if stretches[number].mono_ns is None:
            number = next(place for place in range(number, -1, -1) if stretches[place].mono_ns is not None)
        if mono > stretches[number].last_ns:
            stretches[number].last_ns = mono
        return number

    def needs(self, line: bytes) -> bool:
        """Whether a line of a file is none of the many that say nothing about clocks."""
        if not line.startswith(_BULK):
            return True
        if self._boot is not None and self._bytes:  # a boot says it all: only another writer would matter
            return self._bytes not in line
        head = _HEAD.search(line)
        if head is None or not self._bytes or head[3] != self._bytes:
            self._bytes = head[3] if head is not None else b""
            return True
        mono = int(head[2])
        if self._is_other(mono, int(head[1]) * 1_000_000):
            return True
        self._last_mono_ns = mono
        self._apart_ns = int(head[1]) * 1_000_000 - mono
        return False

    def _is_other(self, mono: int, wall_ns: int) -> bool:
        """Whether a clock went back, or away from the wall clock: it is another one, unless `boot` says otherwise."""
        away_ns = wall_ns - mono - self._apart_ns
        return mono < self._last_mono_ns - _JUMP_NS or not -_JUMP_NS <= away_ns <= _JUMP_NS


class _Clock(NamedTuple):
    name: str
    wall_minus_mono_ns: int
    wall_ns: int
    is_monotonic: bool = True


class Clocks:
    """The clocks of all traces, numbered. `axis_ns[clock] + mono` is a time on one axis that contradicts no cause."""

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
        """The clock of a stretch of a trace."""
        return self._of_stretch[source][stretch]

    def is_one(self, source: int) -> bool:
        """Whether a trace is on one monotonic clock from its first record to its last."""
        return len(self._of_stretch[source]) == 1 and self._clocks[self.of(source, 0)].is_monotonic

    def gap_ns(self, one: int, one_ns: int, other: int, other_ns: int) -> tuple[float, float]:
        """How long after a time of one clock a time of another one is: at least and at most."""
        if one == other:
            return other_ns - one_ns, other_ns - one_ns
        least, most, _ = self.apart(one, other)
        return other_ns - one_ns + least, other_ns - one_ns + most

    def apart(self, one: int, other: int) -> tuple[float, float, bool]:
        """Bounds of what to add to a time of `other` more than to one of `one`; whether causes alone gave them."""
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
        """The bounds for people: each clock beside the first one, as wall clocks that differ."""
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
        """Offsets that keep every cause before its effect, near the wall clocks; None if there are none."""
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
        """The longest path from one clock to each, -inf where there is none."""
        found = self._longest.get(source)
        if found is None:
            found = [-inf] * len(self._clocks)
            found[source] = 0
            changed = True
            while changed:  # no cycle is positive: `_feasible` found a solution
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
    """Commits and positions of all queues, as they pass: who wrote an offset first, and who read it."""

    def __init__(self) -> None:
        self._written: dict[tuple[Any, ...], dict[tuple[int, int], int]] = {}
        self._read: list[tuple[tuple[Any, ...], tuple[int, int], int]] = []

    def note(self, record: Record, stretch: tuple[int, int], time_ns: int) -> None:
        event = record["event"]
        if event in ("committed", "reset", "positioned", "stored"):
            place = (record["group"], record["topic"], record["broker"], record["queue_id"], record["offset"])
            if event in ("positioned", "stored"):
                self._read.append((place, stretch, time_ns))
            elif "client_id" in record:  # the `reset` of a broker repeats an offset that was written before
                self._written.setdefault(place, {}).setdefault(stretch, time_ns)

    def edges(self, of_stretch: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
        """(one, other): what the axis of `other` is at least ahead of that of `one`."""
        found: dict[tuple[int, int], int] = {}
        for place, (source, number), read_ns in self._read:
            first: dict[int, int] = {}
            for (writer, stretch), time_ns in self._written.get(place, {}).items():
                clock = of_stretch[writer][stretch]
                first[clock] = min(time_ns, first.get(clock, time_ns))
            reader = of_stretch[source][number]
            if reader in first and first[reader] <= read_ns:
                continue  # it may have read what its own machine wrote
            first.pop(reader, None)
            if len(first) == 1:
                [(writer, written_ns)] = first.items()
                least = written_ns - read_ns
                found[writer, reader] = max(least, found.get((writer, reader), least))
        return found


def survey(traces: Sequence[Iterable[Record]], wall_skew_ms: int = WALL_SKEW_MS) -> Clocks:
    """A first pass over all traces: their clocks, and the bounds between them. Raises OSError."""
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
    """The number of a stretch's clock; a new one if no clock so far can be its."""
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
