"""`make seeds`: find all recorded seeds anew, after a change that gives seeds another meaning.

`python -m tests.mutants.anew [PART ...]`. Client and broker draw from one generator, so one request more changes what
every later moment of a seed is. The parts, all unless given:

museum     the exhibits: simulation/museum/found.json
held       fenced worlds that hold protections in tests/simulation/worlds: seeds.json there
worlds     the world that finds each protection missing: tests/mutants/found.json

What was found the last time is tried first, but for the museum, whose seeds say how many were needed. Protections that
no world has found keep their rows. Exit status 1: something was not found.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from tests.mutants.beyond_worlds import BEYOND_WORLDS, RARE
from tests.mutants.protections import PROTECTIONS, ROOT
from tests.mutants.worlds import WORLDS, is_decisive, run_case, without

HELD_BY: Final = "tests/simulation/worlds/test_fenced_worlds.py"
HELD: Final = ROOT / "tests" / "simulation" / "worlds" / "seeds.json"
_SEEDS_MAX: Final = 500


def _museum() -> bool:
    return _run("tests.simulation.museum.find")


def _worlds() -> bool:
    names = [one.name for one in PROTECTIONS if one.name not in BEYOND_WORLDS | RARE]
    return _run("tests.mutants.worlds", "--fresh", "--write", "--healthy", "0", "--seeds", str(_SEEDS_MAX), *names)


def _held() -> bool:
    """One process for each protection that the seeds hold."""
    known = _known()
    for one in PROTECTIONS:
        if one.name not in RARE and any(test.startswith(HELD_BY) for test in one.tests):
            command = [sys.executable, "-m", "tests.mutants.anew", "--hold", one.name]
            told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
            known[one.name] = int(told.split()[-1])
            _write_held(known)
            print(f"{one.name:36} {WORLDS}, fenced seed {known[one.name] or 'none'}", flush=True)
    return all(known.values())


def _known() -> dict[str, int]:
    return {str(name): int(seed) for name, seed in json.loads(HELD.read_text(encoding="utf-8")).items()}


def _write_held(known: dict[str, int]) -> None:
    rows = ",\n".join(f"  {json.dumps(name)}: {seed}" for name, seed in known.items() if seed)
    HELD.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")


def _hold(name: str) -> int:
    """The first fenced world that fails without the protection, those that are known before; 0: none."""
    known = _known()
    seeds: list[int] = [known.get(name, 1), *known.values(), *range(1, _SEEDS_MAX + 1)]
    with without(name):
        return next((seed for seed in dict.fromkeys(seeds) if is_decisive(run_case(WORLDS, "fenced", seed))), 0)


def _run(module: str, *arguments: str) -> bool:
    return subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=False).returncode == 0


PARTS: Final[dict[str, Callable[[], bool]]] = {"museum": _museum, "held": _held, "worlds": _worlds}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.anew", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all, unless given")
    parser.add_argument("--hold", metavar="NAME", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold:
        print(_hold(options.hold))
        return 0
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; allowed: {', '.join(PARTS)}")
    found = [PARTS[part]() for part in options.parts or PARTS]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
