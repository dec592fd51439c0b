"""`make seeds`: find all recorded worlds anew, after a change of what client or broker send.

`python -m tests.mutants.anew [PART ...]`. Plans are kept, so a new draw changes none of them. But client and broker
draw from one generator: one request more changes every later moment of a run. The parts, all unless given:

museum     the exhibits: simulation/museum/found.json
held       fenced worlds that hold protections in tests/simulation/worlds: seeds.json there
worlds     the world that finds each protection missing: tests/mutants/found.json

What was found the last time is tried first, but for the museum, whose seeds say how many were needed. Protections that
no world has found keep their rows. Exit status 1: something was not found.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

from tests.mutants.beyond_worlds import BEYOND_WORLDS, RARE
from tests.mutants.found import keep_all
from tests.mutants.protections import PROTECTIONS, ROOT
from tests.mutants.worlds import WORLDS, is_decisive, run_case, without
from tests.simulation.worlds.kept import Case, held_seeds, write_held

HELD_BY: Final = "tests/simulation/worlds/test_fenced_worlds.py"
_SEEDS_MAX: Final = 500


def _museum() -> bool:
    return _run("tests.simulation.museum.find")


def _worlds() -> bool:
    names = [one.name for one in PROTECTIONS if one.name not in BEYOND_WORLDS | RARE]
    return _run("tests.mutants.worlds", "--fresh", "--write", "--healthy", "0", "--seeds", str(_SEEDS_MAX), *names)


def _held() -> bool:
    known = held_seeds()
    for one in PROTECTIONS:
        if one.name not in RARE and any(test.startswith(HELD_BY) for test in one.tests):
            known[one.name] = _hold(one.name, known)
            write_held(known)
            keep_all()
            print(f"{one.name:36} {WORLDS}, fenced seed {known[one.name] or 'none'}", flush=True)
    return all(known.values())


def _hold(name: str, known: Mapping[str, int]) -> int:
    """The first fenced world that fails without the protection, those that are known before; 0: none."""
    seeds: list[int] = [known.get(name, 1), *known.values(), *range(1, _SEEDS_MAX + 1)]
    cases = [Case(WORLDS, "fenced", seed) for seed in dict.fromkeys(seeds)]
    with without(name):
        return next((case.seed for case in cases if is_decisive(run_case(case))), 0)


def _run(module: str, *arguments: str) -> bool:
    return subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=False).returncode == 0


PARTS: Final[dict[str, Callable[[], bool]]] = {"museum": _museum, "held": _held, "worlds": _worlds}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.anew", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all, unless given")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; allowed: {', '.join(PARTS)}")
    found = [PARTS[part]() for part in options.parts or PARTS]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
