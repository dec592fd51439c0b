"""The client's side of the broker's queue locks (wire.md 7.3): lock, renew, unlock."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from lockstep.client.config import ConsumerConfig
from lockstep.client.errors import NoRouteError
from lockstep.client.instance import MQClientInstance
from lockstep.client.process_queue import ProcessQueue
from lockstep.client.trace import TraceWriter
from lockstep.protocol.bodies import LockBatchBody, LockOkBody
from lockstep.protocol.body_codec import encode_body
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.runtime import Runtime, TimerHandle

__all__ = ["Locks", "NoLocks", "QueueLocks"]

Asking = asyncio.Task[set[MessageQueue] | None]


class Locks(Protocol):
    """What a rebalance and a consume service ask of the broker's locks."""

    @property
    def needed(self) -> bool:
        """Is a queue consumed only under its lock?"""

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]: ...
    async def lock_all(self) -> None: ...
    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None: ...
    def unlock_one_way(self, queue: MessageQueue) -> None: ...
    def unlock_later(self, queue: MessageQueue) -> None: ...
    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None: ...


class NoLocks:
    """For consumption without order and for broadcasting: nobody is asked, everything is granted (wire.md 12.3)."""

    needed = False

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        now_ms = self._runtime.now_ms()
        return dict.fromkeys(queues, now_ms)

    async def lock_all(self) -> None:
        pass

    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None:
        pass

    def unlock_one_way(self, queue: MessageQueue) -> None:
        pass

    def unlock_later(self, queue: MessageQueue) -> None:
        pass

    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        pass


