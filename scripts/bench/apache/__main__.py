"""`make bench APACHE=1`: Apache's broker and ours side by side, in turns, medians of five rounds.

    python -m scripts.bench.apache [--only raw] [--without-apache]

Apache's broker and Java drivers are set up by `make bench APACHE=1`. Rates depend on the machine and on other work
there: compare the ratios, and CPU time of the broker a message. LOCKSTEP_NATIVE=0 measures without the native part.
SMALL=1 has fewer and shorter rounds, and no handovers.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lockstep.protocol.native import NATIVE
from scripts.bench.apache.apart import measure_handovers, measure_start, measure_sync
from scripts.bench.apache.floors import show_floors, verdicts
from scripts.bench.apache.java import JavaClient
from scripts.bench.apache.page import bench_page
from scripts.bench.apache.parts import TOPICS, Bench
from scripts.bench.apache.report import Report, show
from scripts.bench.apache.servers import APACHE, FILES, MEMORY, served
from scripts.bench.command import OUTPUT, SMALL, keep, known_figures, parser_of, wide_console

ROOT: Final = Path(__file__).resolve().parents[3]
PARTS: Final = ("raw", "client", "java", "drains", "start", "sync", "handover")
WITHOUT_JAVA: Final = ("raw", "client", "drains", "start", "sync")
CASES: Final = {"raw": 4, "client": 3, "java": 3, "drains": 4, "start": 1, "sync": 4}  # of a part, about
WARM_UP_S: Final = 24.0


def main() -> int:
    parser = parser_of(__doc__, rounds=3 if SMALL else 5)
    parser.add_argument("--only", action="append", choices=PARTS, help="a part of the run")
    parser.add_argument("--seconds", type=float, default=0.5 if SMALL else 1.0, help="of each measurement")
    parser.add_argument("--messages", type=int, default=200_000 if SMALL else 1_000_000, help="of each drain")
    parser.add_argument("--warm-up-seconds", type=float, default=WARM_UP_S / 2 if SMALL else WARM_UP_S)
    parser.add_argument("--without-apache", action="store_true", help="measure our broker alone: no Java is needed")
    parser.add_argument("--add", action="store_true", help="add the parts to the run that is in build/bench.json")
    parser.add_argument("--note", default="", help="a sentence about the run, for the tables")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a start would compile all modules each time
    usual = WITHOUT_JAVA if given.without_apache else tuple(part for part in PARTS if part != "handover" or not SMALL)
    parts = tuple(part for part in PARTS if part in (given.only or usual))
    console = wide_console()
    (ROOT / "build").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-apache-", dir=ROOT / "build") as folder,
        Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console) as progress,
    ):
        task = progress.add_task("starting", total=2.5 * given.rounds * sum(CASES.get(part, 1) for part in parts))

        def tell(what: str, done: int) -> None:
            progress.update(task, description=f"{what:<40}", advance=done)

        began = time.perf_counter()
        report = run(given, parts, Path(folder), tell)
        progress.update(task, completed=1, total=1, description=f"{'done':<40}")
    report.machine |= {"took_s": round(time.perf_counter() - began), "note": given.note}
    if given.add:
        report = last_run().with_parts(report)
    show(report, console)
    show_floors(report, console)
    if given.add or not given.only:
        save(report)
        console.print(f"written to {OUTPUT.relative_to(ROOT)} and {OUTPUT.with_suffix('.html').relative_to(ROOT)}")
    return 1 if any(not found.met for found in verdicts(report)) else 0


def run(given: argparse.Namespace, parts: tuple[str, ...], folder: Path, tell: Callable[[str, int], None]) -> Report:
    """Measure the parts. Raises what a broker or a client raises that does not do as it should."""
    keys = (FILES, MEMORY) if given.without_apache else (APACHE, FILES, MEMORY)
    pair = tuple(key for key in keys if key != MEMORY)
    report = Report(machine())
    with ExitStack() as stack:
        contenders = (
            stack.enter_context(served(folder, keys, TOPICS)) if {*parts} & {"raw", "client", "java", "drains"} else {}
        )
        wants_java = not given.without_apache and {*parts} & {"java", "drains"}
        java = stack.enter_context(JavaClient(folder)) if wants_java else None
        bench = Bench(contenders, given.rounds, given.seconds, given.warm_up_seconds, given.messages, tell)
        bench.prepare(drains="drains" in parts)
        if "raw" in parts:
            report.cases |= bench.raw()
        if "client" in parts:
            report.cases |= bench.client()
        if "java" in parts and java is not None:
            report.cases |= bench.java(java, pair)
        if "drains" in parts:
            report.cases |= bench.drains(java, pair)
    if "start" in parts:
        report.start = measure_start(folder, tuple(key for key in keys if key != FILES), given.rounds, tell)
    if "sync" in parts:
        report.cases |= measure_sync(folder, pair, given.rounds, given.seconds, given.warm_up_seconds, tell)
    if "handover" in parts:
        report.handover = measure_handovers(pair, tell)
    return report


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    names = (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    return {
        "cores": os.cpu_count(),
        "arm": "native" if NATIVE is not None else "pure",
        "cpu": next(names, "").partition(":")[2].strip(),
        "python": platform.python_version(),
        "java": _java_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _java_version() -> str:
    """Of the machine's Java; empty without one."""
    if shutil.which("java") is None:
        return ""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else ""


def last_run() -> Report:
    """The run in build/bench.json. Raises KeyError without one."""
    return Report.from_json(known_figures()["apache"])


def save(report: Report) -> None:
    """Write build/bench.json and the page."""
    keep({"apache": report.to_json()})
    OUTPUT.with_suffix(".html").write_text(bench_page(report), encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
