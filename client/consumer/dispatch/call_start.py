"""The moment at which a listener call really begins.

A plain listener waits for a thread, without limit. What was true when its call was asked for may not be so any more:
the lock has run out, the queue has been given to another member, the consumer stops. So each call asks `may_begin`
right before the listener, on the thread that will run it, and a call that may not begin is given back: it was never
made.
"""

from typing import Final

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.dispatch.stats import ConsumeStats
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime

__all__ = ["LONG_WAIT_MS", "CallStart", "CallStarts"]

LONG_WAIT_MS: Final = 1000  # of a call, from where on it is counted and logged
_SAID_EVERY_MS: Final = 60_000


class CallStart:
    """Of one call after the other; `asked` before each of them.

    It says when the last one began: `began_ms`, and `begin` for a trace (wall ms, monotonic ns).
    """

    __slots__ = ("_marks", "_of", "_process_queue", "asked_ms", "began_ms", "begin", "notable", "refusal")

    def __init__(self, of: "CallStarts", *, marks_running: bool) -> None:
        """`marks_running`: the process queue's `listener_running` is set by the call's beginning."""
        self._of = of
        self._marks = marks_running
        self.asked_ms = self.began_ms = 0
        self.begin = (0, 0)
        self.notable = False  # it waited long, or was refused: tell `CallStarts.ended`
        self.refusal: str | None = None

    def asked(self, process_queue: ProcessQueue, now_ms: int) -> None:
        self._process_queue = process_queue
        self.asked_ms = self.began_ms = now_ms
        self.notable = False
        self.refusal = None

    @property
    def waited_ms(self) -> int:
        return self.began_ms - self.asked_ms

    def may_begin(self) -> bool:
        """Look again at what allows the call. On a plain listener's thread; it calls nothing that is the loop's.

        A rebalance sets `dropped` first and then looks at `listener_running`; here it is the other way round. So
        either this sees that the queue is given away, or the rebalance sees a running listener and waits for it.
        """
        of, process_queue = self._of, self._process_queue
        if self._marks:
            process_queue.listener_running = True
        now_ms = self.began_ms = of.runtime.now_ms()
        if of.stopped:
            self.refusal = "the consumer stops"
        elif process_queue.dropped:
            self.refusal = "the queue is given away"
        elif not process_queue.holds_lock(now_ms, of.lock_live_ms):
            self.refusal = "its lock had run out"
        else:
            process_queue.last_consume_ms = now_ms
            if of.traced:
                self.begin = (now_ms, of.runtime.monotonic_ns())
            self.notable = now_ms - self.asked_ms >= LONG_WAIT_MS
            return True
        if self._marks:
            process_queue.listener_running = False
        self.notable = True
        return False


class CallStarts:
    """What the calls of one consume service have in common: when they may begin, and how long they waited."""

    def __init__(
        self, runtime: Runtime, log: EventLog, config: ConsumerConfig, stats: ConsumeStats, *, traced: bool
    ) -> None:
        self.runtime = runtime
        self.lock_live_ms = config.lock_max_live_time_ms
        self.traced = traced
        self.stopped = False  # no call begins any more
        self._log = log
        self._stats = stats
        self._said_ms: int | None = None

    def new(self, *, marks_running: bool = False) -> CallStart:
        """For calls that are made one after the other."""
        return CallStart(self, marks_running=marks_running)

    def ended(self, start: CallStart, process_queue: ProcessQueue, offset: int) -> None:
        """A notable call was made, or given back: count it, and log a long wait once a minute. Called on the loop.

        Args:
            start: Of the call.
            process_queue: Whose messages it was for.
            offset: Of the first of them.
        """
        waited_ms = start.waited_ms
        self._stats.waited(waited_ms, begun=start.refusal is None)
        queue = str(process_queue.queue)
        if start.refusal is not None:
            say = self._log.info if self.stopped else self._log.warning
            say("call_not_begun", queue=queue, offset=offset, waited_ms=waited_ms, why=start.refusal)
        elif self._said_ms is None or start.began_ms - self._said_ms >= _SAID_EVERY_MS:
            self._said_ms = start.began_ms
            self._log.warning("call_waited", queue=queue, offset=offset, waited_ms=waited_ms, why="no thread was free")
