"""`python -m tests.mutants.first_seed NAME ...`: the first seed of the sweep that fails without each protection.

`--seeds N` of fenced worlds are run at most. Each protection is taken out in a process of its own. `--healthy STATE`,
the state of a sweep with all protections, leaves out the seeds that failed in it.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.mutants.protections import PROTECTIONS

CHILD = "--child"


def first_seed(name: str, seeds: int, healthy: str) -> str:
    """Run worlds without the protection, in this process, until one fails. Returns a line."""
    from tests.mutants.plugin import MutantFinder

    finder = MutantFinder(next(protection for protection in PROTECTIONS if protection.name == name))
    sys.meta_path.insert(0, finder)
    from lockstep.simulation.lab.experiment import LockMode
    from lockstep.simulation.lab.runner import run_seed
    from lockstep.simulation.search.sweep import StateFile
    from lockstep.simulation.worlds.experiment import WORLDS

    known = StateFile(Path(healthy)).outcomes if healthy else {}
    left_out = {seed for (seed, _), outcome in known.items() if outcome.wrong or outcome.error}
    began = time.monotonic()
    for seed in range(1, seeds + 1):
        if seed in left_out:
            continue
        outcome = run_seed(WORLDS, seed, LockMode.FENCED)
        if outcome.wrong or outcome.error:
            what = ", ".join(outcome.wrong) or outcome.error
            return f"{name:36} seed {seed:5} in {time.monotonic() - began:4.0f} s: {what}"
    return f"{name:36} SURVIVED {seeds} seeds; loaded: {finder.loaded}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.first_seed", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--healthy", default="", metavar="STATE")
    parser.add_argument(CHILD, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(first_seed(options.names[0], options.seeds, options.healthy), flush=True)
        return 0
    command = [sys.executable, "-m", "tests.mutants.first_seed", CHILD, "--seeds", str(options.seeds)]
    command += ["--healthy", options.healthy]
    return max([subprocess.run([*command, name], check=False).returncode for name in options.names])


if __name__ == "__main__":
    sys.exit(main())
