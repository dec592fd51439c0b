"""Which records share a clock, in which order boots are, and what a cause says of two clocks: each rule at its edge."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from lockstep.order.judge.survey import survey
from lockstep.order.traces.clocks import Causes, Clock, Clocks, Stretches, cause_edges, number_clocks, reboot_edges
from tests.rows import by_row

MS, S = 1_000_000, 1_000_000_000
WALL_MS = 1_700_000_000_000
Record = dict[str, Any]


def at(mono_ns: int | None, wall_ms: int | None = None, **fields: Any) -> Record:
    """A record of host h, at this time; its wall clock goes on with the other one."""
    if wall_ms is None:
        wall_ms = (mono_ns or 0) // MS
    time = {} if mono_ns is None else {"mono_ns": mono_ns}
    return {"event": "breath", "wall_ms": WALL_MS + wall_ms, "host": "h", **time, **fields}


def on(boot: str, mono_ns: int, **fields: Any) -> Record:
    return at(mono_ns, **{"machine": "m", "boot": boot, **fields})


def divided(*traces: list[Record]) -> tuple[list[Stretches], list[list[int]]]:
    found = []
    for trace in traces:
        found.append(Stretches())
        for record in trace:
            found[-1].of(record)
    return found, number_clocks(found)[1]


# One clock, or several -----------------------------------------------------------------------------------------

WALL_AHEAD: Final = 3_600_000
STRETCHES: Final[dict[str, tuple[list[list[Record]], list[list[int]]]]] = {
    # Of version 1: by the differences of the clocks.
    "back by a second": ([[at(5 * S), at(4 * S, 5000)]], [[0]]),
    "back by more": ([[at(5 * S), at(4 * S - 1, 5000)]], [[0, 1]]),
    "back by more, and the wall clock with it": ([[at(5 * S), at(1 * S)]], [[0]]),
    "the wall clock a second ahead": ([[at(5 * S), at(6 * S, 7000)]], [[0]]),
    "the wall clock more than a second ahead": ([[at(5 * S), at(6 * S, 7001)]], [[0, 1]]),
    "the wall clock a second behind": ([[at(5 * S), at(6 * S, 5000)]], [[0]]),
    "the wall clock more than a second behind": ([[at(5 * S), at(6 * S, 4999)]], [[0, 1]]),
    "steps of a second add up": ([[at(5 * S), at(6 * S, 7000), at(7 * S, 9000)]], [[0]]),
    "another host": ([[at(5 * S), at(6 * S, host="i")]], [[0, 1]]),
    "two files, 50 ms apart": ([[at(5 * S)], [at(5 * S, 5050)]], [[0], [0]]),
    "two files, 51 ms apart": ([[at(5 * S)], [at(5 * S, 5051)]], [[0], [1]]),
    "two files, a drift of 0.02 %": ([[at(5 * S)], [at(5 * S + WALL_AHEAD * MS, 5000 + WALL_AHEAD + 769)]], [[0], [0]]),
    "two files, more drift": ([[at(5 * S)], [at(5 * S + WALL_AHEAD * MS, 5000 + WALL_AHEAD + 772)]], [[0], [1]]),
    "two files of two hosts": ([[at(5 * S)], [at(5 * S, host="i")]], [[0], [1]]),
    "three files, the third as the first": ([[at(5 * S)], [at(5 * S, 9000)], [at(6 * S, 6010)]], [[0], [1], [0]]),
    # Of version 2: by machine and boot alone.
    "one boot, back": ([[on("x", 5 * S), on("x", 1 * S, wall_ms=5000)]], [[0]]),
    "one boot, the wall clock set": ([[on("x", 5 * S), on("x", 6 * S, wall_ms=99_000)]], [[0]]),
    "one boot, two hosts": ([[on("x", 5 * S)], [on("x", 6 * S, host="i")]], [[0], [0]]),
    "two boots": ([[on("x", 5 * S), on("y", 6 * S)]], [[0, 1]]),
    "one boot id on two machines": ([[on("x", 5 * S), on("x", 6 * S, machine="n")]], [[0, 1]]),
    "two files of one boot": ([[on("x", 5 * S)], [on("x", 900 * S, wall_ms=1)]], [[0], [0]]),
    "with a boot and without": ([[on("x", 5 * S), at(6 * S)]], [[0, 1]]),
    # Without a monotonic clock each file has one of its own.
    "two files of wall clocks": ([[at(None), at(None, 99_000)], [at(None)]], [[0], [1]]),
    "wall clocks between": ([[on("x", 5 * S), at(None), on("x", 6 * S), at(None)]], [[0, 1]]),
}


@by_row("case", STRETCHES)
def test_records_share_a_clock(case: str) -> None:
    """The numbers of the clocks of each file's stretches."""
    traces, numbers = STRETCHES[case]
    assert divided(*traces)[1] == numbers


