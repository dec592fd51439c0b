"""Puts the clocks of several machines on one time axis: which records share a clock, and bounds of clock differences.

`mono_ns` counts from the boot of one machine. Records of version 2 name that clock with `machine` and `boot`. Older
records have only `host`, and two machines may have the same host name. So two stretches of records share a clock if
their differences of wall clock and monotonic clock agree. A new stretch begins when the monotonic clock moves away from
the wall clock, as in a reboot.

*Causes* bound the difference of two clocks: if one client read an offset that another client committed, the commit came
first. Each such pair is a difference constraint, and the longest path between two clocks is the bound. Where this bound
is wider, wall clocks are assumed to agree within `WALL_SKEW_MS`, unless causes contradict this.
"""

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

from lockstep.order.traces.reader import Record

__all__ = [
    "WALL_SKEW_MS",
    "Bounds",
    "Causes",
    "Clock",
    "Clocks",
    "Stretches",
    "cause_edges",
    "going_back",
    "number_clocks",
    "reboot_edges",
]

WALL_SKEW_MS: Final = 1000
# A larger jump since the last record means another clock.
_JUMP_NS: Final = 1_000_000_000
_SAME_CLOCK_NS: Final = 50_000_000
# Allowed drift of a corrected wall clock against the monotonic clock.
_DRIFT: Final = 0.0002
_SLACKS_NS: Final = (0, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
_SHOWN_MAX: Final = 20
Place = tuple[Any, ...]  # group, topic, broker, queue id, offset


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
    last_ns: int = 0  # the highest one

    @property
    def wall_minus_mono_ns(self) -> int:
        return 0 if self.mono_ns is None else self.wall_ns - self.mono_ns


class Stretches:
    """Divides one trace into stretches. Two passes over the same records give the same stretches."""

    def __init__(self) -> None:
        self.all: list[_Stretch] = []
        self.goes_back = False  # on a clock that is the same
        self._number = 0
        self._apart_ns = 0
        self._host: Any = None
        self._boot: Any = None
        self._machine: Any = None
        self._last: _Stretch | None = None  # with a monotonic clock

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
            self._last is None
            or host != self._host
            or boot != self._boot
            or record.get("machine") != self._machine
            or (boot is None and self._is_other(mono, wall_ns))
        ):
            self._host, self._boot, self._machine = host, boot, record.get("machine")
            self._last = _Stretch(_Identity(host, self._machine, boot), wall_ns, mono, mono)
            self._number = len(stretches)
            stretches.append(self._last)
        self._take(self._last, mono, wall_ns)
        return self._number

    def follows(self, mono: int, wall_ns: int) -> bool:
        """Take the times of a record with the host, machine and boot of the last one, if its clock is the same too."""
        if self._boot is None and self._is_other(mono, wall_ns):
            return False
        stretch = self._last
        if stretch is None:
            return False
        self._take(stretch, mono, wall_ns)
        return True

    def _take(self, stretch: _Stretch, mono: int, wall_ns: int) -> None:
        self._apart_ns = wall_ns - mono
        if mono >= stretch.last_ns:
            stretch.last_ns = mono
        else:
            self.goes_back = True

    def _is_other(self, mono: int, wall_ns: int) -> bool:
        """Whether a clock jumped against the wall clock. Without `boot` this means another clock."""
        return not -_JUMP_NS <= wall_ns - mono - self._apart_ns <= _JUMP_NS


class Clock(NamedTuple):
    name: str
    wall_minus_mono_ns: int
    wall_ns: int
    is_monotonic: bool = True


class Bounds(NamedTuple):
    """The wall clock of a clock is `least_ms` to `most_ms` ahead of that of the first clock."""

    name: str
    least_ms: float
    most_ms: float
    by_causes: bool


