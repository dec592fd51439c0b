"""What a run found: its figures as JSON, and as rows of tables."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from rich.console import Console
from rich.table import Table

from scripts.bench.apache.figures import Case
from scripts.bench.apache.servers import APACHE, FILES, MEMORY

__all__ = ["GROUPS", "HEAD", "WORKS", "Report", "rate_text", "seconds_text", "show", "us_text"]

GROUPS: Final = {
    "raw": "a raw client that writes frames with JSON headers",
    "client": "our client",
    "java": "Java's client 4.9.8, in order by MessageQueueSelector",
    "sync": "our client, --flush sync (Apache: SYNC_FLUSH)",
}
CLIENTS: Final = {
    "raw": "a raw client",
    "client": "our client",
    "java": "Java's client",
    "sync": "our client with --flush sync",
}
# Each case: its group and the work.
WORKS: Final = {
    "raw_send_1": ("raw", "sends, 1 in flight"),
    "raw_send_64": ("raw", "sends, 64 in flight"),
    "raw_pull_32": ("raw", "messages pulled, 32 a pull"),
    "raw_lock_8": ("raw", "lock calls of 8 queues"),
    "client_send_1": ("client", "sends in order, 1 in flight"),
    "client_send_64": ("client", "sends in order, 64 in flight"),
    "client_send_64_batched": ("client", "sends in order, 64 in flight, in batches"),
    "client_drain_1": ("client", "ordered drain, message by message"),
    "client_drain_32": ("client", "ordered drain, batches of 32"),
    "java_send_1": ("java", "sends, 1 thread"),
    "java_send_16": ("java", "sends, 16 threads"),
    "java_send_64": ("java", "sends, 64 threads"),
    "java_drain_1": ("java", "ordered drain, message by message"),
    "java_drain_32": ("java", "ordered drain, batches of 32"),
    "sync_send_1": ("sync", "sends in order, 1 in flight"),
    "sync_send_64": ("sync", "sends in order, 64 in flight"),
}


@dataclass
class Report:
    """The figures of one run. Parts that did not run are empty.

    Attributes:
        machine: Cores, processor, Python, date, and `arm`: "native" or "pure".
        cases: By the names of WORKS.
        start: By broker: `seconds` and `rss_mb` of each round.
        handover: By broker: seconds by kind.
    """

    machine: dict[str, Any]
    cases: dict[str, Case] = field(default_factory=dict)
    start: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    handover: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        cases = {name: case.to_json() for name, case in self.cases.items()}
        return {"machine": self.machine, "cases": cases, "start": self.start, "handover": self.handover}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        cases = {name: Case.from_json(one) for name, one in data["cases"].items()}
        return cls(data["machine"], cases, data["start"], data["handover"])

    def with_parts(self, other: "Report") -> "Report":
        """This run with the parts that another one has, in place of its own."""
        took = {"took_s": self.machine["took_s"] + other.machine["took_s"]}
        note = {"note": " ".join(filter(None, (self.machine["note"], other.machine["note"])))}
        start, handover = other.start or self.start, other.handover or self.handover
        return Report(self.machine | took | note, self.cases | other.cases, start, handover)

    @property
    def arm(self) -> str:
        """Which broker ran: `native` or `pure`."""
        return str(self.machine.get("arm", "pure"))

    def start_of(self, key: str, name: str) -> float:
        """Median of `seconds`, `cpu_s` or `rss_mb` of a broker's start."""
        return statistics.median(self.start[key][name])

    def client_text(self, name: str) -> str:
        """The client of a case and what it does."""
        return f"{CLIENTS[WORKS[name][0]]}, {WORKS[name][1]}"

    # Rows ------------------------------------------------------------------------------------------------------

    def rows(self, group: str) -> list[list[str]]:
        """Work; rates of Apache and ours; times Apache; CPU time of Apache's broker and ours; times less."""
        return [self._row(name) for name in WORKS if WORKS[name][0] == group and name in self.cases]

    def _row(self, name: str) -> list[str]:
        case = self.cases[name]
        rates = [rate_text(case.median(key)) if key in case.samples else "" for key in (APACHE, FILES, MEMORY)]
        times = [us_text(case.median(key, "broker_us")) if key in case.samples else "" for key in (APACHE, FILES)]
        both = APACHE in case.samples
        ratio = f"{case.ratio(FILES, case, APACHE):.2f}" if both else ""
        cpu_ratio = f"{case.cpu_ratio(FILES, case, APACHE):.2f}" if both else ""
        client = f"{case.median(FILES, 'client_share'):.2f}"
        return [WORKS[name][1], *rates, ratio, *times, cpu_ratio, client]

    def other_rows(self) -> list[list[str]]:
        """Start, memory and handovers: the name, and the figures of Apache and of ours."""
        rows = []
        if APACHE in self.start and MEMORY in self.start:
            for name, text in STARTS.items():
                both = (self.start_of(key, name) for key in (APACHE, MEMORY))
                rows.append([text, *[f"{one:.0f} MB" if name == "rss_mb" else f"{one:.2f} s" for one in both]])
        if APACHE in self.handover and FILES in self.handover:
            theirs, ours = self.handover[APACHE], self.handover[FILES]
            rows += [[text, seconds_text(theirs[kind]), seconds_text(ours[kind])] for kind, text in HANDOVERS.items()]
        return rows

    def apache_is_better(self) -> list[str]:
        """The cases in which Apache's broker is faster with the same client, with the ratio."""
        return [
            f"{self.client_text(name)} ({ratio:.2f})"
            for name, case in self.cases.items()
            if name in WORKS and APACHE in case.samples and (ratio := case.ratio(FILES, case, APACHE)) < 1
        ]


STARTS: Final = {
    "seconds": "from the start of the processes to the first connection",
    "cpu_s": "CPU time of broker and name server until then",
    "rss_mb": "memory of broker and name server then",
}
HANDOVERS: Final = {
    "planned_p50": "a member joins or leaves: a moved queue rests, p50",
    "planned_longest": "the same, longest",
    "killed": "an owner is killed: until its last queue is handled again",
    "restart": "the broker is killed and listens again: until all queues are handled again",
}
HEAD: Final = ("work", "Apache 4.9.7", "Lockstep", "in memory", "times Apache", "CPU us, Apache", "CPU us, Lockstep",
               "times less", "client, cores")  # fmt: skip


def rate_text(number: float) -> str:
    return f"{float(f'{number:.3g}'):,.0f}"


def seconds_text(number: float) -> str:
    return f"{number:.1f} s" if number >= 1 else f"{number * 1000:.0f} ms"


def us_text(number: float) -> str:
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def show(report: Report, console: Console) -> None:
    """Print all tables."""
    table = Table(title="medians; CPU time of the broker is for a message or call", title_justify="left")
    for name in HEAD:
        table.add_column(name, justify="left" if name == "work" else "right")
    for group, title in GROUPS.items():
        rows = report.rows(group)
        if rows:
            table.add_section()
            table.add_row(f"[bold]{title}", *[""] * (len(HEAD) - 1))
            for row in rows:
                table.add_row(*row)
    if table.row_count:
        console.print(table)
    for key, numbers in report.start.items():
        console.print(f"start of {key}: {numbers}")
    for key, times in report.handover.items():
        console.print(f"handovers, {key}: {times}")
