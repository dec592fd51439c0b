"""`python -m tests.mutants.worlds [NAME ...]`: which protections the sweeps of random worlds find missing.

Each protection is taken out in a process of its own. The seeds of all experiments and both lock modes run, first the
seed that found it the last time, until one fails. What is known is kept in `build/mutants`, so that the same command
again goes on; `--fresh` forgets it. `--write` keeps the result in found.json.

In fenced mode any violation is a failure. RocketMQ's own locks allow some, so in faithful mode only other kinds are. Of
those that they allow in `worlds`, there must be clearly more than the same seeds have with the protection.
"""

import argparse
import gc
import json
import math
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.experiment import SeedResult
from lockstep.simulation.lab.registry import find_experiment
from tests.mutants.beyond_worlds import BEYOND_WORLDS, RARE
from tests.mutants.found import Found, read_found, write_found
from tests.mutants.protections import BY_NAME, PROTECTIONS, ROOT
from tests.simulation.worlds import kept
from tests.simulation.worlds.kept import Case

STATE: Final = ROOT / "build" / "mutants"
HEALTHY: Final = "healthy"
MODES: Final = ("fenced", "faithful")
WORLDS: Final = "worlds"
EXPERIMENTS: Final = (
    WORLDS,
    *(f"worlds/{part}" for part in ("goings", "stops", "restarts", "power", "links", "resets", "threads")),
    *(f"worlds/{part}" for part in ("sends", "bursts", "producers", "grants", "waits", "moves", "mixed")),
    *(f"worlds/{part}" for part in ("brokers", "leaves", "clocks", "busy", "fifo")),
)
# Kinds of violations that healthy faithful `worlds` have: RocketMQ's locks allow them.
ROCKETMQS: Final = frozenset(
    {
        *("lock-forgotten", "stale-pull", "stale-commit-stored", "lost", "overlap", "commit-back"),
        *("judge: commit-beyond-end", "judge: commit-regress", "judge: lost-write", "judge: overlap"),
        *("judge: stale-commit", "judge: stale-owner", "judge: stale-repeat", "judge: stored-regress"),
        "judge: rewind-below-commit",
    }
)
EXCESS_SIGMAS: Final = 5  # so many standard deviations above the same seeds with the protection
EXCESS_MIN: Final = 15
SEEDS_MAX: Final = 5000
_AT_ONCE: Final = 8
_WORLD_CPU_S: Final = 20  # a world with all protections takes less than a second


class Seen(NamedTuple):
    """The violations of a world; its error counts as one."""

    experiment: str
    mode: str
    seed: int
    kinds: tuple[str, ...]

    @property
    def case(self) -> Case:
        return Case(self.experiment, self.mode, self.seed)


def state_of(name: str) -> dict[Case, Seen]:
    path = STATE / f"{name}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    seen = [Seen(experiment, mode, seed, tuple(kinds)) for experiment, mode, seed, kinds in map(json.loads, lines)]
    return {one.case: one for one in seen}


def cases(recorded: Found | None, seeds: int, experiments: Sequence[str]) -> Iterator[Case]:
    if recorded is not None and recorded.seed:
        yield recorded.case
    for seed in range(1, seeds + 1):
        for experiment in experiments:
            for mode in MODES:
                yield Case(experiment, mode, seed)


class NoEndError(KeyboardInterrupt):
    """A world does not end. Tasks and the code under test let no other exception through."""


# The processes -----------------------------------------------------------------------------------------------


@contextmanager
def without(name: str) -> Iterator[None]:
    """Take a protection out; none with the name HEALTHY."""
    with BY_NAME[name].taken_out() if name != HEALTHY else nullcontext():
        yield


def run_case(case: Case) -> Seen:
    """Run a world: with the plan that is kept, else with what its seed draws."""
    before = signal.signal(signal.SIGVTALRM, _no_end)
    signal.setitimer(signal.ITIMER_VIRTUAL, _WORLD_CPU_S, 1)
    try:
        return seen_in(case.experiment, kept.run_case(case))
    except NoEndError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    with warnings.catch_warnings():
        # The signal may come between the making of a coroutine and its first step: then nobody awaits it.
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()
    return Seen(*case, (f"error: no end within {_WORLD_CPU_S} s of processor time",))


