"""A thread for the rules: to read, check and write many takes long, and requests are served meanwhile."""

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lockstep.broker.sliced_work import Wait
from lockstep.remoting.host.runtime import Runtime, WorkerPool

if TYPE_CHECKING:
    from lockstep.broker.acl.files import AclFiles

__all__ = ["AclRules", "RulesWorker"]

T = TypeVar("T")


class RulesWorker:
    """Runs jobs on one thread, in the order of the calls: a change begins with what the one before it has left.

    Until a job puts new rules into force, requests are checked by the old ones.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pool: WorkerPool | None = None

    def submit(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        if self._pool is None:
            self._pool = self._runtime.new_worker_pool("acl", 1)
        return self._pool.submit(job)

    def result_of(self, job: Callable[[], T]) -> Generator[Wait, None, T]:
        """Steps of a `SlicedWork` that wait for a job and return its result, or raise what it raises."""
        future = self.submit(job)
        if not future.done():
            yield lambda resume: future.add_done_callback(lambda _: resume())
        return future.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


class AclRules(NamedTuple):
    """The rules of a server, and the thread that changes them."""

    files: "AclFiles"
    worker: RulesWorker
