"""CallStart: checks right before a listener call whether it may still begin.

The call of a plain listener may wait long for a thread. Meanwhile the lock may expire, the queue may be given to
another member, or the consumer may stop. So each call asks `may_begin` right before the listener, on the listener's
thread. If the answer is no, the listener is not called, and the messages go back.
"""

import asyncio
from typing import Any, Final

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.remoting.host.loop_watch import LOOP_KEPT_MS, LoopKept
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog

__all__ = ["LONG_WAIT_MS", "CallStart", "CallStarts"]

# A call that waits this long is counted and logged.
LONG_WAIT_MS: Final = 1000
_LOG_INTERVAL_MS: Final = 60_000


class CallStart:
    """For calls that are made one after the other. Call `asked` before each of them.

    `began_ms` is the time at which the last call began, `begin` the same for a trace (wall ms, monotonic ns).
    """

    __slots__ = (
        "_marks", "_of", "_process_queue", "asked_ms", "began_ms", "begin", "cancelled", "notable", "refusal", "task",
        "watched",
    )  # fmt: skip

    def __init__(self, of: "CallStarts", *, marks_running: bool) -> None:
        """`marks_running`: set `listener_running` of the process queue when a call begins."""
        self._of = of
        self._marks = marks_running
        self.asked_ms = self.began_ms = 0
        self.begin = (0, 0)
        self.notable = False  # it waited long, or was refused: `CallStarts.ended` must be called
        self.refusal: str | None = None
        self.watched = False  # its lock may be lost while it runs: `CallStarts.watch_ended` must be called
        self.task: asyncio.Task[Any] | None = None  # of a call that is cancelled then
        self.cancelled = False

    def asked(self, process_queue: ProcessQueue, now_ms: int) -> None:
        self._process_queue = process_queue
        self.asked_ms = self.began_ms = now_ms
        self.notable = False
        self.refusal = None

    @property
    def waited_ms(self) -> int:
        return self.began_ms - self.asked_ms

    def may_begin(self) -> bool:
        """Return whether the listener may be called now. It runs on the thread of a plain listener.

        A rebalance sets `dropped` first and reads `listener_running` then. This method sets `listener_running` first
        and reads `dropped` then. So either the call does not begin, or the rebalance waits for the listener.
        """
        of, process_queue = self._of, self._process_queue
        life = process_queue.life
        if self._marks:
            life.listener_running = True
        now_ms = self.began_ms = of.runtime.now_ms()
        if of.traced:
            # The clock is read before the look at the queue: a call that may begin never seems to begin after the queue
            # was dropped.
            self.begin = (now_ms, of.runtime.monotonic_ns())
        if of.stopped:
            self.refusal = "the consumer stops"
        elif life.dropped or life.draining:
            self.refusal = "the queue was given up"
        elif not process_queue.hold.is_trusted(now_ms):
            self.refusal = "its lock had expired"
        else:
            process_queue.last_consume_ms = now_ms
            self.notable = now_ms - self.asked_ms >= LONG_WAIT_MS
            if of.watches:
                of.watch(self, process_queue)
            return True
        if self._marks:
            life.listener_running = False
        self.notable = True
        return False


