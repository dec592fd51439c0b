"""What `--brokers N` brings and costs: messages a CPU-second, rates, start and memory, beside one broker, in turns.

    python -m scripts.bench.many_brokers [--rounds 5] [--seconds 2] [--brokers 2]

A raw client with 64 sends or 16 pulls in flight, in a process of its own, is at each broker. With fewer cores than
processes the rate is that of the machine. So messages a CPU-second of all processes of the command count. Cores of one
machine share caches and power: a broker does less in a CPU-second when another core works, whatever works there. So one
broker is measured alone and beside a busy loop for each further broker; the floor is 0.9 of the latter. The floor of
the rate, 1.6 with two brokers, counts where each process has a core.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Self

from rich.console import Console
from rich.table import Table

from lockstep.testing.process import BrokerProcess
from scripts.bench.apache.raw import PULL_TOPIC, SEND_TOPIC, RawClient, pull_frames, send_frames
from scripts.bench.apache.servers import cpu_s

__all__ = ["NAME", "compare", "main"]

NAME: Final = "brokers"
CPU_FLOOR: Final = 0.9
RATE_FLOOR: Final = 0.8  # of the number of brokers
IN_FLIGHT: Final = 64
FILLED: Final = 32_000
OPTIONS: Final = ("--log-format", "json", f"--topic={SEND_TOPIC}:4", f"--topic={PULL_TOPIC}:1", "--memory-limit=512M")
WARM_UP_S: Final = 0.3


class Case(NamedTuple):
    in_flight: int
    messages: int  # of a request


CASES: Final = {"send_64": Case(IN_FLIGHT, 1), "pull_32": Case(16, 32)}


class Sample(NamedTuple):
    rate: float  # messages a second
    per_cpu_s: float  # messages a CPU-second of all processes of the command
    client_share: float  # of a core, of each client


class Samples(NamedTuple):
    """A sample a round."""

    alone: list[Sample]
    busy: list[Sample]
    many: list[Sample]


class Cluster:
    """A command with its brokers."""

    def __init__(self, count: int) -> None:
        begin = time.perf_counter()
        self.process = BrokerProcess("--brokers", str(count), *OPTIONS)
        self.start_s = time.perf_counter() - begin
        self.addresses = self.process.address.split(",")

    @property
    def pids(self) -> list[int]:
        """The command first, then its brokers, if they are processes of their own."""
        return [self.process.pid, *(int(event["pid"]) for event in self.process.events("broker_process_started"))]

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.pids))

    def memory_mb(self) -> list[float]:
        """Resident memory of each process; pages that processes share count in each."""
        shown = subprocess.check_output(["ps", "-o", "rss=", "-p", ",".join(map(str, self.pids))], text=True)
        return [int(row) / 1024 for row in shown.split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.end()


class Clients:
    """A client process at each broker: it begins with a line on stdin, and answers with its calls and CPU seconds."""

    def __init__(self, addresses: Sequence[str], case: str, seconds: float) -> None:
        command = [sys.executable, "-m", "scripts.bench.many_brokers", "--client", case, str(seconds)]
        pipe = subprocess.PIPE
        self._running = [subprocess.Popen([*command, one], stdin=pipe, stdout=pipe, text=True) for one in addresses]
        self._say("connect")

    def _say(self, word: str) -> list[str]:
        lines = []
        for one in self._running:
            assert one.stdin is not None
            one.stdin.write(f"{word}\n")
            one.stdin.flush()
        for one in self._running:
            assert one.stdout is not None
            lines.append(one.stdout.readline())
        return lines

    def run(self) -> tuple[int, float]:
        """Calls of all, and the CPU seconds of the busiest client."""
        answers = [line.split() for line in self._say("run")]
        return sum(int(calls) for calls, _ in answers), max(float(seconds) for _, seconds in answers)

    def end(self) -> None:
        for one in self._running:
            one.communicate()


def be_client(case: str, seconds: float, address: str) -> None:
    """The program of a client process."""
    frames = send_frames() if case.startswith("send") else pull_frames()
    client = RawClient(address)
    for line in sys.stdin:
        calls, begin = 0, time.process_time()
        if line == "connect\n":
            client.run(frames, CASES[case].in_flight, WARM_UP_S)
        else:
            calls = client.run(frames, CASES[case].in_flight, seconds)
        print(calls, time.process_time() - begin, flush=True)
    client.close()


def fill(address: str) -> None:
    """Messages for pulls: in one queue, of the same size as those of sends."""
    client, frames = RawClient(address), send_frames(PULL_TOPIC, 1)
    stored = 0
    while stored < FILLED:
        stored += client.run(frames, IN_FLIGHT, WARM_UP_S)
    client.close()


def measure(cluster: Cluster, case: str, seconds: float) -> Sample:
    clients = Clients(cluster.addresses, case, seconds)
    try:
        before, begin = cluster.cpu_s(), time.perf_counter()
        calls, busiest_s = clients.run()
        took, used = time.perf_counter() - begin, cluster.cpu_s() - before
    finally:
        clients.end()
    messages = calls * CASES[case].messages
    return Sample(messages / took, messages / used, busiest_s / took)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Processes that do nothing but work."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def compare(count: int, rounds: int, seconds: float) -> dict[str, Samples]:
    """Samples by case, in turns: of one broker, of one beside busy loops, of `count` brokers."""
    found: dict[str, Samples] = {case: Samples([], [], []) for case in CASES}
    with Cluster(1) as one, Cluster(count) as many:
        for cluster in (one, many):
            for address in cluster.addresses:
                fill(address)
        for case, samples in found.items():
            for _ in range(rounds):
                samples.alone.append(measure(one, case, seconds))
                with busy_loops(count - 1):
                    samples.busy.append(measure(one, case, seconds))
                samples.many.append(measure(many, case, seconds))
    return found


def starts(counts: Sequence[int], rounds: int) -> dict[int, tuple[float, list[float]]]:
    """Seconds until all listen, and megabytes of each process, by number of brokers: medians."""
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    memory: dict[int, list[list[float]]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            with Cluster(count) as cluster:
                seconds[count].append(cluster.start_s)
                wanted = count if count > 1 else 0
                cluster.process.wait_until(lambda: len(cluster.pids) == 1 + wanted, "a log line of each")  # noqa: B023
                memory[count].append(cluster.memory_mb())
    return {
        count: (statistics.median(seconds[count]), list(map(statistics.median, zip(*memory[count], strict=True))))
        for count in counts
    }


def show(found: dict[str, Samples], count: int, console: Console) -> bool:
    """Print the table. Returns whether a floor is missed."""
    columns = (
        "case",
        "brokers",
        "messages/s",
        "a CPU-second",
        "of one alone",
        "of one beside busy cores",
        "client's share",
    )
    table, missed = Table(*columns), False
    for case, samples in found.items():
        for name, own in zip(("1", "1, busy cores", str(count)), samples, strict=True):
            rate, per_cpu_s, client = (statistics.median(column) for column in zip(*own, strict=True))
            ratios = [
                statistics.median(b.per_cpu_s / a.per_cpu_s for a, b in zip(base, own, strict=True))
                for base in (samples.alone, samples.busy)
            ]
            cells = [f"{rate:,.0f}", f"{per_cpu_s:,.0f}", *(f"{ratio:.2f}" for ratio in ratios), f"{client:.2f}"]
            table.add_row(case, name, *cells)
        missed |= ratios[1] < CPU_FLOOR
        wall = statistics.median(b.rate / a.rate for a, b in zip(samples.alone, samples.many, strict=True))
        missed |= (os.cpu_count() or 1) >= 2 * count and wall < RATE_FLOOR * count
        console.print(f"{case}: {count} brokers have {wall:.2f} times the rate of one, on {os.cpu_count()} cores")
    console.print(table)
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--client", nargs=3, metavar=("CASE", "SECONDS", "ADDRESS"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.client:
        case, seconds, address = given.client
        be_client(case, float(seconds), address)
        return 0
    console = Console()
    missed = show(compare(given.brokers, given.rounds, given.seconds), given.brokers, console)
    table = Table("brokers", "all listen after", "memory of each process, the command first")
    for count, (took_s, megabytes) in starts(sorted({1, 2, given.brokers}), given.rounds).items():
        table.add_row(str(count), f"{took_s:.2f} s", ", ".join(f"{one:.0f} MB" for one in megabytes))
    console.print(table)
    if missed:
        console.print("below a floor")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
