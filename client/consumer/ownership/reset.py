"""OffsetReset: queues start again at another offset, after an administrator's reset or a broker's correction."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.ownership.lock_port import Locks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.protocol.model import MessageQueue

__all__ = ["OffsetReset"]

# After this time the log says that a listener delays a reset.
_LISTENER_WAIT_MS: Final = 10_000


class _Correction(NamedTuple):
    offsets: range
    otherwise: int


class OffsetReset:
    """`done` is called when the queues may be acquired again."""

    def __init__(self, member: Membership, locks: Locks, rebalance: Rebalance, done: Callable[[], None]) -> None:
        self._member = member
        self._runtime = member.runtime
        self._log = member.log
        self._table = member.table
        self._locks = locks
        self._rebalance = rebalance
        self._done = done
        # Of process queues that are `resetting`: the offset of a reset, or what `correct` was given.
        self._wanted: dict[ProcessQueue, int | _Correction] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        for task in self._waiting:
            task.cancel()

    def start(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Drop those of these queues that this client owns, and start again at the offsets. A negative offset means 0.

        If an earlier reset waits for a listener, the new offset replaces the earlier one.
        """
        begun = []
        for queue, process_queue in self._table.items():
            if queue.topic != topic or queue not in offsets:
                continue
            if process_queue.life.resetting:
                self._wanted[process_queue] = max(offsets[queue], 0)
            elif not process_queue.life.dropped:
                self._want(process_queue, max(offsets[queue], 0))
                self._rebalance.drop(process_queue, "its offset is reset")
                begun.append(process_queue)
        if begun:
            task = self._runtime.create_task(self._when_idle(begun), name="reset offsets")
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def correct(self, process_queue: ProcessQueue, offsets: range, otherwise: int, delay_ms: int) -> None:
        """Start again at an offset that the broker has, after `delay_ms` (wire.md 12.6).

        The offset of a reset replaces it, whether the reset comes later or waits already.

        Args:
            offsets: If the first message that is not handled when the listener has ended is one of these, it is that.
            otherwise: The offset if it is not.
        """
        if not process_queue.life.resetting:
            self._want(process_queue, _Correction(offsets, otherwise))
            await asyncio.sleep(delay_ms / 1000)
            await self._when_idle([process_queue])

    def _want(self, process_queue: ProcessQueue, wanted: "int | _Correction") -> None:
        # First this mark: else a rebalance would remove the queue and store the offset of handled messages.
        process_queue.life.resetting = True
        self._wanted[process_queue] = wanted

    def _first_offset(self, process_queue: ProcessQueue) -> int:
        """Where the next period begins. Call it when no listener runs: a call that ended well moves the position."""
        wanted, position = self._wanted[process_queue], process_queue.cache.position
        if isinstance(wanted, int):
            return wanted
        return position if position in wanted.offsets else wanted.otherwise

    async def _when_idle(self, process_queues: list[ProcessQueue]) -> None:
        """Wait until no listener runs, however long that takes, as a rebalance does.

        An unlock while a listener runs would let the next owner begin at the same time. RocketMQ sleeps 10 s, whether
        a listener runs or not (wire.md 12.9).
        """
        deadline_ms = self._runtime.now_ms() + _LISTENER_WAIT_MS
        running = [
            process_queue
            for process_queue in process_queues
            if not await process_queue.life.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0))
        ]
        for process_queue in running:
            self._log.warning("reset_waits_for_listener", queue=str(process_queue.queue))
        idle = [process_queue for process_queue in process_queues if process_queue not in running]
        await asyncio.gather(self._start_again(idle), *[self._when_ended(process_queue) for process_queue in running])

    async def _when_ended(self, process_queue: ProcessQueue) -> None:
        while not await process_queue.life.listener_idle(_LISTENER_WAIT_MS):
            pass
        await self._start_again([process_queue])

    async def _start_again(self, process_queues: list[ProcessQueue]) -> None:
        """Take dropped queues out of the table, and store the offset at which the next owner begins."""
        # Their locks were not renewed meanwhile, and only the owner of a queue may reset it.
        left = [pq for pq in process_queues if not self._stopped and self._table.get(pq.queue) is pq]
        try:
            for process_queue in [pq for pq in left if pq.hold.epoch]:
                await self._reset_fenced(process_queue)
            left = [pq for pq in left if not pq.hold.epoch]
            owned = await self._locks.lock([process_queue.queue for process_queue in left]) if left else {}
            for process_queue in left:
                if not self._stopped and self._table.get(process_queue.queue) is process_queue:
                    self._leave_table(process_queue, owned=process_queue.queue in owned)
        except BaseException as error:
            # For example, the trace cannot be written; the rebalance removes the queues then.
            queues = ", ".join([str(process_queue.queue) for process_queue in left])
            log_or_raise(self._log, "offset_reset_failed", error, queues=queues)
        finally:
            for process_queue in process_queues:
                del self._wanted[process_queue]
                process_queue.life.resetting = False
        self._done()

    async def _reset_fenced(self, process_queue: ProcessQueue) -> None:
        """Move the offset with a request under the epoch. The lock goes on under a new epoch, with a new period."""
        queue, offset = process_queue.queue, self._first_offset(process_queue)
        self._member.record("reset", process_queue, offset=offset)
        done = await self._locks.reset_offset(process_queue, offset)
        if self._table.get(queue) is process_queue:
            self._member.offsets.forget(queue)
            del self._table[queue]
            if done and not self._stopped:
                self._locks.unlock_later(queue)  # unless the next rebalance asks for it
            else:
                self._locks.unlock(queue)

    def _leave_table(self, process_queue: ProcessQueue, *, owned: bool) -> None:
        queue, offset = process_queue.queue, self._first_offset(process_queue)
        if owned:
            self._member.offsets.update(queue, offset)
            self._member.record("reset", process_queue, offset=offset)
            self._rebalance.persist([process_queue])
        else:
            self._log.warning("offset_reset_refused", queue=str(queue), offset=offset, why="the lock was refused")
        del self._table[queue]
        self._locks.unlock_later(queue)  # unless the next rebalance asks for it
