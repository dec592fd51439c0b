"""How a period under a fenced lock ends: the causes, among them the broker's three answers, and what each leads to.

`CAUSES` is the table. `PeriodEnds` does what a row says.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.model import MessageQueue

__all__ = ["ANSWERS", "CAUSES", "EndCause", "PeriodActs", "PeriodEnd", "PeriodEnds"]

_LISTENER_WAIT_MS: Final = 60_000


class EndCause(Enum):
    HANDOVER = "the consumer gives the queue away, or shuts down"
    LEASE_ENDED = "the lease ended before a renewal was answered"
    FENCED = "the broker answered FENCED: another client has the queue, or had it since"
    NOT_HELD = "the broker answered NOT_HELD: no client has the queue"
    STALE = "the broker answered STALE: this client has a newer epoch of the queue"
    NEW_EPOCH = "a lock request was granted under another epoch"
    NO_FENCING = "the broker has no fenced lock any more"


class PeriodEnd(NamedTuple):
    """What the end of a period does.

    Args:
        cancels: running calls of an `async def` listener are cancelled, unless on_lock_lost is "finish"; the lock
            counts as lost at once. If not, the calls end first.
        stores: the offset of handled messages is stored, under the epoch of the period, and the answer is awaited.
        unlocks: then the queue is unlocked, under that epoch.
        asks: then the consumer rebalances at once, and asks for the queue as a new claimant if it is its own.
    """

    cancels: bool
    stores: bool
    unlocks: bool
    asks: bool

    def joined(self, other: "PeriodEnd") -> "PeriodEnd":
        """Two causes: what one of them forbids is not done."""
        return PeriodEnd(
            self.cancels or other.cancels,
            self.stores and other.stores,
            self.unlocks and other.unlocks,
            self.asks or other.asks,
        )


CAUSES: Final = {
    EndCause.HANDOVER: PeriodEnd(cancels=False, stores=True, unlocks=True, asks=True),
    EndCause.LEASE_ENDED: PeriodEnd(cancels=True, stores=True, unlocks=True, asks=True),
    EndCause.FENCED: PeriodEnd(cancels=True, stores=False, unlocks=False, asks=False),
    EndCause.NOT_HELD: PeriodEnd(cancels=True, stores=False, unlocks=False, asks=True),
    EndCause.STALE: PeriodEnd(cancels=True, stores=False, unlocks=False, asks=True),
    EndCause.NEW_EPOCH: PeriodEnd(cancels=True, stores=False, unlocks=False, asks=True),
    EndCause.NO_FENCING: PeriodEnd(cancels=True, stores=False, unlocks=False, asks=True),
}

ANSWERS: Final = {
    int(ResponseCode.FENCED): EndCause.FENCED,
    int(ResponseCode.NOT_HELD): EndCause.NOT_HELD,
    int(ResponseCode.STALE): EndCause.STALE,
}
"""By response code, to any request under an epoch. It ends the period of that epoch, if it is not over yet. It is never
an answer about offsets, and no request is sent again under another epoch."""


class PeriodActs(Protocol):
    """What `PeriodEnds` does to the other parts of a consumer."""

    def cancel_calls(self, process_queue: ProcessQueue) -> None: ...
    def drop(self, process_queue: ProcessQueue, why: str) -> None: ...
    async def store_last(self, process_queue: ProcessQueue) -> None: ...
    def unlock(self, queue: MessageQueue) -> None: ...
    def rebalance_soon(self) -> None: ...


OnLost = Callable[[MessageQueue, int, str], Coroutine[Any, Any, None]]


class PeriodEnds:
    """Ends periods, each in a task of its own.

    Args:
        on_lost: called with the queue, the epoch and the reason, once for each period.
    """

    def __init__(self, member: Membership, acts: PeriodActs, on_lost: OnLost | None) -> None:
        self._member = member
        self._runtime = member.runtime
        self._acts = acts
        self._on_lost = on_lost
        self._ends: dict[ProcessQueue, PeriodEnd] = {}
        self._reported = WeakSet[ProcessQueue]()  # on_lost was called
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order of their start

    def begin(self, process_queue: ProcessQueue, cause: EndCause, why: str | None = None) -> None:
        """Begin to end a period; a second cause joins the first one."""
        # This period has ended already, by a rebalance or by an earlier cause.
        if process_queue.life.dropped and not process_queue.life.resetting:
            return
        why = why or cause.value
        known, end = self._ends.get(process_queue), CAUSES[cause]
        self._ends[process_queue] = end if known is None else known.joined(end)
        # First this mark: no call begins any more, whatever comes next.
        process_queue.life.draining = True
        try:
            if end.cancels:
                self._lose(process_queue, why)
            if not end.stores:
                self._acts.drop(process_queue, why)
        except OSError as error:
            # The trace cannot be written: the period ends all the same, and its caller goes on.
            self._member.log.error("trace_not_written", error=str(error))
        except BaseException as error:
            # Without the task below, the queue would be neither handled nor given on.
            log_or_raise(self._member.log, "period_end_failed", error)
        if known is None:
            self.start(self._finish(process_queue, why), f"end period of {process_queue.queue}")

    def _lose(self, process_queue: ProcessQueue, why: str) -> None:
        # First distrust the lock, then cancel: a call that ends by the cancellation must not let the next one in.
        process_queue.hold.locked = False
        if process_queue.life.lost:
            return
        process_queue.life.lost = True
        epoch = epoch_text(process_queue.hold.epoch)
        queue, group = str(process_queue.queue), self._member.group
        self._member.log.warning("lock_lost", queue=queue, group=group, epoch=epoch, why=why)
        self._acts.cancel_calls(process_queue)
        self.report_lost(process_queue, why)
        self._member.record("lock_lost", process_queue, why=why)

    async def _finish(self, process_queue: ProcessQueue, why: str) -> None:
        queue = process_queue.queue
        # A plain listener cannot be stopped. As long as it runs, its queue is not given up: the next owner would
        # overtake it.
        while not await process_queue.life.listener_idle(_LISTENER_WAIT_MS):
            self._member.log.warning("unlock_waits_for_listener", queue=str(queue), why=why)
        try:
            # First the last offset, then the unlock: the next owner begins where this one ended. Looked up now, because
            # a second cause may have forbidden it meanwhile.
            if self._ends[process_queue].stores:
                await self._acts.store_last(process_queue)
            self._acts.drop(process_queue, why)
        finally:
            # Also when the trace cannot be written: the queue is released all the same.
            self._release(process_queue, self._ends.pop(process_queue))

    def _release(self, process_queue: ProcessQueue, end: PeriodEnd) -> None:
        queue, member = process_queue.queue, self._member
        process_queue.life.dropped = True
        # A new period of the same queue may stand there. It is not this one's to end.
        if member.table.get(queue) is process_queue:
            member.offsets.forget(queue)
            del member.table[queue]
            if end.unlocks:
                self._acts.unlock(queue)
        if end.asks:
            self._acts.rebalance_soon()

    def report_lost(self, process_queue: ProcessQueue, why: str) -> None:
        """Call on_lost, if it was not called for this period."""
        if self._on_lost is not None and process_queue not in self._reported:
            self._reported.add(process_queue)
            call = self._on_lost(process_queue.queue, process_queue.hold.epoch, why)
            self.start(call, f"on_lost of {process_queue.queue}")

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run work that `settle` waits for."""
        try:
            task = self._runtime.create_task(self._guarded(work), name=name)
        except BaseException:
            work.close()  # its loop has ended
            raise
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BaseException as error:
            # For example, the trace cannot be written.
            log_or_raise(self._member.log, "period_end_failed", error)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)

    async def settle(self, timeout_ms: int) -> None:
        """Wait for the periods that are ending; after the timeout the rest is abandoned."""
        deadline_ms = self._runtime.now_ms() + timeout_ms
        while self._tasks:
            task = next(iter(self._tasks))
            left_ms = deadline_ms - self._runtime.now_ms()
            try:
                async with asyncio.timeout(max(left_ms, 0) / 1000):
                    await asyncio.shield(task)
            except TimeoutError:
                task.cancel()
            self._forget(task)
