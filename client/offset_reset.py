"""Queues that begin anew at an offset somebody else chose: an administrator's reset, or a broker's correction."""

from collections.abc import Callable, Mapping
from typing import Final

from lockstep.client.instance import MQClientInstance
from lockstep.client.offset_store import OffsetStore
from lockstep.client.process_queue import ProcessQueue
from lockstep.client.queue_locks import Locks
from lockstep.client.rebalance import Rebalance
from lockstep.client.trace import TraceWriter
from lockstep.protocol.model import MessageQueue

__all__ = ["OffsetReset"]

_LISTENER_WAIT_MS: Final = 10_000  # RocketMQ sleeps that long, whether a listener runs or not (wire.md 12.9)


class OffsetReset:
    """`done` is called when queues may be acquired again."""

    def __init__(
        self,
        instance: MQClientInstance,
        table: dict[MessageQueue, ProcessQueue],
        locks: Locks,
        offsets: OffsetStore,
        rebalance: Rebalance,
        *,
        done: Callable[[], None],
        trace: TraceWriter | None,
    ) -> None:
        self._instance = instance
        self._runtime = instance.runtime
        self._table = table
        self._locks = locks
        self._offsets = offsets
        self._rebalance = rebalance
        self._done = done
        self._trace = trace
        self._wanted: dict[ProcessQueue, int] = {}
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def start(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Drop those of these queues that this client has, and begin again at the offsets; negative ones are 0.

        A reset that comes while an earlier one waits for a listener wins over it.
        """
        begun = []
        for queue, process_queue in self._table.items():
            if queue.topic != topic or queue not in offsets:
                continue
            if process_queue in self._wanted:
                self._wanted[process_queue] = max(offsets[queue], 0)
            elif not process_queue.dropped:
                self._wanted[process_queue] = max(offsets[queue], 0)
                self._rebalance.drop(process_queue, "its offset is reset")
                begun.append(process_queue)
        if begun:
            self._runtime.create_task(self._when_idle(begun), name="reset offsets")

    async def _when_idle(self, process_queues: list[ProcessQueue]) -> None:
        """What a running listener still handles is from before the reset, and must not follow it."""
        deadline_ms = self._runtime.now_ms() + _LISTENER_WAIT_MS
        for process_queue in process_queues:
            if not await process_queue.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0)):
                self._instance.log.warning("listener still runs: reset all the same", queue=str(process_queue.queue))
        try:
            await self.restart({process_queue: self._wanted[process_queue] for process_queue in process_queues})
        finally:
            for process_queue in process_queues:
                del self._wanted[process_queue]

    async def restart(self, offsets: Mapping[ProcessQueue, int]) -> None:
        """Dropped queues leave the table, and the brokers hear where the next owner shall begin."""
        # Nobody renewed their locks meanwhile, and only the owner of a queue may reset it.
        left = [pq.queue for pq in offsets if not self._stopped and self._table.get(pq.queue) is pq]
        owned = await self._locks.lock(left)
        for process_queue, offset in offsets.items():
            queue = process_queue.queue
            if self._stopped or self._table.get(queue) is not process_queue:
                continue
            if queue in owned:
                self._offsets.update(queue, offset)
                if self._trace is not None:
                    self._trace.queue_event("reset", queue, period=process_queue.period, offset=offset)
                self._rebalance.persist([process_queue])
            else:
                self._instance.log.warning("lock refused: offset not reset", queue=str(queue), offset=offset)
            del self._table[queue]
            self._locks.unlock_later(queue)  # unless the next round asks for it
        self._done()
