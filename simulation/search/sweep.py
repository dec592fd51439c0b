"""The sweep: many seeds, in one process or several, into a file from which it can be resumed."""

import gc
import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.search.processes import in_processes
from lockstep.simulation.search.summary import Summary

__all__ = ["StateError", "StateFile", "sweep"]

_SEEDS_A_JOB: Final = 8
_OF: Final = "experiment"

_Case = tuple[int, LockMode]


class StateError(ValueError):
    """The text says what is wrong with a file of outcomes."""


class StateFile:
    """JSON lines, first the name of the experiment, then one an outcome. A sweep that is started again with it leaves
    out the seeds that it has.

    Args:
        path: None: nothing is kept.

    Raises:
        StateError: it is not a file of this experiment, or cannot be read and written.
    """

    def __init__(self, path: Path | None, name: str) -> None:
        self._path = path
        self.outcomes: dict[_Case, SeedResult] = {}
        self._is_torn = False
        if path is None:
            return
        try:
            with path.open("a+", encoding="utf-8") as file:
                file.seek(0)
                self._read(file.read(), path, name)
                if not file.tell():
                    file.write(json.dumps({_OF: name}) + "\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(f"{path}: {getattr(error, 'strerror', None) or 'it is no file of outcomes'}") from None

    def _read(self, text: str, path: Path, name: str) -> None:
        first, *lines = text.splitlines() or [json.dumps({_OF: name})]
        try:
            found = json.loads(first)[_OF]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise StateError(f"{path}: it is no file of outcomes") from None
        if found != name:
            raise StateError(f"{path} has outcomes of {found!r}, not of {name!r}; use another file")
        self._is_torn = bool(text) and not text.endswith("\n")
        for line in lines:
            try:
                outcome = SeedResult.from_json(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue  # a sweep was killed while it wrote
            if isinstance(outcome.seed, int):
                self.outcomes[outcome.seed, outcome.mode] = outcome

    def add(self, outcomes: Iterable[SeedResult]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                if self._is_torn:
                    file.write("\n")
                    self._is_torn = False
                file.writelines(json.dumps(outcome.to_json()) + "\n" for outcome in outcomes)


def _run_some(name: str, cases: list[_Case]) -> list[SeedResult]:
    experiment = find_experiment(name)
    outcomes = [run_seed(experiment, seed, mode) for seed, mode in cases]
    gc.collect()  # a simulation freezes what is there, also the worlds that are over
    return outcomes


def sweep(
    summary: Summary,
    seeds: Iterable[int],
    modes: Iterable[LockMode],
    *,
    jobs: int = 1,
    state: StateFile | None = None,
    on_progress: Callable[[int, float], object] = lambda _new, _seconds: None,
) -> None:
    """Run all seeds of the summary's experiment. An interrupt ends it; the summary and the state have what was run.

    Args:
        jobs: processes; 1: this one.
        state: what is in it is counted, and not run again.
        on_progress: called with how many seeds this call has run, and for how many seconds.
    """
    modes, known = list(modes), state.outcomes if state is not None else {}
    cases = [(seed, mode) for seed in seeds for mode in modes]
    began, new = time.monotonic(), 0
    for case in cases:
        if case in known:
            summary.add(known[case])
    missing = iter([case for case in cases if case not in known])
    chunks = iter(lambda: list(islice(missing, _SEEDS_A_JOB)), [])
    run_some = partial(_run_some, summary.name)
    for outcomes in in_processes(run_some, chunks, jobs):
        if state is not None:
            state.add(outcomes)
        for outcome in outcomes:
            summary.add(outcome)
        new += len(outcomes)
        on_progress(new, time.monotonic() - began)
