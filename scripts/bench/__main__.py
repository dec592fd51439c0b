"""`make bench`: Lockstep beside a plain uvloop echo of the same frame sizes, in turns, median of five.

Client and server are processes on loopback. Compare ratios, not rates: machines are shared and noisy.
`python -m scripts.bench.apache` measures beside Apache's broker.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import uvloop
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lockstep.protocol.codes import SerializeType
from lockstep.remoting.percentiles import percentile
from lockstep.testing.process import BrokerProcess
from scripts.bench import cases, handover
from scripts.bench.command import OUTPUT, SMALL, keep, parser_of
from scripts.bench.echo import Sizes, echo_process, echo_rate, sizes_of

ENCODINGS = {"": SerializeType.MSGPACK, "_json": SerializeType.JSON}
FLOORS = {"send_1": 0.5, "send_64": 0.4}  # of the echo's rate, with MSGPACK
START_SECONDS_MAX, START_RSS_MB_MAX = 0.3, 45.0
START = "start"
APART = (START, handover.NAME)  # on brokers of their own

Run = Callable[[], Awaitable[cases.Sample]]


class Options(NamedTuple):
    rounds: int
    seconds: float
    messages: int
    only: tuple[str, ...]


class Bench:
    def __init__(self, options: Options, name_server: str, echo_port: int) -> None:
        self.options = options
        self.name_server = name_server
        self.echo_port = echo_port

    async def echo(self, sizes: Sizes, in_flight: int, per_call: int) -> cases.Sample:
        return await echo_rate(self.echo_port, sizes, self.options.seconds, in_flight, per_call)

    async def call_case(self, case: cases.Case, encoding: SerializeType) -> tuple[Run, Run]:
        sizes = await sizes_of(case, self.name_server, encoding)

        async def ours() -> cases.Sample:
            client, operation = await case.open(self.name_server, encoding, None)
            try:
                return await cases.latencies(operation, self.options.seconds, case.in_flight, case.per_call)
            finally:
                await client.shutdown()

        return ours, lambda: self.echo(sizes, case.in_flight, case.per_call)

    async def drain_case(self, batch_size: int, encoding: SerializeType) -> tuple[Run, Run]:
        """Compared with an echo of pulls of 32, one at a time: a drain needs no more of the network."""
        sizes = await sizes_of(cases.CALLS["pull_32"], self.name_server, encoding)
        return (
            lambda: cases.drain(self.name_server, encoding, batch_size, self.options.messages),
            lambda: self.echo(sizes, 1, cases.PULL_COUNT),
        )

    async def ordered_case(self, encoding: SerializeType) -> tuple[Run, Run]:
        """Compared with an echo of sends, with as many in flight."""
        sizes = await sizes_of(cases.CALLS["send_64"], self.name_server, encoding)
        in_flight = cases.CALLS["send_64"].in_flight
        return (
            lambda: cases.ordered(self.name_server, encoding, self.options.seconds, in_flight),
            lambda: self.echo(sizes, in_flight, 1),
        )

    async def runs(self, name: str, encoding: SerializeType) -> tuple[Run, Run]:
        if name in cases.CALLS:
            return await self.call_case(cases.CALLS[name], encoding)
        if name == "ordered":
            return await self.ordered_case(encoding)
        return await self.drain_case(int(name.removeprefix("drain_")), encoding)

    async def measure(self, name: str, tick: Callable[[], None]) -> dict[str, dict[str, float]]:
        """Medians of one case for all encodings; each round runs beside its echo."""
        pairs = {suffix: await self.runs(name, encoding) for suffix, encoding in ENCODINGS.items()}
        ours: dict[str, list[cases.Sample]] = {suffix: [] for suffix in pairs}
        echoes: dict[str, list[cases.Sample]] = {suffix: [] for suffix in pairs}
        for _ in range(self.options.rounds):
            for suffix, (our_run, echo_run) in pairs.items():
                echoes[suffix].append(await echo_run())
                ours[suffix].append(await our_run())
                tick()
        return {name + suffix: _figures(ours[suffix], echoes[suffix]) for suffix in pairs}


def _figures(ours: list[cases.Sample], echoes: list[cases.Sample]) -> dict[str, float]:
    rate = statistics.median(sample.rate for sample in ours)
    echo_rate = statistics.median(sample.rate for sample in echoes)
    ratio = statistics.median(our.rate / echo.rate for our, echo in zip(ours, echoes, strict=True))
    p50, p99 = (statistics.median(percentile(one.latencies_ns, percent) for one in ours) for percent in (50, 99))
    return {
        "rate": round(rate, 1),
        "echo_rate": round(echo_rate, 1),
        "ratio": round(ratio, 3),
        "p50_us": round(p50 / 1000, 1),
        "p99_us": round(p99 / 1000, 1),
    }


def measure_start(rounds: int) -> dict[str, float]:
    """From the start of the process to the first accepted connection, and the memory that it then has."""
    seconds, rss_mb = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        with BrokerProcess("--log-level=warning") as broker:
            socket.create_connection(("127.0.0.1", broker.port), timeout=1).close()
            seconds.append(time.perf_counter() - begin)
            time.sleep(0.5)  # let it finish starting before its memory is read
            kilobytes = subprocess.check_output(["ps", "-o", "rss=", "-p", str(broker.pid)])
            rss_mb.append(int(kilobytes) / 1024)
    return {"seconds": round(statistics.median(seconds), 3), "rss_mb": round(statistics.median(rss_mb), 1)}


async def measure_all(options: Options, console: Console) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    names = [name for name in cases.NAMES if not options.only or name in options.only]
    with (
        echo_process() as echo_port,
        BrokerProcess("--log-level=warning", *cases.TOPICS) as broker,
        Progress(console=console, transient=True) as progress,
    ):
        task = progress.add_task("preparing", total=len(names) * options.rounds * len(ENCODINGS))
        await cases.preload(broker.name_server, cases.PULL_TOPIC, 50_000, 1)
        await cases.preload(broker.name_server, cases.DRAIN_TOPIC, options.messages, 4)
        bench = Bench(options, broker.name_server, echo_port)
        for name in names:
            progress.update(task, description=name)
            results |= await bench.measure(name, lambda: progress.advance(task))
    return results


def show(results: dict[str, dict[str, float]], console: Console) -> None:
    table = Table(title="Lockstep beside a bare uvloop echo (medians)", caption="rates a second; latencies in us")
    for column in ("case", "rate", "echo", "ratio", "p50", "p99", "floor"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, figures in results.items():
        floor = FLOORS.get(name)
        passed = "" if floor is None else f"{floor} {'ok' if figures['ratio'] >= floor else 'MISSED'}"
        rates = (f"{figures['rate']:,.0f}", f"{figures['echo_rate']:,.0f}", f"{figures['ratio']:.2f}")
        table.add_row(name, *rates, f"{figures['p50_us']:.1f}", f"{figures['p99_us']:.1f}", passed)
    console.print(table)


def show_start(start: dict[str, float], console: Console) -> None:
    ok = start["seconds"] <= START_SECONDS_MAX and start["rss_mb"] <= START_RSS_MB_MAX
    limits = f"at most {START_SECONDS_MAX} s and {START_RSS_MB_MAX:.0f} MB: {'ok' if ok else 'MISSED'}"
    console.print(f"start: accepting after {start['seconds']} s, {start['rss_mb']} MB ({limits})")


def missed(results: dict[str, dict[str, float]]) -> list[str]:
    names = [name for name, floor in FLOORS.items() if name in results and results[name]["ratio"] < floor]
    start = results.get(START)
    if start and (start["seconds"] > START_SECONDS_MAX or start["rss_mb"] > START_RSS_MB_MAX):
        names.append(START)
    return names


def main() -> int:
    parser = parser_of(__doc__, rounds=1 if SMALL else 5)
    parser.add_argument("--seconds", type=float, default=0.5 if SMALL else 1.0, help="of each measurement")
    parser.add_argument("--messages", type=int, default=40_000 if SMALL else 200_000, help="to drain")
    parser.add_argument("--only", action="append", default=[], choices=[*cases.NAMES, *APART])
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a start would compile all modules each time
    console = Console()
    options = Options(given.rounds, given.seconds, given.messages, tuple(given.only))
    results: dict[str, dict[str, float]] = {}
    if not options.only or START in options.only:
        results[START] = measure_start(options.rounds)
        show_start(results[START], console)
    if not options.only or any(name in cases.NAMES for name in options.only):
        in_memory = uvloop.run(measure_all(options, console))
        results |= in_memory
        show(in_memory, console)
    if handover.NAME in options.only:  # it takes minutes
        return handover.run(handover.SMALL if SMALL else handover.FULL, 1, console)
    if not options.only:
        keep(results)
        console.print(f"written to {OUTPUT.relative_to(Path.cwd()) if OUTPUT.is_relative_to(Path.cwd()) else OUTPUT}")
    short = missed(results)
    if short:
        console.print(f"below the floor: {', '.join(short)}")
    return 1 if short else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