class CallStarts:
    """What all calls of one consume service share: whether calls may begin, and how long they waited."""

    def __init__(
        self, runtime: Runtime, log: EventLog, config: ConsumerConfig, stats: ConsumerStatsManager, *, traced: bool
    ) -> None:
        self.runtime = runtime
        self.traced = traced
        self.stopped = False  # if True, no call may begin
        self.watches = False  # locks may be lost while calls run
        self.cancels = False  # calls run on the event loop, and are cancelled then
        self._running: dict[ProcessQueue, dict[CallStart, None]] = {}  # those that may be cancelled
        self._log = log
        self._stats = stats
        self._logged_ms: int | None = None
        self.group = ""
        self.on_loop = False  # the listener is an `async def`
        self._loop: LoopKept | None = None
        self._kept_said_ms: int | None = None

    # The event loop ------------------------------------------------------------------------------------------

    def watch_loop(self) -> None:
        """Say from now on who keeps the event loop: meanwhile no lock is renewed, and no answer is read."""
        self._loop = self.runtime.watch_loop(self._loop_late)

    def unwatch_loop(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def long_call(self, process_queue: ProcessQueue, offset: int, took_ms: int) -> None:
        """Name the listener, if it is an `async def`, and no timer ran while the call, which has just ended, ran."""
        kept_ms = min(self._loop.kept_ms(), took_ms) if self.on_loop and self._loop is not None else 0
        if kept_ms >= LOOP_KEPT_MS:
            why = f"the listener of {self.group} kept the event loop for {kept_ms / 1000:.1f} s"
            self._say_kept(kept_ms, f"{why}: it must await, or be a plain function", process_queue, offset)

    def _loop_late(self, kept_ms: int) -> None:
        why = f"a function kept the event loop for {kept_ms / 1000:.1f} s, or the process stood still"
        self._say_kept(kept_ms, why)

    def _say_kept(self, kept_ms: int, why: str, process_queue: ProcessQueue | None = None, offset: int = -1) -> None:
        """At most once a minute."""
        now_ms = self.runtime.now_ms()
        if self._kept_said_ms is None or now_ms - self._kept_said_ms >= _LOG_INTERVAL_MS:
            self._kept_said_ms = now_ms
            place = {} if process_queue is None else {"queue": str(process_queue.queue), "offset": offset}
            consequence = "no lock was renewed and no answer read meanwhile"
            self._log.warning("loop_kept", group=self.group, kept_ms=kept_ms, why=why, consequence=consequence, **place)

    # Calls ---------------------------------------------------------------------------------------------------

    def new(self, *, marks_running: bool = False) -> CallStart:
        """Return a CallStart."""
        return CallStart(self, marks_running=marks_running)

    # Calls whose lock may be lost meanwhile ------------------------------------------------------------------

    def watch(self, start: CallStart, process_queue: ProcessQueue) -> None:
        start.watched = True
        if self.cancels:
            start.task = asyncio.current_task()
            self._running.setdefault(process_queue, {})[start] = None

    def cancel(self, process_queue: ProcessQueue) -> None:
        """Cancel the running calls of a process queue, if their listener is an `async def`."""
        for start in self._running.get(process_queue, {}):
            if start.task is not None and not start.cancelled:
                start.cancelled = True
                start.task.cancel("its lock was lost")

    def watch_ended(self, start: CallStart, process_queue: ProcessQueue, now_ms: int) -> bool:
        """Count a call that was cancelled or outlived its lease. Returns whether it was cancelled."""
        cancelled, start.cancelled = start.cancelled, False
        start.watched = False
        if start.task is not None:
            if cancelled:
                start.task.uncancel()
            running = self._running[process_queue]
            del running[start]
            if not running:
                del self._running[process_queue]
            start.task = None
        if cancelled:
            self._stats.calls_cancelled += 1
        elif process_queue.hold.outlived_ms(now_ms, lost=process_queue.life.lost):
            self._stats.calls_outlived += 1
        return cancelled

    # Notable calls -------------------------------------------------------------------------------------------

    def ended(self, start: CallStart, process_queue: ProcessQueue, offset: int) -> None:
        """Count a notable call, and log a long wait once a minute. Must be called on the event loop.

        Args:
            offset: the queue offset of the first message of the call.
        """
        waited_ms = start.waited_ms
        self._stats.waited(waited_ms, begun=start.refusal is None)
        queue = str(process_queue.queue)
        if start.refusal is not None:
            write = self._log.info if self.stopped else self._log.warning
            write("call_not_begun", queue=queue, offset=offset, waited_ms=waited_ms, why=start.refusal)
        elif self._logged_ms is None or start.began_ms - self._logged_ms >= _LOG_INTERVAL_MS:
            self._logged_ms = start.began_ms
            self._log.warning("call_waited", queue=queue, offset=offset, waited_ms=waited_ms, why="no thread was free")
