"""What the judge finds of the mutations of a recorded run: the table of docs/judge.md.

`python -m tests.order.mutation_table` writes it.
"""

import gzip
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.order import check_traces
from tests.order.content_mutations import MUTATIONS

__all__ = ["Row", "recorded", "rows", "table"]

PAGE = Path(__file__).parents[2] / "docs" / "judge.md"
RECORDED = Path(__file__).parent / "traces" / "demo.jsonl.gz"
BEGIN, END = "<!-- mutations -->\n", "<!-- end of mutations -->"


class Row(NamedTuple):
    """How often one operator found a place, was found as a violation, and under one of its names."""

    name: str
    places: int
    found: int
    named: int


def recorded() -> list[list[dict[str, Any]]]:
    """Two queues of a small demo with a killed consumer, every eighth message, offsets numbered anew."""
    traces: dict[int, list[dict[str, Any]]] = {}
    for line in gzip.decompress(RECORDED.read_bytes()).splitlines():
        source, record = json.loads(line)
        traces.setdefault(source, []).append(record)
    return list(traces.values())


def rows(tries: int) -> list[Row]:
    """Each operator at so many places by chance."""
    text = json.dumps(recorded())
    found = []
    for name, mutation in MUTATIONS.items():
        counts = [0, 0, 0]
        for number in range(tries):
            traces = json.loads(text)
            if mutation.change(traces, random.Random(f"{name} {number}")):
                report = check_traces(traces)
                counts[0] += 1
                counts[1] += bool(report.violation_counts or report.lost)
                counts[2] += bool(mutation.kinds & report.violation_counts.keys())
        found.append(Row(name, *counts))
    return found


def table(found: list[Row]) -> str:
    """For docs/judge.md."""
    lines = ["| what was put in | places | found | named |", "|---|---|---|---|"]
    lines += [f"| {row.name.replace('_', ' ')} | {row.places} | {row.found} | {row.named} |" for row in found]
    places, seen, named = (
        sum(column) for column in zip(*[(row.places, row.found, row.named) for row in found], strict=True)
    )
    lines.append(f"| **all {len(found)}** | **{places}** | **{seen}** | **{named}** |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + table(rows(5)) + END + rest.split(END)[1], encoding="utf-8")