def child(name: str, seeds: int, seconds: float, experiments: Sequence[str]) -> None:
    """Run worlds without a protection and add what they found to its state, until one decides or the time is over."""
    known, healthy = state_of(name), state_of(HEALTHY)
    ends = time.monotonic() + seconds
    with without(name), (STATE / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        for count, case in enumerate(
            case for case in cases(read_found().get(name), seeds, experiments) if case not in known
        ):
            one = known[case] = run_case(case)
            file.write(json.dumps(one) + "\n")
            file.flush()
            if name != HEALTHY and (is_decisive(one) or excess(known.values(), healthy)):
                return
            if count % _AT_ONCE == _AT_ONCE - 1:
                gc.collect()  # a simulation freezes what is there, also the worlds that are over
            if time.monotonic() > ends:
                return


def find_again(name: str) -> Seen:
    """Run the world of found.json without the protection."""
    with without(name):
        return run_case(read_found()[name].case)


def replay(name: str) -> int:
    """Find a protection again, and say so. Returns an exit status: 0, it was found."""
    one = find_again(name)
    print(f"{name}: {', '.join(one.kinds) or 'nothing'}, and found.json has {', '.join(read_found()[name].kinds)}")
    return 0 if is_decisive(one) else 1


def _no_end(*_: object) -> None:
    raise NoEndError


def seen_in(experiment: str, outcome: SeedResult) -> Seen:
    error = (f"error: {outcome.error}",) if outcome.error else ()
    return Seen(experiment, str(outcome.mode), outcome.seed, (*outcome.wrong, *error))


@cache
def rocketmqs(experiment: str) -> frozenset[str]:
    """Kinds of violations that RocketMQ's locks allow in an experiment."""
    found: Any = find_experiment(experiment)
    return ROCKETMQS if experiment == WORLDS else frozenset(found.rocketmqs)


def is_decisive(one: Seen) -> bool:
    return bool(one.kinds if one.mode == "fenced" else set(one.kinds) - rocketmqs(one.experiment))


def excess(known: Iterable[Seen], healthy: dict[Case, Seen]) -> Found | None:
    """A kind that RocketMQ allows, and that is clearly more frequent without the protection (a paired sign test)."""
    pairs = [(one, healthy[one.case]) for one in known if one.case in healthy]
    pairs = [(one, whole) for one, whole in pairs if one.experiment == WORLDS and one.mode == "faithful"]
    for kind in sorted(ROCKETMQS):
        more = sum(kind in one.kinds and kind not in whole.kinds for one, whole in pairs)
        fewer = sum(kind in whole.kinds and kind not in one.kinds for one, whole in pairs)
        if more >= EXCESS_MIN and more - fewer > EXCESS_SIGMAS * math.sqrt(more + fewer):
            count, usual = sum(kind in one.kinds for one, _ in pairs), sum(kind in whole.kinds for _, whole in pairs)
            return Found(WORLDS, "faithful", 0, (kind,), len(pairs), f"{count} of {len(pairs)} seeds, with it {usual}")
    return None


# The result --------------------------------------------------------------------------------------------------


def verdict(name: str, healthy: dict[Case, Seen]) -> Found:
    """What the state of a protection says; `seed` 0 without `excess`: not found."""
    known = state_of(name)
    for one in known.values():
        whole = healthy.get(one.case)
        if is_decisive(one) and (whole is None or not is_decisive(whole)):
            return Found(*one.case, tuple(kind.partition("\n")[0][:80] for kind in one.kinds), len(known), "")
    return excess(known.values(), healthy) or Found(
        "", "", 0, (), max((one.seed for one in known.values()), default=0), ""
    )


def run(name: str, options: argparse.Namespace) -> None:
    arguments = ["--child", name, "--seeds", str(options.seeds), "--seconds", str(options.seconds)]
    arguments += ["--experiments", *options.experiments]
    done = subprocess.run([sys.executable, "-m", "tests.mutants.worlds", *arguments], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"{name}: the process of its worlds failed with exit status {done.returncode}")


def search(name: str, options: argparse.Namespace) -> Found:
    """Run worlds until the protection is found, or all seeds were run; with `--seconds` for so long at most."""
    found = verdict(name, state_of(HEALTHY))
    while not found.is_found and found.seeds < options.seeds:
        run(name, options)
        found = verdict(name, state_of(HEALTHY))
        if options.once:
            break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.worlds", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="protections to take out; all, unless given")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="of each lock mode")
    parser.add_argument("--experiments", nargs="+", default=EXPERIMENTS, choices=EXPERIMENTS, help="all, unless given")
    parser.add_argument("--healthy", type=int, default=300, help="seeds that run with all protections, to compare with")
    parser.add_argument("--seconds", type=float, default=120, help="after which a process writes what it knows")
    parser.add_argument("--once", action="store_true", help="one such time for each protection")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--write", action="store_true", help="keep the result in found.json")
    parser.add_argument("--replay", metavar="NAME", default="", help="run the one world that found it, and no other")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(STATE, ignore_errors=True)
    if options.replay:
        return replay(options.replay)
    STATE.mkdir(parents=True, exist_ok=True)
    if options.child:
        child(options.child, options.seeds, options.seconds, options.experiments)
        return 0
    names = options.names or [one.name for one in PROTECTIONS if one.name not in BEYOND_WORLDS]
    compared = [WORLDS] if WORLDS in options.experiments else []  # the others fail, or do not
    while any(case not in state_of(HEALTHY) for case in cases(None, options.healthy, compared)):
        run(HEALTHY, argparse.Namespace(**{**vars(options), "seeds": options.healthy, "experiments": compared}))
        if options.once:
            break
    results = dict(read_found())
    for name in names:
        results[name] = search(name, options)
        print(f"{name:36} {results[name].text}", flush=True)
    if options.write:
        write_found({one.name: results[one.name] for one in PROTECTIONS if one.name in results})
    return 0 if all(results[name].is_found or name in RARE for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
