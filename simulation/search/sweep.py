"""The sweep: many seeds, in one process or several, into a file from which it can be resumed."""

import gc
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from lockstep.simulation.lab.experiment import LockMode, Outcome
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.search.summary import Summary

__all__ = ["StateFile", "sweep"]

_SEEDS_A_JOB: Final = 8
_JOBS_WAITING: Final = 3  # for each process

_Case = tuple[int, LockMode]


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


def _run_some(name: str, cases: list[_Case]) -> list[Outcome]:
    experiment = find_experiment(name)
    outcomes = [run_seed(experiment, seed, mode) for seed, mode in cases]
    gc.collect()  # a simulation freezes what is there, also the worlds that are over
    return outcomes


def sweep(
    name: str,
    seeds: Iterable[int],
    modes: Iterable[LockMode],
    *,
    jobs: int = 1,
    state: StateFile | None = None,
    on_progress: Callable[[Summary, int, float], object] = lambda _summary, _new, _seconds: None,
) -> Summary:
    """Run all seeds of an experiment.

    Args:
        name: of the experiment.
        jobs: processes; 1: this one.
        state: what is in it is counted, and not run again.
        on_progress: called with the summary, how many worlds this call has run, and for how many seconds.
    """
    state, modes = state or StateFile(None), list(modes)
    cases = [(seed, mode) for seed in seeds for mode in modes]
    summary, began, new = Summary(find_experiment(name)), time.monotonic(), 0
    for case in cases:
        if case in state.outcomes:
            summary.add(state.outcomes[case])
    missing = iter([case for case in cases if case not in state.outcomes])
    chunks = iter(partial(_chunk, missing), [])
    for outcomes in map(partial(_run_some, name), chunks) if jobs == 1 else _in_processes(name, chunks, jobs):
        state.add(outcomes)
        for outcome in outcomes:
            summary.add(outcome)
        new += len(outcomes)
        on_progress(summary, new, time.monotonic() - began)
    return summary


def _chunk(missing: Iterator[_Case]) -> list[_Case]:
    return list(islice(missing, _SEEDS_A_JOB))


def _in_processes(name: str, chunks: Iterator[list[_Case]], jobs: int) -> Iterator[list[Outcome]]:
    """Outcomes as they come: their order is of no account."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting: set[Future[list[Outcome]]] = {
            pool.submit(_run_some, name, chunk) for chunk in islice(chunks, jobs * _JOBS_WAITING)
        }
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                waiting |= {pool.submit(_run_some, name, chunk) for chunk in islice(chunks, len(done))}
                for future in done:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()
