"""`python -m tests.fuzz.frames --frames 100000 --seed 1 --mode both`: attack brokers and name servers in process.

Frames come in worlds of 20,000, each with a new server; `--mode all` takes all modes in turn; in mode `client` answers
and requests of a server come to a client; mode `ports` is the control port and the metrics port, in worlds of 2,000. A
world depends on its mode, seed and number alone (but for the keys of TLS). A fault is kept in build/fuzz with the
command that shows it again. Exit status 1: a fault; 0: none.
"""

import argparse
import ctypes
import gc
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.fuzz.frames.servers import MODES
from tests.fuzz.frames.world import TABLE_MAX, TURN_MS_MAX, Report, play

__all__ = ["ALL_MODES", "Totals", "World", "main", "run_world", "worlds_of"]

ALL_MODES: Final = (*MODES, "client", "grpc", "ports")
WORLD_FRAMES: Final = 20_000
SHORTER: Final = {"ports": 2_000}  # a frame there has up to 3,000 calls, 19 on average
GROWTH_MIB_MAX: Final = 48  # of a process from its third world to its last
_SETTLED_WORLDS: Final = 3
_KEPT: Final = Path("build/fuzz")


class World(NamedTuple):
    """One world to play."""

    mode: str
    seed: int
    number: int
    frames: int

    @property
    def command(self) -> str:
        place = f"--mode {self.mode} --seed {self.seed} --world {self.number} --frames {self.frames}"
        return f"python -m tests.fuzz.frames {place}"


class Played(NamedTuple):
    world: World
    report: Report
    pid: int
    resident_mib: float


def worlds_of(mode: str, seed: int, frames: int) -> Iterator[World]:
    """The worlds of a run."""
    modes = ALL_MODES if mode == "all" else (mode,)
    left = frames
    for number in itertools.count():
        if left <= 0:
            return
        mode = modes[number % len(modes)]
        count = min(left, SHORTER.get(mode, WORLD_FRAMES))
        yield World(mode, seed, number // len(modes), count)
        left -= count


def run_world(world: World, *, look_every: int = 50) -> Report:
    """Play a world. A stall counts when it comes again in the same world: the first may be the machine's."""
    with tempfile.TemporaryDirectory(prefix="lockstep-fuzz-") as folder:
        report = play(*world, Path(folder), look_every=look_every)
        if report.stalls and not report.fault:
            again = play(*world, Path(folder), look_every=look_every)
            both = set(report.stalls) & set(again.stalls)
            if both:
                fault = f"a callback computed for more than {TURN_MS_MAX} ms, twice: {min(both):.300}"
                return report._replace(fault=fault)
            return min(report, again, key=lambda each: each.longest_ms)._replace(fault=again.fault)
        return report


def _work(world: World) -> Played:
    report = run_world(world)
    return Played(world, report, os.getpid(), _resident_mib())


def _resident_mib() -> float:
    """What the process holds. glibc keeps freed memory for later, up to the most that one world needed: not counted."""
    gc.collect()
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


class Totals:
    """Adds up what worlds showed."""

    def __init__(self, frames: int) -> None:
        self._frames_wanted = frames
        self._began = time.monotonic()
        self._shown = 0.0
        self.frames = self.requests = 0
        self.answers: Counter[str] = Counter()
        self.longest = (0.0, "")
        self.largest = (0, "")
        self.faults: list[str] = []
        self._resident: dict[int, list[float]] = {}

    def add(self, played: Played) -> None:
        """Take the report of one world; a fault is written down and shown."""
        world, report = played.world, played.report
        self.frames += report.frames
        self.requests += report.requests
        self.answers.update(report.answers)
        self.longest = max(self.longest, (report.longest_ms, report.longest))
        self.largest = max(self.largest, report.largest)
        self._resident.setdefault(played.pid, []).append(played.resident_mib)
        if report.fault:
            self.faults.append(keep(world, report))
            print(self.faults[-1], flush=True)

    @property
    def growth_mib(self) -> float:
        """Of the process that grew most, since its first worlds."""
        grown = [sizes[-1] - max(sizes[:_SETTLED_WORLDS]) for sizes in self._resident.values()]
        return max(grown, default=0.0)

    def line(self) -> str:
        rate = self.frames / max(time.monotonic() - self._began, 0.001)
        return (
            f"{self.frames:,} of {self._frames_wanted:,} frames, {rate:,.0f}/s; {self.requests:,} requests, "
            f"{self.answers['success']:,} answered with success; longest callback {self.longest[0]:.1f} ms; "
            f"largest table {self.largest[0]}; memory grew by {max(self.growth_mib, 0):.0f} MiB; "
            f"{len(self.faults)} faults"
        )

    def show(self) -> None:
        """A line each ten seconds."""
        if time.monotonic() - self._shown > 10:
            self._shown = time.monotonic()
            print(self.line(), flush=True)


def keep(world: World, report: Report) -> str:
    """Write a fault to a file, and return what to show of it."""
    shorter = world._replace(frames=max(report.frames, 1)) if not report.stalls else world
    _KEPT.mkdir(parents=True, exist_ok=True)
    path = _KEPT / f"{world.mode}-{world.seed}-{world.number}.json"
    path.write_text(json.dumps({"command": shorter.command, **report._asdict()}, indent=1) + "\n", encoding="utf-8")
    return f"FAULT {report.fault:.1000}\n  again: {shorter.command}\n  kept: {path}"


def run(worlds: list[World], processes: int) -> Totals:
    """Play worlds in processes of their own, each several worlds."""
    totals = Totals(sum(world.frames for world in worlds))
    waiting = iter(worlds)
    with ProcessPoolExecutor(processes) as pool:
        running: set[Future[Played]] = set()
        while True:
            while len(running) < processes and (world := next(waiting, None)) is not None:
                running.add(pool.submit(_work, world))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                totals.add(each.result())
            totals.show()
    if totals.growth_mib > GROWTH_MIB_MAX:
        totals.faults.append(f"FAULT a process grew by {totals.growth_mib:.0f} MiB; at most {GROWTH_MIB_MAX} are usual")
        print(totals.faults[-1], flush=True)
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=("all", *ALL_MODES), default="all")
    parser.add_argument("--world", type=int, help="play this one alone, and look after each frame")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.world is not None:
        if given.mode == "all":
            parser.error("--world needs a --mode")
        world = World(given.mode, given.seed, given.world, given.frames)
        report = run_world(world, look_every=1)
        print(json.dumps(report._asdict(), indent=1))
        return 1 if report.fault else 0
    print(f"limits: {TURN_MS_MAX} ms a callback, {TABLE_MAX} entries a table; seed {given.seed}", flush=True)
    totals = run(list(worlds_of(given.mode, given.seed, given.frames)), given.processes)
    print(totals.line())
    for name, count in sorted(totals.answers.items()):
        print(f"  {name}: {count:,}")
    print(f"  longest callback: {totals.longest[1]:.200}\n  largest table: {totals.largest[1]}")
    return 1 if totals.faults else 0


if __name__ == "__main__":
    sys.exit(main())
