"""`make growth`: what a request costs the broker when queues, connections, groups or the log grow; with pictures.

    python -m scripts.bench.growth [--only queues] [--rounds 5] [--seconds 1]

Figures go to build/growth.json, pictures to build/growth-*.svg.
CPU time of the broker is compared, because rates depend on other work on the machine.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from scripts.bench.growth import recovery
from scripts.bench.growth.draw import draw
from scripts.bench.growth.series import SERIES, Point, Series, filled

ROOT: Final = Path(__file__).resolve().parents[3]
OUTPUT: Final = ROOT / "build" / "growth.json"
RECOVERY: Final = "recovery"
NAMES: Final = (*(series.name for series in SERIES), RECOVERY)

Lines = dict[str, list[tuple[float, float]]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=NAMES, help="a part of the run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--bytes-max", type=int, default=1_000_000_000, help="of log, for log and recovery")
    given = parser.parse_args()
    if min(given.rounds, given.seconds, given.bytes_max) <= 0:
        parser.error("--rounds, --seconds and --bytes-max must be above 0")
    OUTPUT.parent.mkdir(exist_ok=True)
    figures: dict[str, Any] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="growth-", dir=OUTPUT.parent) as folder,
        Progress(console=console) as progress,
    ):
        for name in given.only or NAMES:
            task = progress.add_task(name, total=None)
            lines = _measure(name, Path(folder) / name, given)
            figures[name] = lines
            OUTPUT.write_text(json.dumps(figures, indent=1))
            progress.update(task, total=1, completed=1)
    for name in given.only or NAMES:
        _show(name, figures[name], console)
        draw(OUTPUT.with_name(f"growth-{name}.svg"), *_titles(name), figures[name])
    return 0


def _measure(name: str, folder: Path, given: argparse.Namespace) -> Lines:
    folder.mkdir()
    if name == RECOVERY:
        return _recoveries(folder, given)
    series = next(one for one in SERIES if one.name == name)
    sizes = [size for size in series.sizes if series.unit != "bytes" or size <= given.bytes_max]
    with ExitStack() as stack:
        points = [stack.enter_context(_opened(series, size, folder)) for size in sizes]
        return _rounds(points, given.rounds, given.seconds)


@contextmanager
def _opened(series: Series, size: int, folder: Path) -> Any:
    home = folder / str(size)
    home.mkdir()
    yield from filled(series, size, home)


def _rounds(points: Sequence[Point], rounds: int, seconds: float) -> Lines:
    """All sizes in turns, and the median of the rounds: other work on the machine meets all sizes alike."""
    found: dict[str, dict[int, list[float]]] = {}
    for point in points:  # not measured: the first requests make files and import modules
        for name in point.frames:
            point.measure(name, seconds / 4)
    for _ in range(rounds):
        for point in points:
            for name in point.frames:
                found.setdefault(name, {}).setdefault(point.size, []).append(point.measure(name, seconds))
    return {
        name: [(size, round(statistics.median(figures), 2)) for size, figures in by_size.items()]
        for name, by_size in found.items()
    }


def _recoveries(folder: Path, given: argparse.Namespace) -> Lines:
    lines: Lines = {}
    for size in recovery.SIZES:
        if size <= given.bytes_max:
            home = folder / str(size)
            home.mkdir()
            for kind, seconds in recovery.start_seconds(size, home, min(given.rounds, 3)).items():
                lines.setdefault(kind, []).append((size, round(statistics.median(seconds), 3)))
    return lines


def _titles(name: str) -> tuple[str, tuple[str, str]]:
    if name == RECOVERY:
        return "Start of a broker", ("bytes in the log, messages of 1 KB", "CPU seconds of the start")
    series = next(one for one in SERIES if one.name == name)
    return series.title, (series.unit, "broker CPU, us a request")


def _show(name: str, lines: Lines, console: Console) -> None:
    title, (of_sizes, of_figures) = _titles(name)
    table = Table(title=f"{title}: {of_figures}")
    table.add_column(of_sizes, justify="right")
    for line in lines:
        table.add_column(line, justify="right")
    by_size: dict[float, dict[str, float]] = {}
    for line, points in lines.items():
        for size, figure in points:
            by_size.setdefault(size, {})[line] = figure
    for size, row in by_size.items():
        table.add_row(f"{size:,}", *[f"{row[line]:g}" if line in row else "" for line in lines])
    console.print(table)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
