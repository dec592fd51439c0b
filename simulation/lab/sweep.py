"""The sweep: many seeds, in one process or several, into a file from which it can be resumed."""

import gc
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from lockstep.simulation.lab.outcome import LockMode, Outcome, run_seed

__all__ = ["SOMETIMES", "StateFile", "Summary", "sweep"]

_SEEDS_A_JOB: Final = 8
_JOBS_WAITING: Final = 3  # for each process
SHARE_MIN: Final = 0.05

_Case = tuple[int, LockMode]

# What must happen in at least 5 % of the seeds of a mode, or the sweep has proved nothing.
_IN_BOTH: Final = (
    "takeovers", "broker restarts", "one-sided ends", "reset", "join", "leave", "crash", "power off", "restart",
    "stall", "sleep", "cut", "partition", "hold to the broker", "hold to the member", "clock", "broker kill",
    "broker stall",
)  # fmt: skip
SOMETIMES: Final[dict[LockMode, tuple[str, ...]]] = {
    LockMode.FAITHFUL: _IN_BOTH,
    LockMode.FENCED: (
        *_IN_BOTH,
        "answers FENCED",
        "answers NOT_HELD",
        "answers STALE",
        "reclaims",
        "lock delays",
        "handovers",
        "held pulls ended",
        "resets",
        "resets of owners",
    ),
}


@dataclass
class Summary:
    """Outcomes of the seeds, counted by mode."""

    seeds: Counter[LockMode] = field(default_factory=Counter)
    wrong: dict[LockMode, Counter[str]] = field(default_factory=lambda: {mode: Counter() for mode in LockMode})
    sometimes: dict[LockMode, Counter[str]] = field(default_factory=lambda: {mode: Counter() for mode in LockMode})
    failing: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome. It fails if it did not reach its end, or has a violation in fenced mode."""
        self.seeds[outcome.mode] += 1
        self.wrong[outcome.mode].update(list(outcome.wrong) + (["error"] if outcome.error else []))
        self.sometimes[outcome.mode].update(list(outcome.sometimes))
        if outcome.error or (outcome.wrong and outcome.mode is LockMode.FENCED):
            self.failing.append(outcome)

    def too_rare(self) -> list[tuple[LockMode, str, float]]:
        """(mode, what, share of the seeds) of what happened too rarely."""
        return [
            (mode, name, share)
            for mode, count in self.seeds.items()
            for name in SOMETIMES[mode]
            if (share := self.sometimes[mode][name] / count) < SHARE_MIN
        ]


class StateFile:
    """JSON lines, one an outcome. A sweep that is started again with it leaves out the seeds that it has.

    Args:
        path: None: nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.outcomes: dict[_Case, Outcome] = {}
        text = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
        self._is_torn = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            try:
                outcome = Outcome.from_json(json.loads(line))
            except ValueError:
                continue  # a sweep was killed while it wrote
            self.outcomes[outcome.seed, outcome.mode] = outcome

    def add(self, outcomes: Iterable[Outcome]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                if self._is_torn:
                    file.write("\n")
                    self._is_torn = False
                file.writelines(json.dumps(outcome.to_json()) + "\n" for outcome in outcomes)


def _run_some(cases: list[_Case]) -> list[Outcome]:
    outcomes = [run_seed(seed, mode) for seed, mode in cases]
    gc.collect()  # a simulation freezes what is there, also the worlds that are over
    return outcomes


def sweep(
    seeds: Iterable[int],
    modes: Iterable[LockMode],
    *,
    jobs: int = 1,
    state: StateFile | None = None,
    on_progress: Callable[[Summary, int, float], object] = lambda _summary, _new, _seconds: None,
) -> Summary:
    """Run the worlds of all seeds.

    Args:
        jobs: processes; 1: this one.
        state: what is in it is counted, and not run again.
        on_progress: called with the summary, how many worlds this call has run, and for how many seconds.
    """
    state, modes = state or StateFile(None), list(modes)
    cases = [(seed, mode) for seed in seeds for mode in modes]
    summary, began, new = Summary(), time.monotonic(), 0
    for case in cases:
        if case in state.outcomes:
            summary.add(state.outcomes[case])
    missing = iter([case for case in cases if case not in state.outcomes])
    chunks = iter(partial(_chunk, missing), [])
    for outcomes in map(_run_some, chunks) if jobs == 1 else _in_processes(chunks, jobs):
        state.add(outcomes)
        for outcome in outcomes:
            summary.add(outcome)
        new += len(outcomes)
        on_progress(summary, new, time.monotonic() - began)
    return summary


def _chunk(missing: Iterator[_Case]) -> list[_Case]:
    return list(islice(missing, _SEEDS_A_JOB))


def _in_processes(chunks: Iterator[list[_Case]], jobs: int) -> Iterator[list[Outcome]]:
    """Outcomes as they come: their order is of no account."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting: set[Future[list[Outcome]]] = {
            pool.submit(_run_some, chunk) for chunk in islice(chunks, jobs * _JOBS_WAITING)
        }
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                waiting |= {pool.submit(_run_some, chunk) for chunk in islice(chunks, len(done))}
                for future in done:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()
