"""Write the tables of docs/benchmarks.md and of both READMEs from the figures of a run.

    python -m scripts.bench.apache.publish [build/bench.json]

The figures are kept in docs/benchmarks.json. Without a file the tables are written from these again.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from scripts.bench.apache.report import GROUPS, HEAD, Report, rate_text
from scripts.bench.apache.servers import APACHE, FILES, MEMORY

__all__ = ["FIGURES", "PAGES", "main", "published", "rewritten"]

ROOT: Final = Path(__file__).resolve().parents[3]
FIGURES: Final = ROOT / "docs" / "benchmarks.json"
_ENGLISH: Final = (
    "a second", "Lockstep, our client", "Apache 4.9.7, Java's",
    "sends in order, 64 in flight", "the same, with Java's client at both brokers",
    "drained in order, batches of 32", "memory",
)  # fmt: skip
_CHINESE: Final = (
    "每秒", "Lockstep 自带客户端", "Apache 4.9.7 的 Java 客户端",
    "顺序发送 (64 条在途)", "同样的发送 (对两种 broker 都用 Java 客户端)", "顺序消费积压 (每批 32 条)", "内存",
)  # fmt: skip
BLOCK: Final = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, help="the figures of a run")
    given = parser.parse_args()
    if given.run:
        data = json.loads(given.run.read_text(encoding="utf-8"))["apache"]
        FIGURES.write_text(_compact(data), encoding="utf-8")
    for path in PAGES:
        path.write_text(rewritten(path), encoding="utf-8")
    return 0


def published() -> Report:
    """The figures in docs/benchmarks.json."""
    return Report.from_json(json.loads(FIGURES.read_text(encoding="utf-8")))


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


def _benchmarks(report: Report) -> Iterator[str]:
    machine = report.machine
    yield (
        f"A run of {machine['took_s'] / 60:.0f} minutes on {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['date']}, Python {machine['python']}, Java {machine['java']}. Rates are a second."
    )
    if machine["note"]:
        yield machine["note"]
    for group, title in GROUPS.items():
        if rows := report.rows(group):
            yield from ("", f"**With {title}:**", "")
            yield from _table(*_without(list(HEAD), rows))
    yield from ("", "**Start, memory, handovers:**", "")
    yield from _table(["", "Apache 4.9.7", "Lockstep"], report.other_rows())
    if missed := [one for one in report.verdicts() if not one.met]:
        yield from ("", "**Floors that were aimed at and missed:**", "")
        yield from (f"- {one.work}, to {one.against}: {one.seen}, aimed at {one.floor}" for one in missed)
    if better := report.apache_is_better():
        yield from ("", "**Apache's broker is faster at** (Lockstep's rate over Apache's, with the same client):", "")
        yield from (f"- {one}" for one in better)


def _without(head: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A table without the columns that only the page of plots has."""
    left = [place for place, name in enumerate(head) if name not in {"in memory", "times less", "client, cores"}]
    return [head[place] for place in left], [[row[place] for place in left] for row in rows]


def _readme(report: Report, words: Sequence[str] = _ENGLISH) -> Iterator[str]:
    """A short one: README has little room."""
    *head, sends, sends_by_java, drained, memory = words

    def row(text: str, ours: str, theirs: str) -> list[str]:
        return [text, rate_text(report.cases[ours].median(FILES)), rate_text(report.cases[theirs].median(APACHE))]

    rows = [
        row(sends, "client_send_64", "java_send_64"),
        row(sends_by_java, "java_send_64", "java_send_64"),
        row(drained, "client_drain_32", "java_drain_32"),
        [memory, *[f"{report.start_of(key, 'rss_mb'):.0f} MB" for key in (MEMORY, APACHE)]],
    ]
    yield from _table(head, rows)


PAGES: Final[dict[Path, Callable[[Report], Iterator[str]]]] = {
    ROOT / "docs" / "benchmarks.md": _benchmarks,
    ROOT / "README.md": _readme,
    ROOT / "README.zh.md": partial(_readme, words=_CHINESE),
}


if __name__ == "__main__":
    sys.exit(main())
