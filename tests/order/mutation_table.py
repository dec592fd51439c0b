"""What the judge finds of wrongs put into real runs, and of good histories.

`python -m tests.order.mutation_table` writes the tables to build/docs/judge.md.
"""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockstep.order import check_traces
from tests.order.content_mutations import MUTATIONS
from tests.order.good_table import good_table, judged
from tests.order.mutations import Mutation, Traces
from tests.order.ways import on_machines
from tests.order.worlds import run

__all__ = ["RUNS", "Cell", "Row", "recorded", "rows", "share", "table"]

RECORDED = Path(__file__).parent / "traces"
WORLDS: Final = ((16, "queue"), (9, "key"), (24, "queue"), (12, "queue"))  # seeds of simulated runs with handovers


class Cell(NamedTuple):
    """At how many places a wrong was put in, found as a violation, found under its name, and left undecided."""

    places: int = 0
    found: int = 0
    named: int = 0
    undecided: int = 0

    def __add__(self, other: object) -> "Cell":
        assert isinstance(other, Cell)
        return Cell(*(one + more for one, more in zip(self, other, strict=True)))

    def __str__(self) -> str:
        if not self.places:
            return "-"
        parts = [f"{self.found} of {self.places}"]
        parts += [f"{self.named} named"] if self.named < self.found else []
        parts += [f"{self.undecided} undecided"] if self.undecided else []
        return ", ".join(parts)


class Row(NamedTuple):
    """What became of one operator in each kind of run."""

    name: str
    cells: dict[str, Cell]


@cache
def recorded(name: str) -> str:
    """A recorded run, as JSON text of its traces.

    `demo`: two queues of a small demo with a killed consumer, every eighth message, offsets numbered anew.
    `interop`: four queues, consumed by two of Lockstep's consumers and two of Java's, one of each killed, one of Java's
    stopped and one added; every third message, offsets numbered anew.
    """
    traces: dict[int, list[dict[str, Any]]] = {}
    for line in gzip.decompress((RECORDED / f"{name}.jsonl.gz").read_bytes()).splitlines():
        source, record = json.loads(line)
        traces.setdefault(source, []).append(record)
    return json.dumps(list(traces.values()))


@cache
def simulated(seed: int, ordering: str) -> str:
    """A simulated run, on one clock."""
    return json.dumps(run(seed, ordering=ordering).one_clock)


def _recorded(name: str, number: int) -> Traces:
    return json.loads(recorded(name))  # type: ignore[no-any-return]


def _simulated(number: int) -> Traces:
    return json.loads(simulated(*WORLDS[number % len(WORLDS)]))  # type: ignore[no-any-return]


def _any(number: int) -> Traces:
    return _simulated(number // 2) if number % 2 else _recorded("demo", number)


RUNS: Final[dict[str, Callable[[int], Traces]]] = {
    "demo": lambda number: _recorded("demo", number),
    "with Java": lambda number: _recorded("interop", number),
    "simulator": _simulated,
    "several machines": _any,
}


def rows(tries: int, names: Sequence[str] = tuple(RUNS)) -> list[Row]:
    """Each operator at so many places by chance, in each kind of run."""
    return [
        Row(name, {run_name: _cell(name, mutation, run_name, tries) for run_name in names})
        for name, mutation in MUTATIONS.items()
    ]


def _cell(name: str, mutation: Mutation, run_name: str, tries: int) -> Cell:
    cell = Cell()
    for number in range(tries):
        rng = random.Random(f"{name} {number}")
        traces = RUNS[run_name](number)
        if mutation.change(traces, rng):
            if run_name == "several machines":
                traces = on_machines(traces, rng)
            report = check_traces(traces)
            found = bool(report.violation_counts or report.lost)
            named = bool(mutation.kinds & report.violation_counts.keys())
            cell += Cell(1, found, named, not found and bool(report.undecided_counts))
    return cell


def share(found: Sequence[Row], run_name: str) -> tuple[float, float]:
    """Of the wrongs that were not left undecided: the share that was found, and the share that was named rightly."""
    total = sum((row.cells[run_name] for row in found), Cell())
    decided = total.places - total.undecided
    return total.found / decided, total.named / decided


def table(found: Sequence[Row]) -> str:
    """In Markdown."""
    names = list(found[0].cells)
    lines = [f"| what was put in | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines += [
        f"| {row.name.replace('_', ' ')} | {' | '.join(str(row.cells[name]) for name in names)} |" for row in found
    ]
    totals = [sum((row.cells[name] for row in found), Cell()) for name in names]
    lines.append(f"| **all {len(found)}** | {' | '.join(f'**{total}**' for total in totals)} |")
    return "\n".join(lines) + "\n"


def _main() -> None:
    target = Path("build", "docs", "judge.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    page = f"# What the judge finds\n\n{good_table(judged(45, 60))}\n{table(rows(5))}"
    target.write_text(page, encoding="utf-8")
    print(f"written: {target}")


if __name__ == "__main__":
    _main()