@by_row("case", STRETCHES)
def test_lines_that_are_not_decoded_share_the_same_clocks(case: str) -> None:
    """`follows` takes the times of a record that has the host, machine and boot of the one before."""
    traces, numbers = STRETCHES[case]
    found = []
    for trace in traces:
        found.append(Stretches())
        last: Record = {}
        for record in trace:
            alike = "mono_ns" in record and all(record.get(n) == last.get(n) for n in ("host", "machine", "boot"))
            if not (alike and "mono_ns" in last and found[-1].follows(record["mono_ns"], record["wall_ms"] * MS)):
                found[-1].of(record)
            last = record
    assert number_clocks(found)[1] == numbers
    assert [[one.last_ns for one in each.all] for each in found] == [
        [one.last_ns for one in each.all] for each in divided(*traces)[0]
    ]


def test_nothing_follows_before_the_first_record() -> None:
    """A line that is not decoded has no clock then."""
    assert not Stretches().follows(5 * S, 5 * S)


# Boots ---------------------------------------------------------------------------------------------------------

BOOTS: Final[dict[str, tuple[list[list[Record]], dict[tuple[int, int], int]]]] = {
    "one after the other": ([[on("x", 5 * S), on("x", 9 * S), on("y", 2 * S)]], {(0, 1): 7 * S}),
    "the highest time of the first counts": ([[on("x", 9 * S), on("x", 5 * S), on("y", 2 * S)]], {(0, 1): 7 * S}),
    "three": ([[on("x", 9 * S), on("y", 2 * S), on("z", 1 * S)]], {(0, 1): 7 * S, (1, 2): 1 * S}),
    "in two files": ([[on("x", 9 * S)], [on("y", 2 * S)]], {}),
    "the tighter of two files": (
        [[on("x", 5 * S), on("y", 2 * S)], [on("x", 9 * S), on("y", 4 * S)], [on("x", 3 * S), on("y", 3 * S)]],
        {(0, 1): 5 * S},
    ),
    "of version 1": ([[at(9 * S), at(2 * S, 10_000)]], {(0, 1): 7 * S}),
    "of version 1, another host": ([[at(9 * S), at(2 * S, 10_000, host="i")]], {}),
    "another machine": ([[on("x", 9 * S), on("y", 2 * S, machine="n")]], {}),
    "one version after the other": ([[at(9 * S), on("y", 2 * S)]], {}),
    "a boot that comes back": ([[on("x", 9 * S), on("y", 2 * S), on("x", 9 * S), on("y", 2 * S)]], {(0, 1): 7 * S}),
    "the second boot that comes back": (
        [[on("x", 9 * S), on("y", 2 * S), on("z", 1 * S), on("y", 2 * S)]], {(0, 1): 7 * S, (1, 2): 1 * S},
    ),
    "a host between": ([[on("x", 5 * S), on("x", 9 * S, host="i")]], {}),
    "a wall clock between": ([[on("x", 9 * S), at(None), on("y", 2 * S)]], {(0, 2): 7 * S}),
}  # fmt: skip


@by_row("case", BOOTS)
def test_a_boot_comes_after_the_one_before(case: str) -> None:
    """Least shifts of a later boot's clock, if one file has both."""
    traces, edges = BOOTS[case]
    assert reboot_edges(*divided(*traces)) == edges


