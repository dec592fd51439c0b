"""Write the tables of docs/benchmarks.md and of both READMEs from the figures of two runs.

    python -m scripts.bench.apache.publish [native.json pure.json]

Each file is a build/bench.json: of a run with the native part, and of one with LOCKSTEP_NATIVE=0. The figures are kept
in docs/benchmarks.json. Without files the tables are written from these again.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from scripts.bench.apache.floors import Verdict, verdicts
from scripts.bench.apache.report import WORKS, Report, rate_text, us_text
from scripts.bench.apache.servers import APACHE, FILES, MEMORY

__all__ = ["FIGURES", "PAGES", "Runs", "main", "published", "rewritten"]

ROOT: Final = Path(__file__).resolve().parents[3]
FIGURES: Final = ROOT / "docs" / "benchmarks.json"
_ENGLISH: Final = (
    "a second", "native", "pure", "Apache 4.9.7", "sends in order, 64 in flight", "the same, Java's client at both",
    "drained in order, batches of 32", "memory",
)  # fmt: skip
_CHINESE: Final = (
    "每秒", "原生部件", "纯 Python", "Apache 4.9.7", "顺序发送 (64 条在途)",
    "同样的发送 (对两种 broker 都用 Java 客户端)", "顺序消费积压 (每批 32 条)", "内存",
)  # fmt: skip
BLOCK: Final = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="of a run with the native part, and of one without")
    given = parser.parse_args()
    if given.runs:
        found = (json.loads(path.read_text(encoding="utf-8"))["apache"] for path in given.runs)
        runs = {data["machine"]["arm"]: data for data in found}
        if [*runs] != ["native", "pure"]:
            parser.error(f"give a native run and a pure one; these are {[*runs]}")
        FIGURES.write_text(_compact(runs), encoding="utf-8")
    for path in PAGES:
        path.write_text(rewritten(path), encoding="utf-8")
    return 0


class Runs(NamedTuple):
    """The two runs of docs/benchmarks.json."""

    native: Report
    pure: Report


def published() -> Runs:
    """The figures in docs/benchmarks.json."""
    data = json.loads(FIGURES.read_text(encoding="utf-8"))
    return Runs(Report.from_json(data["native"]), Report.from_json(data["pure"]))


def rewritten(path: Path) -> str:
    """A page of PAGES with its tables made anew. Raises ValueError for a page without the two markers."""
    lines = "\n".join(PAGES[path](published()))
    text, count = BLOCK.subn(lambda found: f"{found[1]}{lines}\n{found[2]}", path.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{path.name}: {count} blocks of generated figures instead of 1")
    return text


def _compact(data: object) -> str:
    """JSON with the samples of a case and a broker on one line."""
    text = json.dumps(data, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]|\[\s*\[[^{}]*?\]\s*\]", lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n"


def _table(head: list[str], rows: list[list[str]], left: int = 1) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "|".join("---" if place < left else "---:" for place in range(len(head))) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


HEAD: Final = ["work", "Apache", "native", "pure", "times", "times", "CPU us", "CPU us", "CPU us"]
WHOSE: Final = ["", "", "", "", "native", "pure", "Apache", "native", "pure"]


def _benchmarks(runs: Runs) -> Iterator[str]:
    machine = runs.native.machine
    took_s = sum(run.machine["took_s"] for run in runs)
    yield (
        f"Two runs of together {took_s / 60:.0f} minutes on {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['date']}, Python {machine['python']}, Java {machine['java']}. Rates are a second; "
        "Apache's are those beside the native broker."
    )
    yield from (note for run in runs if (note := run.machine["note"]))
    yield ""
    rows = [WHOSE, *[_row(runs, name) for name in WORKS if name in runs.native.cases]]
    yield from _table(HEAD, rows)
    yield ""
    others = zip(runs.native.other_rows(), runs.pure.other_rows(), strict=False)
    yield from _table(["", "Apache", "native", "pure"], [[*native, pure[-1]] for native, pure in others])
    for run in runs:
        if missed := [one for one in verdicts(run) if not one.met]:
            yield from ("", f"**Aimed at and missed, {run.arm}:**", "")
            yield from (f"- {one.work}, {one.how}: {one.seen}, not {one.floor}{_beside(one)}" for one in missed)


def _beside(verdict: Verdict) -> str:
    same = verdict.against in {"", "Apache, the same"}
    return "" if same else f" (beside {verdict.against})"


def _row(runs: Runs, name: str) -> list[str]:
    """Work; rates of Apache, native and pure; times Apache's; CPU time of the three brokers for a message or call."""
    native, pure = (run.cases[name] for run in runs)
    sides = ((native, APACHE), (native, FILES), (pure, FILES))
    rates = [rate_text(case.median(key)) for case, key in sides]
    times = [f"{case.ratio(FILES, case, APACHE):.2f}" for case in (native, pure)]
    cpu = [us_text(case.median(key, "broker_us")) for case, key in sides]
    return [runs.native.client_text(name), *rates, *times, *cpu]


def _readme(runs: Runs, words: Sequence[str] = _ENGLISH) -> Iterator[str]:
    """A short one: README has little room."""
    *head, sends, sends_by_java, drained, memory = words

    def row(text: str, ours: str, theirs: str) -> list[str]:
        rates = [run.cases[ours].median(FILES) for run in runs]
        return [text, *map(rate_text, [*rates, runs.native.cases[theirs].median(APACHE)])]

    most = [run.start_of(MEMORY, "rss_mb") for run in runs]
    rows = [
        row(sends, "client_send_64", "java_send_64"),
        row(sends_by_java, "java_send_64", "java_send_64"),
        row(drained, "client_drain_32", "java_drain_32"),
        [memory, *[f"{mb:.0f} MB" for mb in (*most, runs.native.start_of(APACHE, "rss_mb"))]],
    ]
    yield from _table(head, rows)


PAGES: Final[dict[Path, Callable[[Runs], Iterator[str]]]] = {
    ROOT / "docs" / "benchmarks.md": _benchmarks,
    ROOT / "README.md": _readme,
    ROOT / "README.zh.md": partial(_readme, words=_CHINESE),
}


if __name__ == "__main__":
    sys.exit(main())
