"""How fast the simulator is: microseconds a step, virtual hours a second, and seeds a second of a takeover.

    python -m scripts.bench.simulation [--beside TREE] [--rounds 5] [--case NAME ...]

With `--beside` another tree of this project, for example a git worktree of an older commit, is measured in turns with
this one. The figures are medians of processor time, so other work on the machine counts little. A step is one callback
of the loop. Exit status 1 when a floor is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

TREE: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = Path(__file__).with_name("simulation_cases.py")
SECONDS_MAX: Final = 600


class Case(NamedTuple):
    """`floor` is the least rate: virtual hours a second, or seeds a second where `by_seed`."""

    runs: int
    by_seed: bool
    floor: float


CASES: Final = {
    "loop": Case(1, False, 0),
    "idle": Case(1, False, 4),
    "rate 10/s": Case(1, False, 0.3),
    "takeover": Case(5, True, 10),
    "no message": Case(10, True, 30),
}
STEP_US_MAX: Final = 10.0


class Sample(NamedTuple):
    step_us: float
    steps_an_hour: float
    rate: float


def sample(case: str, tree: Path) -> Sample:
    """One process on a tree."""
    kind = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "lockstep").symlink_to(tree)
        command = [sys.executable, str(PROGRAM), case, str(kind.runs)]
        # An equal seed of hashes: the order of sets must not differ between the rounds.
        surroundings = {**os.environ, "PYTHONPATH": folder, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, env=surroundings, stdout=subprocess.PIPE, timeout=SECONDS_MAX, check=True)
    found = json.loads(done.stdout)
    hours, seconds, steps = found["virtual_ms"] / 3_600_000, found["cpu_s"], found["steps"]
    return Sample(seconds / steps * 1e6, steps / hours, (kind.runs if kind.by_seed else hours) / seconds)


def measure(case: str, trees: dict[str, Path], rounds: int) -> dict[str, Sample]:
    """Medians, by the name of the tree."""
    samples: dict[str, list[Sample]] = {name: [] for name in trees}
    for _ in range(rounds):
        for name, tree in trees.items():
            samples[name].append(sample(case, tree))
    return {name: Sample(*map(statistics.median, zip(*found, strict=True))) for name, found in samples.items()}


def main() -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="another tree to measure in turns with this one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=list(CASES), action="append", help="measure only this; may be repeated")
    given = parser.parse_args()
    trees = {"beside": given.beside.resolve()} if given.beside else {}
    trees["this"] = TREE
    table = Table("case", "tree", "us a step", "steps a virtual hour", "rate", "floor")
    missed = False
    for case in given.case or CASES:
        kind, unit = CASES[case], "seeds/s" if CASES[case].by_seed else "virtual h/s"
        for name, found in measure(case, trees, given.rounds).items():
            floor = f"{kind.floor:g}" if kind.floor else ""
            figures = (f"{found.step_us:.1f}", f"{found.steps_an_hour:,.0f}", f"{found.rate:.3g} {unit}")
            table.add_row(case, name, *figures, floor)
            missed |= name == "this" and (found.rate < kind.floor or found.step_us > STEP_US_MAX)
    Console(width=110).print(table)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