class Clocks:
    """The numbered clocks of all traces. `axis_ns[clock] + mono_ns` is a common time that agrees with all causes."""

    def __init__(
        self,
        clocks: Sequence[Clock],
        of_stretch: Sequence[Sequence[int]],
        edges: dict[tuple[int, int], int],
        wall_skew_ms: int,
        unsorted: AbstractSet[int] = frozenset(),
        reboots: AbstractSet[tuple[int, int]] = frozenset(),
    ) -> None:
        """
        Args:
            unsorted: The result of `going_back` for the same traces.
            reboots: The pairs of `reboot_edges`.
        """
        self._clocks = clocks
        self._reboots = reboots
        self._unsorted = unsorted
        self._of_stretch = of_stretch
        self._skew_ns = wall_skew_ms * 1_000_000
        self._bounds: dict[tuple[int, int], tuple[float, float, bool]] = {}
        self._longest: dict[int, list[float]] = {}
        self.skew_ns = self._skew_ns
        near = {pair: least for pair, least in edges.items() if self._is_near(pair, least)}
        for slack in _SLACKS_NS:
            for chosen in (edges, near):
                self._edges = {pair: least - slack for pair, least in chosen.items()}
                found = self._feasible()
                if found is not None:
                    break
            if found is not None:
                break
        else:
            self._edges, found = {}, [clock.wall_minus_mono_ns for clock in clocks]
        self.slack_ns = slack if self._edges else 0
        self.axis_ns: list[int] = found

    def _is_near(self, pair: tuple[int, int], least: int) -> bool:
        """Whether a cause does not contradict wall clocks that are at most `skew_ns` apart."""
        one, other = self._clocks[pair[0]], self._clocks[pair[1]]
        return least <= other.wall_minus_mono_ns - one.wall_minus_mono_ns + self._skew_ns

    def __len__(self) -> int:
        return len(self._clocks)

    def name(self, clock: int) -> str:
        """The name of a clock."""
        return self._clocks[clock].name

    def of(self, source: int, stretch: int) -> int:
        """The number of the clock of a stretch in a trace."""
        return self._of_stretch[source][stretch]

    def is_one(self, source: int) -> bool:
        """Whether all records of a trace have the same monotonic clock."""
        return len(self._of_stretch[source]) == 1 and self._clocks[self.of(source, 0)].is_monotonic

    def goes_back(self, source: int) -> bool:
        """Whether a trace has records behind later ones of the same clock."""
        return source in self._unsorted

    def is_later_boot(self, clock: int, other: int) -> bool:
        """Whether a clock is of a later boot of the other one's machine, as one trace shows."""
        return (other, clock) in self._reboots

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

    def bounds(self) -> "list[Bounds]":
        """What is known of each clock against the first one, the first one included."""
        found = []
        for other in range(min(len(self), _SHOWN_MAX)):
            least, most, by_causes = self.apart(0, other) if other else (0.0, 0.0, True)
            middle = self._clocks[other].wall_minus_mono_ns - self._clocks[0].wall_minus_mono_ns if other else 0
            found.append(Bounds(self._clocks[other].name, (middle - most) / 1e6, (middle - least) / 1e6, by_causes))
        return found

    def sentence(self, bounds: "Bounds") -> str:
        """The bounds of a clock in words."""
        why = "by causes"
        if not bounds.by_causes:
            why += f", and wall clocks at most {self._skew_ns // 1_000_000} ms apart"
        return (
            f"the wall clock of {bounds.name} is {_ms(bounds.least_ms)} to {_ms(bounds.most_ms)} ms ahead of that of "
            f"{self._clocks[0].name} ({why})"
        )

    def lines(self) -> list[str]:
        """Sentences with the bounds: each wall clock against the first one."""
        lines = [self.sentence(bounds) for bounds in self.bounds()[1:]]
        if len(self) > _SHOWN_MAX:
            lines.append(f"and {len(self) - _SHOWN_MAX} clocks more")
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
            while changed:
                # This ends: `_feasible` found a solution, so no cycle is positive.
                changed = False
                for (one, other), least in self._edges.items():
                    if found[one] + least > found[other]:
                        found[other] = found[one] + least
                        changed = True
            self._longest[source] = found
        return found


def _ms(value: float) -> str:
    return f"{value:+.1f}" if abs(value) < inf else "any number of"


class Causes:
    """The times at which the clients of one trace wrote and read each offset of each queue."""

    def __init__(self) -> None:
        self.written: dict[tuple[Place, int], int] = {}  # the earliest time in each stretch
        self.read: dict[tuple[Place, int], int] = {}  # the earliest time in each stretch
        self.lowest: dict[tuple[str, str, str, int], int] = {}  # of the positions in each queue
        self.reset_to: set[Place] = set()
        # The last one in each queue, by period: a part that was delivered again stands behind later periods.
        self._position: dict[tuple[tuple[str, str, str, int], int | None], int] = {}

    def note(self, record: Record, stretch: int, time_ns: int) -> None:
        """Take a record. Only `committed`, `reset`, `positioned` and `stored` matter."""
        event = record["event"]
        if event in ("committed", "reset", "positioned", "stored"):
            place = (record["group"], record["topic"], record["broker"], record["queue_id"], record["offset"])
            if event in ("positioned", "stored"):
                _keep_least(self.read, (place, stretch), time_ns)
                if event == "positioned":
                    self._position[place[:4], record.get("period")] = place[4]
                    self.lowest[place[:4]] = min(place[4], self.lowest.get(place[:4], place[4]))
            elif event == "reset" and "client_id" in record:
                # A broker's record only repeats a written offset.
                self.reset_to.add(place)
                _keep_least(self.written, (place, stretch), time_ns)
            elif event == "committed" and self._position.get((place[:4], record.get("period"))) != place[4]:
                # Else it repeats what it read. Of a fenced commit the record is written after the broker's answer.
                _keep_least(self.written, (place, stretch), record.get("begin_mono_ns", time_ns))

    def __len__(self) -> int:
        return len(self.written) + len(self.read)