BACK: Final[dict[str, tuple[list[Record], bool]]] = {
    "in order": ([on("x", 5 * S), on("x", 6 * S)], False),
    "two at once": ([on("x", 5 * S), on("x", 5 * S)], False),
    "a nanosecond back": ([on("x", 5 * S), on("x", 5 * S - 1)], True),
    "back, of version 1": ([at(5 * S), at(5 * S - 1)], True),
    "back by seconds, of version 1": ([at(5 * S), at(1 * S)], True),
    "behind another host": ([on("x", 5 * S), on("x", 6 * S, host="i"), on("x", 6 * S), on("x", 7 * S)], False),
    "back behind another host": ([on("x", 5 * S), on("x", 6 * S, host="i"), on("x", 6 * S - 1)], True),
    "back behind two hosts": ([on("x", 7 * S), on("x", 7 * S, host="i"), on("x", 6 * S), on("x", 9 * S)], True),
    "another boot": ([on("x", 5 * S), on("y", 1 * S)], False),
    "the first boot again, later": ([on("x", 5 * S), on("y", 1 * S), on("x", 6 * S)], False),
    "the first boot again": ([on("x", 5 * S), on("y", 1 * S), on("x", 5 * S - 1)], True),
    "the highest time counts": ([on("x", 9 * S), on("x", 9 * S, host="i"), on("y", 1 * S), on("x", 8 * S)], True),
    "a wall clock back": ([at(None, 5000), at(None, 1000)], False),
    "a wall clock between": ([on("x", 5 * S), at(None, -1), on("x", 6 * S)], False),
}


@by_row("case", BACK)
def test_a_file_that_goes_back_on_one_clock(case: str) -> None:
    """Only such a file is sorted in memory."""
    trace, goes_back = BACK[case]
    assert survey([trace]).clocks.goes_back(0) is goes_back


def test_a_machine_that_comes_back_in_the_past_is_no_overlap() -> None:
    """It has no battery for its clock: its next boot is an hour ago, and is later all the same."""
    place = {"topic": "t", "broker": "b", "queue_id": 0, "group": "g", "client_id": "a"}
    clocks = survey([[on("x", 9 * S, **place), on("y", 2 * S, wall_ms=-WALL_AHEAD, **place)]]).clocks
    assert clocks.gap_ns(0, 9 * S, 1, 2 * S)[0] >= 0
    assert clocks.is_later_boot(1, 0)
    assert not clocks.is_later_boot(0, 1)


# Causes --------------------------------------------------------------------------------------------------------

QUEUE: Final = {"group": "g", "topic": "t", "broker": "b", "queue_id": 0}


def did(event: str, offset: int, time_ns: int, **fields: Any) -> Record:
    return {"event": event, "offset": offset, "client_id": "a", **QUEUE, "time_ns": time_ns, **fields}


def wrote(offset: int, time_ns: int, **fields: Any) -> Record:
    return did("committed", offset, time_ns, **fields)


def read(offset: int, time_ns: int, **fields: Any) -> Record:
    return did("positioned", offset, time_ns, **fields)


def by_broker(event: str, offset: int, time_ns: int) -> Record:
    record = did(event, offset, time_ns)
    del record["client_id"]
    return record


