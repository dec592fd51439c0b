"""Writes config files off the event loop: one write of each file at a time, of its newest state."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from lockstep.remoting.host.runtime import Runtime, TimerHandle, WorkerPool
from lockstep.remoting.logs import EventLog

__all__ = ["ChangingTable", "OnWritten", "TableWriter", "Writing"]

_AGAIN_MS: Final = 500

Writing = Callable[[], None]  # raises OSError; may run on another thread
OnWritten = Callable[[str], None]  # gets "" when it is on the disk, else the reason why it is not


class ChangingTable:
    """A table that is written to its file after each change.

    Attributes:
        snapshot: Returns the writing of its present state.
        changed_names: Of the rows that changed since the last snapshot, as a dict, to keep their order.
        change_count: Number of changes; those up to `written_count` are in the file.
    """

    def __init__(self, name: str, snapshot: Callable[[], Writing]) -> None:
        self.name = name
        self.snapshot = snapshot
        self.changed_names: dict[str, None] = {}
        self.change_count = 0
        self.written_count = 0
        self.on_change: Callable[[], None] = _nothing

    @property
    def is_written(self) -> bool:
        return self.written_count == self.change_count

    def changed(self, names: Iterable[str] = ()) -> None:
        self.changed_names.update(dict.fromkeys(names))
        self.change_count += 1
        self.on_change()


class TableWriter:
    """Repeats a failed write, with the newest state, until it succeeds. Call everything on the event loop."""

    def __init__(self, runtime: Runtime, table: ChangingTable, log: EventLog) -> None:
        self._runtime = runtime
        self._table = table
        self._log = log
        self._pool: WorkerPool | None = None
        self._writing: asyncio.Future[Exception | None] | None = None
        self._timer: TimerHandle | None = None
        self._waiting: list[tuple[int, OnWritten]] = []  # (the change it waits for, callback)
        self._stopped = False
        self._failing = False

    async def start(self) -> None:
        """Write the changes made so far. A failed write is repeated in the background."""
        self._table.on_change = self._check
        await self.flush()

    def when_written(self, then: OnWritten) -> None:
        """Call `then` when all changes so far are in the file, or with the reason why the next attempt failed."""
        if self._table.is_written:
            then("")
        else:
            self._waiting.append((self._table.change_count, then))
            self._check()

    async def flush(self) -> None:
        """Wait for the write of all changes so far, whether it succeeds or not."""
        written = asyncio.Event()
        self._wake()
        self.when_written(lambda _: written.set())
        await written.wait()

    async def stop(self) -> None:
        """Make a last attempt if needed; a failure is logged."""
        await self.flush()
        while self._writing is not None:  # changes made meanwhile
            await self.flush()
        self._stopped = True
        self._wake()
        if self._pool is not None:
            self._pool.close()

    def _wake(self) -> None:
        """Cancel the wait for the next attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if not self._stopped and self._writing is None and self._timer is None and not self._table.is_written:
            self._begin()

    def _begin(self) -> None:
        if self._pool is None:
            self._pool = self._runtime.new_worker_pool(self._table.name, 1)
        self._writing = self._pool.submit(partial(_written, self._table.snapshot()))
        self._writing.add_done_callback(partial(self._finish, self._table.change_count))

    def _finish(self, change_count: int, future: "asyncio.Future[Exception | None]") -> None:
        self._writing = None
        if future.cancelled():
            return
        error = future.result()
        if error is None:
            self._table.written_count = change_count
            self._failing = False
        else:
            self._on_failed(error)
        done = [then for number, then in self._waiting if number <= change_count]
        self._waiting = [waits for waits in self._waiting if waits[0] > change_count]
        reason = f"{self._table.name} cannot be written: {error}" if error is not None else ""
        for then in done:
            then(reason)
        self._check()

    def _on_failed(self, error: Exception) -> None:
        if not self._failing:
            event = "config_write_failed"
            self._log.error(event, file=self._table.name, reason=str(error))
        self._failing = True
        if not self._stopped:
            self._timer = self._runtime.call_later_ms(_AGAIN_MS, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        self._check()


def _written(write: Writing) -> Exception | None:
    """Runs on a worker thread."""
    try:
        write()
    except (OSError, ValueError) as error:
        # ValueError: a name that UTF-8 cannot encode.
        return error
    return None


def _nothing() -> None:
    """The default: nothing is written before the writer has started."""