class QueueLocks:
    """`table` is the consumer's: its process queues by message queue.

    `on_won_back` is told of a process queue whose lock was lost, or may have been, before it was granted again. In
    between, another client may have owned the queue, handled what this one has in hand and gone; RocketMQ goes on
    with it all the same, repeats it and commits backwards. Here the process queue ends, and the rebalance makes a
    new one.

    An unlock waits for lock requests of its queue that are under way: Apache's broker handles requests of one
    connection side by side, and a renewal behind the unlock would lock the queue again for a client that has gone.
    """

    needed = True

    def __init__(
        self,
        instance: MQClientInstance,
        group: str,
        config: ConsumerConfig,
        table: dict[MessageQueue, ProcessQueue],
        trace: TraceWriter | None,
        on_won_back: Callable[[ProcessQueue], None],
    ) -> None:
        self._instance = instance
        self._group = group
        self._config = config
        self._table = table
        self._on_won_back = on_won_back
        self._trace = trace
        self._unlock_timers: dict[MessageQueue, TimerHandle] = {}
        self._unlocks_owed: dict[MessageQueue, None] = {}  # sent when the lock requests under way have ended
        self._asking: dict[Asking, frozenset[MessageQueue]] = {}

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Ask for these queues, one request a broker; those granted, and since when. A ProcessQueue is renewed.

        A lock counts from the time it was asked for: the broker's clock for it starts later, however late the answer
        is read. A broker that does not answer grants nothing. What is not in the table `unlock_delay_ms` after it was
        granted, or may have been, is unlocked.
        """
        batches, granted = _by_broker(queues), dict[MessageQueue, int]()
        perhaps_held = [queue for wanted in batches.values() for queue in wanted]
        for queue in perhaps_held:
            self._cancel_unlock(queue)
        try:
            for broker_name, wanted in batches.items():
                asked_ms = self._instance.runtime.now_ms()
                won = await self._lock_batch(broker_name, wanted)
                if won is None:
                    continue
                for queue in wanted:
                    if queue in won:
                        granted[queue] = asked_ms
                        self._granted(self._table.get(queue), asked_ms)
                    else:
                        perhaps_held.remove(queue)
        finally:
            for queue in perhaps_held:
                if queue not in self._table:
                    self.unlock_later(queue)
        return granted

    async def lock_all(self) -> None:
        """Renew the locks of every queue in the table that is not dropped: the 20 s task.

        Asked for and not granted means lost; a broker that does not answer changes nothing, and the local view
        of the lock runs out by itself.
        """
        held = [queue for queue, process_queue in self._table.items() if not process_queue.dropped]
        batches = _by_broker(held).items()
        await asyncio.gather(*[self._renew(broker_name, queues) for broker_name, queues in batches])

    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None:
        """As `lock_all` for one broker, over a connection that nobody else uses yet.

        A broker that restarted has no locks: what another client took there first must be known before a pull
        commits for it.
        """
        held = [queue for queue, process_queue in self._table.items() if not process_queue.dropped]
        for broker_name, queues in _by_broker(held).items():
            if self._instance.routes.master_address(broker_name) == address:
                await self._renew(broker_name, queues, endpoint)

    async def _renew(self, broker_name: str, queues: list[MessageQueue], over: Endpoint | None = None) -> None:
        asked = [(queue, process_queue) for queue in queues if (process_queue := self._table.get(queue)) is not None]
        asked_ms = self._instance.runtime.now_ms()
        won = await self._lock_batch(broker_name, queues, over)
        if won is None:
            return
        for queue, process_queue in asked:
            if queue in won:
                self._granted(process_queue, asked_ms)
            elif process_queue.locked:
                process_queue.locked = False
                self._instance.log.warning("lock lost", queue=str(queue), group=self._group)
                if self._trace is not None:
                    self._trace.queue_event("lock_lost", queue, period=process_queue.period)

    def _granted(self, process_queue: ProcessQueue | None, asked_ms: int) -> None:
        if process_queue is None:
            return
        if process_queue.holds_lock(self._instance.runtime.now_ms(), self._config.lock_surely_held_ms):
            process_queue.granted(asked_ms)
        elif not process_queue.dropped:
            process_queue.outlived_lock = True
            self._on_won_back(process_queue)

    async def _lock_batch(
        self, broker_name: str, queues: list[MessageQueue], over: Endpoint | None = None
    ) -> set[MessageQueue] | None:
        """What the broker granted, None where it did not answer. The request is known of until then, whoever waits."""
        asking = self._instance.runtime.create_task(self._ask(broker_name, queues, over), name="lock")
        self._asking[asking] = frozenset(queues)
        asking.add_done_callback(self._asking.pop)
        return await asyncio.shield(asking)

    async def _ask(
        self, broker_name: str, queues: list[MessageQueue], over: Endpoint | None
    ) -> set[MessageQueue] | None:
        body = LockBatchBody(self._group, self._instance.client_id, tuple(queues))
        try:
            reply = await self._instance.call_for(
                LockOkBody,
                broker_name,
                RequestCode.LOCK_BATCH_MQ,
                body=body,
                timeout_ms=self._config.lock_timeout_ms,
                over=over,
            )
        except (RemotingError, NoRouteError, BodyError) as error:
            self._instance.log.warning("lock request failed", broker=broker_name, group=self._group, error=str(error))
            return None
        return set(reply.lock_ok_mq_set)

    def unlock_one_way(self, queue: MessageQueue) -> None:
        """As a rebalance unlocks: nobody waits for it."""
        under_way = [asking for asking, queues in self._asking.items() if queue in queues]
        if under_way:
            self._unlocks_owed[queue] = None
            under_way[-1].add_done_callback(lambda asking: self._unlock_owed(queue, asking))
            return
        address = self._instance.routes.master_address(queue.broker_name)
        endpoint = self._instance.dialer.open_endpoint(address) if address else None
        if endpoint is not None:
            body = encode_body(LockBatchBody(self._group, self._instance.client_id, (queue,)), endpoint.serialize_type)
            endpoint.send_one_way(RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, body=body))

    def unlock_later(self, queue: MessageQueue) -> None:
        """As a rebalance unlocks a queue that had messages in hand: after `unlock_delay_ms`."""
        self._cancel_unlock(queue)
        delay_ms = self._config.unlock_delay_ms
        self._unlock_timers[queue] = self._instance.runtime.call_later_ms(delay_ms, self._unlock_if_gone, queue)

    def _unlock_if_gone(self, queue: MessageQueue) -> None:
        """RocketMQ does not look whether the queue came back meanwhile, and frees a lock in use (wire.md 12.3)."""
        del self._unlock_timers[queue]
        if queue not in self._table:
            self.unlock_one_way(queue)

    def _unlock_owed(self, queue: MessageQueue, asked: Asking) -> None:
        """Once more later where the broker did not answer: it may handle the lock request behind this unlock."""
        if queue in self._unlocks_owed:
            del self._unlocks_owed[queue]
            if asked.cancelled() or asked.exception() is not None or asked.result() is None:
                self.unlock_later(queue)
            self.unlock_one_way(queue)

    def _cancel_unlock(self, queue: MessageQueue) -> None:
        self._unlocks_owed.pop(queue, None)
        timer = self._unlock_timers.pop(queue, None)
        if timer is not None:
            timer.cancel()

    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        """As a shutdown unlocks: each broker's answer is waited for.

        With `queues` go those whose unlock is still to come, or they would stay locked until they expire.
        """
        owed, self._unlocks_owed = self._unlocks_owed, {}
        await asyncio.gather(*self._asking, return_exceptions=True)
        to_come = dict.fromkeys([*owed, *self._unlock_timers])
        later = [queue for queue in to_come if queue not in self._table]
        for queue in to_come:
            self._cancel_unlock(queue)
        for broker_name, held in _by_broker([*queues, *later]).items():
            body = LockBatchBody(self._group, self._instance.client_id, tuple(held))
            try:
                await self._instance.call(
                    broker_name, RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=self._config.lock_timeout_ms
                )
            except (RemotingError, NoRouteError) as error:
                self._instance.log.warning("unlock failed", broker=broker_name, error=str(error))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    batches: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        batches.setdefault(queue.broker_name, []).append(queue)
    return batches