A, B, C = 0, 1, 2
CAUSES: Final[dict[str, tuple[dict[int, list[Record]], dict[tuple[int, int], int]]]] = {
    "read behind its commit": ({A: [wrote(5, 70)], B: [read(5, 40)]}, {(A, B): 31}),
    "stored behind its commit": ({A: [wrote(5, 70)], B: [by_broker("stored", 5, 40)]}, {(A, B): 31}),
    "the first commit of it": (
        {A: [wrote(5, 70), wrote(5, 90)], B: [read(5, 40)]}, {(A, B): 31},
    ),
    "the first commit of it, delivered late": (
        {A: [wrote(5, 90), wrote(5, 70)], B: [read(5, 40)]}, {(A, B): 31},
    ),
    "what a client stored is no position": (
        {A: [did("stored", 5, 60), wrote(5, 70)], B: [read(5, 40)]}, {(A, B): 31},
    ),
    "a fenced commit is written after its answer": (
        {A: [wrote(5, 70, begin_mono_ns=60)], B: [read(5, 40)]}, {(A, B): 21},
    ),
    "the first reading": (
        {A: [wrote(5, 70)], B: [read(5, 40), read(5, 20), read(5, 30)]}, {(A, B): 51},
    ),
    "the tighter of two offsets": (
        {A: [wrote(5, 70), wrote(6, 80)], B: [read(5, 40), read(6, 60)]},
        {(A, B): 31},
    ),
    "both ways": (
        {A: [wrote(5, 70), read(6, 90)], B: [read(5, 40), wrote(6, 50)]},
        {(A, B): 31, (B, A): -39},
    ),
    "another offset": ({A: [wrote(5, 70)], B: [read(6, 40)]}, {}),
    "another queue": ({A: [wrote(5, 70)], B: [read(5, 40, queue_id=1)]}, {}),
    "another group": ({A: [wrote(5, 70)], B: [read(5, 40, group="h")]}, {}),
    "a commit that repeats its position": (
        {A: [read(5, 60), wrote(5, 70)], B: [read(5, 40)]}, {},
    ),
    "a commit that repeats an older position": (
        {A: [read(5, 50), read(4, 60), wrote(5, 70)], B: [read(5, 40)]},
        {(A, B): 31},
    ),
    "its own machine had written it": (
        {A: [wrote(5, 70)], B: [wrote(5, 40), read(5, 40)]}, {},
    ),
    "its own machine wrote it later": (
        {A: [wrote(5, 70)], B: [read(5, 40), read(4, 41), wrote(5, 42)]},
        {(A, B): 31},
    ),
    "two others wrote it": (
        {A: [wrote(5, 70)], C: [wrote(5, 70)], B: [read(5, 40)]}, {},
    ),
    "read behind a reset": (
        {A: [did("reset", 5, 70)], B: [read(4, 30), read(5, 40)]}, {(A, B): 31},
    ),
    "read behind a reset, another file read lower": (
        {A: [did("reset", 5, 70)], C: [read(4, 30)], B: [read(5, 40)]}, {(A, B): 31},
    ),
    "a reset to where the group may have begun": ({A: [did("reset", 5, 70)], B: [read(5, 40)]}, {}),
    "a broker's reset repeats an offset": (
        {A: [by_broker("reset", 5, 70)], B: [read(4, 30), read(5, 40)]}, {},
    ),
    "what was handled or sent": ({A: [did("sent", 5, 70)], B: [did("handled", 5, 40), did("acquired", 5, 40)]}, {}),
}  # fmt: skip


@by_row("case", CAUSES)
def test_an_offset_was_written_before_it_was_read(case: str) -> None:
    """Least shifts of the reader's clock, in nanoseconds."""
    by_clock, edges = CAUSES[case]
    traces = []
    for records in by_clock.values():
        traces.append(Causes())
        for record in records:
            traces[-1].note(record, 0, record["time_ns"])
    assert cause_edges(traces, [[clock] for clock in by_clock]) == edges


@pytest.mark.parametrize("times", [(70, 60), (60, 70)])
def test_two_files_of_a_machine_wrote_it(times: tuple[int, int]) -> None:
    """The earliest of both counts."""
    files = [Causes(), Causes(), Causes()]
    for file, time_ns in zip(files, times, strict=False):
        file.note(wrote(5, 0), 0, time_ns)
    files[2].note(read(5, 0), 0, 40)
    assert cause_edges(files, [[A], [A], [B]]) == {(A, B): 21}


# Bounds --------------------------------------------------------------------------------------------------------


def clocks_of(*walls_ms: int, edges: dict[tuple[int, int], int], skew_ms: int = 1000) -> Clocks:
    """Clocks of which only the walls are apart, that may be so wrong."""
    known = [Clock(f"c{number}", wall_ms * MS, wall_ms * MS) for number, wall_ms in enumerate(walls_ms)]
    return Clocks(known, [[number] for number in range(len(known))], edges, skew_ms)