def _keep_least(times: dict[tuple[Place, int], int], name: tuple[Place, int], time_ns: int) -> None:
    known = times.get(name)
    if known is None or time_ns < known:
        times[name] = time_ns


def cause_edges(traces: Sequence[Causes], of_stretch: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """(one, other) -> the least shift of clock `other` against clock `one`, in nanoseconds."""
    written: defaultdict[Place, dict[int, int]] = defaultdict(dict)
    for causes, clocks in zip(traces, of_stretch, strict=True):
        for (place, stretch), time_ns in causes.written.items():
            first, clock = written[place], clocks[stretch]
            first[clock] = min(time_ns, first.get(clock, time_ns))
    lowest: dict[tuple[str, str, str, int], int] = {}
    for causes in traces:
        for queue, offset in causes.lowest.items():
            lowest[queue] = min(offset, lowest.get(queue, offset))
    reset_to = set[Place]().union(*(causes.reset_to for causes in traces))
    found: dict[tuple[int, int], int] = {}
    for causes, clocks in zip(traces, of_stretch, strict=True):
        for (place, stretch), read_ns in causes.read.items():
            if place in reset_to and place[4] <= lowest.get(place[:4], -1):
                # The group may have begun there, long before the reset.
                continue
            first, reader = written.get(place, {}), clocks[stretch]
            if reader in first and first[reader] <= read_ns:
                # Its own machine may have written the offset.
                continue
            writers = [(writer, written_ns) for writer, written_ns in first.items() if writer != reader]
            if len(writers) == 1:
                [(writer, written_ns)] = writers
                # A cause is earlier, by a nanosecond at least.
                least = written_ns - read_ns + 1
                found[writer, reader] = max(least, found.get((writer, reader), least))
    return found


def number_clocks(traces: Sequence[Stretches]) -> tuple[list[Clock], list[list[int]]]:
    """All clocks, and of each trace the numbers of its stretches' clocks."""
    clocks: list[Clock] = []
    named: dict[tuple[Any, ...], list[int]] = {}
    return clocks, [
        [_clock_of(stretch, source, clocks, named) for stretch in stretches.all]
        for source, stretches in enumerate(traces)
    ]


def going_back(traces: Sequence[Stretches], of_stretch: Sequence[Sequence[int]]) -> frozenset[int]:
    """The traces that have records behind later ones of the same clock: they were delivered late, or twice."""
    found = set[int]()
    for source, (stretches, numbers) in enumerate(zip(traces, of_stretch, strict=True)):
        latest_ns: dict[int, int] = {}
        for stretch, clock in zip(stretches.all, numbers, strict=True):
            known_ns = latest_ns.get(clock)
            is_late = known_ns is not None and stretch.mono_ns is not None and stretch.mono_ns < known_ns
            if stretches.goes_back or is_late:
                found.add(source)
            latest_ns[clock] = stretch.last_ns
    return frozenset(found)


def reboot_edges(traces: Sequence[Stretches], of_stretch: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """As `cause_edges`: what a trace wrote on one clock, it wrote before what it wrote on the next clock."""
    edges: dict[tuple[int, int], int] = {}
    for numbers, stretches in zip(of_stretch, traces, strict=True):
        timed = [place for place, one in enumerate(stretches.all) if one.mono_ns is not None]
        seen = {numbers[timed[0]]} if timed else set[int]()
        for one, other in pairwise(timed):
            before, after = stretches.all[one].identity, stretches.all[other].identity
            # Traces of two machines in one file have no order, and a clock that comes back was delivered again.
            if numbers[other] not in seen and _is_one_machine(before, after):
                least = stretches.all[one].last_ns - (stretches.all[other].mono_ns or 0)
                pair = numbers[one], numbers[other]
                edges[pair] = max(least, edges.get(pair, least))
            seen.add(numbers[other])
    return edges


def _is_one_machine(one: _Identity, other: _Identity) -> bool:
    """By the machine; if both are of version 1, by the host."""
    return bool(one.machine == other.machine and (one.machine is not None or one.host == other.host))


def _clock_of(stretch: _Stretch, source: int, clocks: list[Clock], named: dict[tuple[Any, ...], list[int]]) -> int:
    """The number of a stretch's clock. Adds a new clock if no known one fits."""
    identity, apart = stretch.identity, stretch.wall_minus_mono_ns
    host = "no name" if identity.host is None else str(identity.host)
    number = len(clocks)
    if stretch.mono_ns is None:
        clocks.append(Clock(f"trace {source + 1} (wall clock only)", 0, stretch.wall_ns, is_monotonic=False))
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
    clocks.append(Clock(name, apart, stretch.wall_ns))
    return number
