"""Work in several processes: chunks go out, outcomes come back as they are ready."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Final, TypeVar

__all__ = ["ProcessKilledError", "end_processes", "in_processes"]

_JOBS_WAITING: Final = 3  # for each process

Chunk = TypeVar("Chunk")
Outcome = TypeVar("Outcome")


class ProcessKilledError(Exception):
    """A process that ran a chunk was killed, perhaps for memory."""


def in_processes(run: Callable[[Chunk], Outcome], chunks: Iterable[Chunk], jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come: their order is of no account.

    Args:
        jobs: processes; 1: this one.

    Raises:
        ProcessKilledError: a process was killed.
    """
    if jobs == 1:
        yield from map(run, chunks)
        return
    left = iter(chunks)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _leave_signals) as pool:
        waiting = {pool.submit(run, chunk) for chunk in islice(left, jobs * _JOBS_WAITING)}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                waiting |= {pool.submit(run, chunk) for chunk in islice(left, len(done))}
                for future in done:
                    yield future.result()
        except BrokenProcessPool as error:
            raise ProcessKilledError from error
        except BaseException:  # no future is cancelled: the pool fails them all when its processes end
            end_processes()
            raise


def end_processes() -> None:
    """From another thread: `in_processes` raises ProcessKilledError soon. Each process is at most some seeds behind."""
    for process in multiprocessing.active_children():
        process.terminate()


def _leave_signals() -> None:
    """Ctrl-C in a terminal goes to all processes; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
