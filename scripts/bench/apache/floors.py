"""What a run should reach: the lowest ratio of each comparison, for a broker with the native part and without."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from scripts.bench.apache.figures import ECHO
from scripts.bench.apache.report import WORKS, Report
from scripts.bench.apache.servers import APACHE, FILES, MEMORY

__all__ = ["FLOORS", "Floor", "Verdict", "show_floors", "verdicts"]

RATE, CPU = "rate", "CPU"
RAW: Final = frozenset(name for name, (group, _) in WORKS.items() if group == "raw")
CLIENT_IS_LIMIT: Final = 0.9  # of a core
LONGEST_START_S: Final = 0.15
MOST_MEMORY_MB: Final = 40.0


class Floor(NamedTuple):
    """One comparison of a case with our broker.

    Attributes:
        ours: The case, by its name in WORKS.
        key: What stands on the other side: Apache's broker, or the echo.
        theirs: The other side's case.
        native: The lowest ratio with the native part.
        pure: The lowest ratio without it.
        how: RATE: our rate over theirs. CPU: their broker's CPU time of a message over ours.
    """

    ours: str
    key: str
    theirs: str
    native: float
    pure: float
    how: str = RATE


FLOORS: Final = (
    Floor("raw_send_64", APACHE, "raw_send_64", 3.0, 1.0),
    Floor("raw_send_64", APACHE, "raw_send_64", 4.0, 1.25, CPU),
    Floor("raw_send_1", APACHE, "raw_send_1", 2.0, 1.5),
    Floor("raw_send_1", APACHE, "raw_send_1", 3.3, 1.7, CPU),
    Floor("raw_pull_32", APACHE, "raw_pull_32", 1.4, 1.3),
    Floor("raw_lock_8", APACHE, "raw_lock_8", 1.3, 1.2),
    Floor("java_send_64", APACHE, "java_send_64", 1.2, 1.1),
    Floor("java_send_64", APACHE, "java_send_64", 3.3, 1.25, CPU),
    Floor("client_send_64", APACHE, "raw_send_64", 1.6, 1.2),
    Floor("client_send_64", APACHE, "client_send_64_batched", 2.4, 1.8),
    Floor("client_send_64", ECHO, "client_send_64", 0.8, 0.7),
    Floor("client_send_1", APACHE, "client_send_1", 2.2, 1.9),
    Floor("client_drain_1", APACHE, "java_drain_1", 1.0, 0.6),
    Floor("client_drain_32", APACHE, "java_drain_32", 1.3, 1.0),
    Floor("sync_send_64", APACHE, "sync_send_64", 8.0, 8.0),
)


class Verdict(NamedTuple):
    """One floor and what was seen.

    Attributes:
        how: What was compared: rates, CPU time of the brokers, time or memory.
    """

    work: str
    against: str
    floor: str
    seen: str
    how: str
    met: bool


def verdicts(report: Report) -> list[Verdict]:
    """Of all floors whose cases ran."""
    return [*_of_cases(report), *_of_start(report)]


def _of_cases(report: Report) -> Iterator[Verdict]:
    for floor in FLOORS:
        ours, theirs = report.cases.get(floor.ours), report.cases.get(floor.theirs)
        if ours is None or theirs is None or floor.key not in theirs.samples:
            continue
        # A raw client without time left shows its own limit in the rate, and the broker's in CPU time.
        limited = floor.ours in RAW and ours.median(FILES, "client_share") >= CLIENT_IS_LIMIT
        how = CPU if limited else floor.how
        seen = (ours.ratio if how == RATE else ours.cpu_ratio)(FILES, theirs, floor.key)
        least = floor.native if report.arm == "native" else floor.pure
        against = _against(report, floor)
        work = report.client_text(floor.ours)
        yield Verdict(work, against, f"{least:.2f}", f"{seen:.2f}", how, seen >= least)


def _against(report: Report, floor: Floor) -> str:
    if floor.key == ECHO:
        return "a bare echo of single frames"
    client, _, work = report.client_text(floor.theirs).partition(", ")
    if floor.ours == floor.theirs:
        return "Apache, the same"
    same = work == report.client_text(floor.ours).partition(", ")[2]
    return f"Apache with {client}" if same else f"Apache with {client}, {work}"


def _of_start(report: Report) -> Iterator[Verdict]:
    if MEMORY not in report.start:
        return
    seconds, cpu_s, rss_mb = (report.start_of(MEMORY, name) for name in ("seconds", "cpu_s", "rss_mb"))
    seen, met = f"{seconds:.3f} s ({cpu_s:.2f} s of CPU time)", seconds <= LONGEST_START_S
    yield Verdict("start, to the first connection", "", f"at most {LONGEST_START_S} s", seen, "time", met)
    floor, met = f"at most {MOST_MEMORY_MB:.0f} MB", rss_mb <= MOST_MEMORY_MB
    yield Verdict("memory after the start", "", floor, f"{rss_mb:.1f} MB", "memory", met)


def show_floors(report: Report, console: Console) -> None:
    """Print each floor beside what was seen."""
    table = Table(title=f"floors ({report.arm})", title_justify="left")
    for name in ("work", "against", "at least", "seen", "compared", ""):
        table.add_column(name)
    for found in verdicts(report):
        table.add_row(*found[:-1], "met" if found.met else "[red]missed")
    console.print(table)