BOUNDS: Final[dict[str, tuple[Clocks, tuple[float, float, bool]]]] = {
    "wall clocks alone": (clocks_of(0, 200, edges={}), (-800, 1200, False)),
    "a cause": (clocks_of(0, 200, edges={(A, B): 300 * MS}), (300, 1200, False)),
    "the other way": (clocks_of(0, 200, edges={(B, A): -300 * MS}), (-800, 300, False)),
    "causes both ways": (clocks_of(0, 200, edges={(A, B): 250 * MS, (B, A): -300 * MS}), (250, 300, True)),
    "a cause that says less": (clocks_of(0, 200, edges={(A, B): -5000 * MS}), (-800, 1200, False)),
    "over a third clock": (clocks_of(0, 200, 0, edges={(A, C): 100 * MS, (C, B): 400 * MS}), (500, 1200, False)),
    "a cause against wall clocks": (clocks_of(0, 200, edges={(A, B): 5000 * MS}), (5000, float("inf"), True)),
    "one against wall clocks, and against a cause": (
        clocks_of(0, 200, edges={(A, B): 5000 * MS, (B, A): -300 * MS}), (-800, 300, False),
    ),
    "drift of 10 ms": (clocks_of(0, 200, edges={(A, B): 255 * MS, (B, A): -250 * MS}), (245, 260, True)),
}  # fmt: skip


@by_row("case", BOUNDS)
def test_bounds_of_two_clocks(case: str) -> None:
    """From the first to the second, in milliseconds; whether causes alone set them."""
    clocks, (least, most, by_causes) = BOUNDS[case]
    assert clocks.apart(A, B) == (least * MS, most * MS, by_causes)
    assert clocks.apart(B, A) == (-most * MS, -least * MS, by_causes)
    assert clocks.gap_ns(A, 7, B, 10) == (3 + least * MS, 3 + most * MS)
    assert clocks.gap_ns(B, 7, B, 10) == (3, 3)


@by_row("case", BOUNDS)
def test_the_axis_puts_causes_before_effects(case: str) -> None:
    """And stays near the wall clocks."""
    clocks, (least, most, _) = BOUNDS[case]
    shift = clocks.axis_ns[B] - clocks.axis_ns[A]
    assert least * MS <= shift <= most * MS


def test_a_contradiction_is_said() -> None:
    """By how much the bounds were widened."""
    clocks = BOUNDS["drift of 10 ms"][0]
    assert clocks.lines()[-1] == "causes contradict each other by up to 10 ms: clocks drift, or records err"
    assert "by causes)" in clocks.lines()[0]
    assert "by causes, and wall clocks at most 1000 ms apart)" in BOUNDS["a cause"][0].lines()[0]
    assert len(BOUNDS["a cause"][0].lines()) == 1


@pytest.mark.parametrize("skew_ms", [1000, 60_000])
def test_causes_that_contradict_each_other_by_more_are_no_bounds(skew_ms: int) -> None:
    """By more than ten seconds both ways: wall clocks alone are left, also if they may be so far apart."""
    clocks = clocks_of(0, 200, edges={(A, B): 200 * MS + 12 * S, (B, A): 12 * S - 200 * MS}, skew_ms=skew_ms)
    assert clocks.apart(A, B) == ((200 - skew_ms) * MS, (200 + skew_ms) * MS, False)
    assert clocks.slack_ns == 0


def test_twenty_clocks_are_shown() -> None:
    """And how many more there are."""
    lines = clocks_of(*range(25), edges={}).lines()
    assert (len(lines), lines[-1]) == (20, "and 5 clocks more")


def test_a_wall_clock_is_no_monotonic_clock() -> None:
    """A file of wall clocks alone has one clock, and not one that all its records share to the nanosecond."""
    clocks = survey([[at(5 * S)], [at(None)], [on("x", 5 * S), on("y", 5 * S)]]).clocks
    assert [clocks.is_one(source) for source in range(3)] == [True, False, False]


NAMES: Final[list[tuple[Callable[[], list[list[Record]]], list[str]]]] = [
    (lambda: [[at(5 * S)], [at(5 * S, 9000)], [at(5 * S, host=None)]], ["h", "h (clock 2)", "no name"]),
    (lambda: [[on("x", 5 * S)], [at(None)]], ["h (machine m, boot x)", "trace 2 (wall clock only)"]),
]


@pytest.mark.parametrize(("made", "names"), NAMES)
def test_names_of_clocks(made: Callable[[], list[list[Record]]], names: list[str]) -> None:
    """As reports show them."""
    clocks = survey(made()).clocks
    assert [clocks.name(number) for number in range(len(clocks))] == names
