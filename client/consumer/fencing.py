"""Fencing: what a PushMember with fenced locks does besides (docs/fencing.md)."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from lockstep.client.consumer.dispatch.base import ConsumeService
from lockstep.client.consumer.ownership.fenced_commits import FencedCommits
from lockstep.client.consumer.ownership.fenced_locks import FencedLocks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.period_end import PeriodEnds
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.client.errors import ConsumerError, log_or_raise
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.host.runtime import WorkerPool

__all__ = ["Fencing", "FencingParts", "OnAcquired", "OnLost"]

_SETTLE_MS: Final = 10_000

OnAcquired = Callable[[MessageQueue, int], Awaitable[object] | object]
OnLost = Callable[[MessageQueue, int, str], Awaitable[object] | object]


class FencingParts(NamedTuple):
    """The parts of a consumer that `Fencing` works with, and the user's two functions."""

    member: Membership
    locks: FencedLocks
    rebalance: Rebalance
    service: ConsumeService
    pool: WorkerPool
    tenant: NamesOfTenant
    rebalance_soon: Callable[[], None]
    on_acquired: OnAcquired | None
    on_lost: OnLost | None


class Fencing:
    """`ends` ends periods; the other parts ask for it through the locks."""

    def __init__(self, parts: FencingParts) -> None:
        self._parts = parts
        self._member = parts.member
        self.locks = parts.locks
        self._commits = FencedCommits(parts.member, parts.locks.refused)
        self.ends = PeriodEnds(parts.member, self, self._call_on_lost if parts.on_lost is not None else None)
        self.cancel_calls = parts.service.cancel_calls
        self.drop = parts.rebalance.drop
        self.unlock = parts.locks.unlock
        self.rebalance_soon = parts.rebalance_soon
        self.store_last = self._commits.store_last
        self._stopping = False

    # Life ----------------------------------------------------------------------------------------------------

    async def check_brokers(self) -> None:
        """Raise ConsumerError when a broker of the topics has no fenced locks. One that does not answer may have."""
        routes = self._member.instance.routes
        names = {routes.broker_name_at(address) for address in routes.broker_addresses(masters_only=True)}
        without = await self.locks.without_fenced_locks(sorted(name for name in names if name is not None))
        if without:
            raise ConsumerError(
                f"fenced=True, and these brokers have no fenced locks: {', '.join(without)}; start them with "
                '--lock-mode fenced, or say fenced="if the broker can"'
            )

    def start(self) -> None:
        self.locks.watch.start()

    async def stop(self) -> None:
        """Wait for the periods that are ending, and for the user's functions. Renew no lock any more.

        What has not ended in time is cancelled.
        """
        self._stopping = True
        await self.ends.settle(_SETTLE_MS)
        self.locks.watch.stop()

    # Periods -------------------------------------------------------------------------------------------------

    def acquired(self, process_queue: ProcessQueue, start: Callable[[ProcessQueue], None]) -> None:
        """Call the user's function, then `start` the new period."""
        if self._parts.on_acquired is None or not process_queue.epoch:
            start(process_queue)
            return
        calling = self._call_on_acquired(self._parts.on_acquired, process_queue, start)
        self.ends.start(calling, f"on_acquired of {process_queue.queue}")

    async def _call_on_acquired(
        self, on_acquired: OnAcquired, process_queue: ProcessQueue, start: Callable[[ProcessQueue], None]
    ) -> None:
        """An error is logged, and the function is called again: without it no call of the listener may begin."""
        queue = self._parts.tenant.bare_queue(process_queue.queue)
        while not (process_queue.is_over or self._stopping):
            try:
                await self._call(partial(on_acquired, queue, process_queue.epoch))
            except BaseException as error:
                log_or_raise(self._member.log, "on_acquired_failed", error, queue=str(process_queue.queue))
                await asyncio.sleep(self._member.config.suspend_current_queue_time_ms / 1000)
                continue
            if not (process_queue.is_over or self._stopping):
                start(process_queue)
            return

    async def _call_on_lost(self, queue: MessageQueue, epoch: int, why: str) -> None:
        assert self._parts.on_lost is not None
        try:
            await self._call(partial(self._parts.on_lost, self._parts.tenant.bare_queue(queue), epoch, why))
        except BaseException as error:
            log_or_raise(self._member.log, "on_lost_failed", error, queue=str(queue))

    async def _call(self, function: Callable[[], Awaitable[object] | object]) -> None:
        """A plain function runs on a thread of the listener: it may wait for a database."""
        wanted = function.func if isinstance(function, partial) else function
        if inspect.iscoroutinefunction(wanted) or inspect.iscoroutinefunction(getattr(wanted, "__call__", None)):  # noqa: B004
            result = function()
        else:
            result = await self._parts.pool.submit(function)
        if inspect.isawaitable(result):
            await result

    # Offsets -------------------------------------------------------------------------------------------------

    def commit(self, process_queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        """Send the offsets of fenced periods; return the process queues that have no fenced lock."""
        fenced, others = list[ProcessQueue](), list[ProcessQueue]()
        for process_queue in process_queues:
            (fenced if process_queue.epoch else others).append(process_queue)
        self._commits.send(fenced)
        return others

    async def store_all(self, process_queues: Iterable[ProcessQueue]) -> None:
        await asyncio.gather(*[self._commits.store_last(process_queue) for process_queue in process_queues])
