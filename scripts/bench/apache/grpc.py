"""`make bench APACHE=grpc`: Java's and Go's clients of gRPC at our broker, and at RocketMQ 5.5's with its proxy.

    python -m scripts.bench.apache.grpc [--without-apache] [--rounds N] [--count N]

Sends have a message group for each of those in flight; a receive is one of up to 32 messages of a FIFO group, and each
message has an acknowledgement of its own. A client is a process of its own, which warms up before it is measured. All
brokers are measured in turns. SMALL=1 has fewer rounds and messages. All samples are in build/bench.json, under `grpc`.
"""

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from scripts.bench.apache.apart import Numbers, measure_start
from scripts.bench.apache.figures import Case, Measure, Sample, Stopwatch, in_turns
from scripts.bench.apache.java import said_by
from scripts.bench.apache.servers import APACHE_PROXY, FENCED, FILES, TITLES, Contender, served
from scripts.bench.command import SMALL, keep, parser_of, progress, wide_console
from tests.interop.harness.installed import BUILD, jars, require

__all__ = ["main"]

TOPIC: Final = "BenchGrpc"
QUEUES: Final = 8
BATCH: Final = 32
ANSWER_S: Final = 300
_groups = itertools.count()


class Work(NamedTuple):
    """What a client does, and how many at a time."""

    title: str
    do: str
    in_flight: int


WORKS: Final = (
    Work("FIFO sends, 1 in flight", "send", 1),
    Work("FIFO sends, 64 in flight", "send", 64),
    Work("receive and acknowledge", "receive", 1),
)


def java(work: Work) -> list[str]:
    """The command of Java's client, without the options that both have."""
    require("drivers5")
    return ["java", "-XX:+UseSerialGC", "-Xmx512m", "-cp", f"{BUILD / 'java5' / 'classes'}:{jars('java5')}/*",
            "GrpcBench", "--do", work.do]  # fmt: skip


def go(work: Work) -> list[str]:
    """The command of Go's client, without the options that both have."""
    return [str(require("go5") / "driver"), f"bench-{work.do}"]


CLIENTS: Final = {"Java": java, "Go": go}


def measure(command: Sequence[str], work: Work, count: int, folder: Path, contender: Contender) -> Sample:
    """One round of one client. Raises RuntimeError with what the client said last when it ends too early."""
    options: dict[str, Any] = {"endpoints": contender.server.grpc, "topic": TOPIC, "count": count, "warm-up": count}
    if work.do == "send":
        options |= {"in-flight": work.in_flight, "fifo": "true"}
    else:
        group = f"BenchGrpc{next(_groups)}"
        asyncio.run(_make_group(contender, group))
        options |= {"group": group, "batch": BATCH, "in-flight": work.in_flight}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environment = os.environ | {"rocketmq.client.logRoot": str(folder), "HOME": str(folder)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([*command, *words], text=True, env=environment, cwd=folder, **pipes) as client:  # type: ignore[call-overload]
        try:
            said_by(client, "warm")
            watch = Stopwatch(contender.server.pids[0], client.pid)
            said = said_by(client, "measured")
            return watch.sample(count, said["seconds"])
        finally:
            client.kill()


async def _make_group(contender: Contender, group: str) -> None:
    async with contender.server.admin() as admin:
        await admin.put_group(group, in_order=True)


async def _make_topic(contender: Contender) -> None:
    await contender.server.create_topic(TOPIC, QUEUES, message_type="FIFO")


def title_of(client: str, work: Work) -> str:
    return f"{client}: {work.title}"


def show(found: Mapping[str, Case], start: Mapping[str, Numbers], console: Console) -> None:
    """Print the medians, and how many times Apache's rate and processor time they are."""
    keys = list(start)
    table = Table(title="messages a second, and the broker's CPU time for one, in us", title_justify="left")
    table.add_column("")
    for key in keys:
        for name in (TITLES[key], "us"):
            table.add_column(name, justify="right")
    if APACHE_PROXY in keys:
        for name in ("times its rate", "times less CPU"):
            table.add_column(name, justify="right")
    for title, case in found.items():
        table.add_row(title, *itertools.chain.from_iterable(_cells(case, key) for key in keys), *_ratios(case))
    console.print(table)
    for key, numbers in start.items():
        medians = {name: statistics.median(values) for name, values in numbers.items()}
        console.print(f"{TITLES[key]}: " + ", ".join(f"{name} {value}" for name, value in medians.items()))


def _cells(case: Case, key: str) -> tuple[str, str]:
    return f"{case.median(key):,.0f}", f"{case.median(key, 'broker_us'):.0f}"


def _ratios(case: Case) -> Iterator[str]:
    if APACHE_PROXY in case.samples:
        yield f"{case.ratio(FILES, case, APACHE_PROXY):.2f}"
        yield f"{case.cpu_ratio(FILES, case, APACHE_PROXY):.2f}"


def main() -> int:
    parser = parser_of(__doc__, rounds=1 if SMALL else 5)
    parser.add_argument("--without-apache", action="store_true", help="our broker alone")
    parser.add_argument("--count", type=int, default=1000 if SMALL else 4000, help="messages of each measurement")
    given = parser.parse_args()
    console = wide_console()
    keys = (FILES, FENCED) if given.without_apache else (APACHE_PROXY, FILES, FENCED)
    with tempfile.TemporaryDirectory(prefix="bench-grpc-") as folder, progress(console) as tell:
        start = measure_start(Path(folder), keys, min(given.rounds, 3), tell)
        home = Path(folder) / "work"
        home.mkdir()
        with served(home, keys, ()) as contenders:
            for one in contenders.values():
                asyncio.run(_make_topic(one))
            runs: dict[str, dict[str, Measure]] = {
                title_of(name, work): {
                    key: partial(measure, command(work), work, given.count, home, one)
                    for key, one in contenders.items()
                }
                for name, command in CLIENTS.items()
                for work in WORKS
            }
            found = in_turns(runs, given.rounds, tell)
    show(found, start, console)
    keep({"grpc": {"cases": {title: case.to_json() for title, case in found.items()}, "start": start}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
