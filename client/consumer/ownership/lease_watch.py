"""LeaseWatch: renews fenced locks in time, and notices the end of a lease.

A lease counts from the time of the request that got it, on a clock that counts the sleep of the machine. The timers of
the event loop do not count it, so the leases are looked at again at least each second.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.remoting.host.runtime import TimerHandle

__all__ = ["LeaseWatch"]

_LOOK_MS_MAX: Final = 1000
_RENEW_PART: Final = 3  # a lease is renewed after a third of it, ...
_AGAIN_PART: Final = 12  # ... and, without an answer, again after each twelfth
_CUT_AGAIN_MS: Final = 500  # while the connection is cut


class LeaseWatch:
    """Watches the process queues of one consumer. One request renews all queues of a broker.

    Args:
        renew: renews the locks of all queues of a broker.
        ended: called with a process queue whose lease has ended.
    """

    def __init__(
        self,
        member: Membership,
        renew: Callable[[str], Awaitable[None]],
        ended: Callable[[ProcessQueue], None],
    ) -> None:
        self._runtime = member.runtime
        self._log = member.log
        self._table = member.table
        self._interval_ms = member.config.lock_interval_ms  # of locks without a fence
        self._renew = renew
        self._ended = ended
        self._asked_ms: dict[str, int] = {}  # by broker: the time of the last renewal
        self._renewing: set[str] = set()
        self._timer: TimerHandle | None = None
        self._stop_waking: Callable[[], object] | None = None

    def start(self) -> None:
        self._stop_waking = self._runtime.on_wake(lambda _slept_ms: self.look())
        self.look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stop_waking is not None:
            self._stop_waking()
            self._stop_waking = None

    def look(self) -> None:
        """Renew what is due, end what has ended, and come back when the next one is due."""
        if self._stop_waking is None:  # not started, or stopped
            return
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._runtime.now_ms()
        next_ms = now_ms + _LOOK_MS_MAX
        for process_queue in list(self._table.values()):
            try:
                next_ms = min(next_ms, self._look_at(process_queue, now_ms))
            except BaseException as error:
                # Without the timer below, no lock would be renewed any more, and no end of a lease noticed.
                log_or_raise(self._log, "lease_watch_failed", error, queue=str(process_queue.queue))
        self._timer = self._runtime.call_later_ms(max(next_ms - now_ms, 1), self.look)

    def _look_at(self, process_queue: ProcessQueue, now_ms: int) -> int:
        """Return when to look again, in ms."""
        hold = process_queue.hold
        if process_queue.life.lost or not hold.needed:
            return now_ms + _LOOK_MS_MAX
        if not hold.epoch:
            return self._renew_if_due(process_queue, now_ms)
        if now_ms >= hold.lease_end_ms:
            self._ended(process_queue)
            return now_ms + _LOOK_MS_MAX
        return min(hold.lease_end_ms, self._renew_if_due(process_queue, now_ms))

    def _renew_if_due(self, process_queue: ProcessQueue, now_ms: int) -> int:
        """Return when to look again, in ms."""
        broker_name = process_queue.queue.broker_name
        due_ms = self._due_ms(process_queue)
        if now_ms < due_ms:
            return due_ms
        if broker_name not in self._renewing:
            self._renewing.add(broker_name)
            self._asked_ms[broker_name] = now_ms
            self._runtime.create_task(self._renew_all(broker_name), name=f"renew locks of {broker_name}")
        return now_ms + _LOOK_MS_MAX

    def _due_ms(self, process_queue: ProcessQueue) -> int:
        asked_ms = self._asked_ms.get(process_queue.queue.broker_name, 0)
        hold = process_queue.hold
        if not hold.epoch:
            return max(hold.last_lock_ms, asked_ms) + self._interval_ms
        if not hold.locked:
            return asked_ms + _CUT_AGAIN_MS
        return max(hold.last_lock_ms + hold.lease_ms // _RENEW_PART, asked_ms + hold.lease_ms // _AGAIN_PART)

    async def _renew_all(self, broker_name: str) -> None:
        try:
            await self._renew(broker_name)
        except BaseException as error:
            log_or_raise(self._log, "lease_watch_failed", error, broker=broker_name)
        finally:
            self._renewing.discard(broker_name)
            self.look()
