"""UserCalls: calls the functions on_acquired and on_lost of a user of fenced locks (docs/fencing.md)."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant

__all__ = ["OnAcquired", "OnLost", "UserCalls"]

OnAcquired = Callable[[MessageQueue, int], Awaitable[object] | object]
OnLost = Callable[[MessageQueue, int, str], Awaitable[object] | object]


class UserCalls:
    """An error of a function is logged.

    Args:
        on_thread: runs a plain function on a thread of the listener: it may wait for a database.
    """

    def __init__(
        self,
        member: Membership,
        tenant: NamesOfTenant,
        on_thread: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        self._member = member
        self._tenant = tenant
        self._on_thread = on_thread
        self.stopped = False

    async def acquired(
        self, on_acquired: OnAcquired, process_queue: ProcessQueue, start: Callable[[ProcessQueue], None]
    ) -> None:
        """Call `on_acquired`, then `start` the period.

        After an error it is called again: without it no call of the listener may begin.
        """
        queue = self._tenant.bare_queue(process_queue.queue)
        while not (process_queue.life.is_over or self.stopped):
            try:
                await self._call(partial(on_acquired, queue, process_queue.hold.epoch))
            except BaseException as error:
                log_or_raise(self._member.log, "on_acquired_failed", error, queue=str(process_queue.queue))
                await asyncio.sleep(self._member.config.suspend_current_queue_time_ms / 1000)
                continue
            if not (process_queue.life.is_over or self.stopped):
                start(process_queue)
            return

    async def lost(self, on_lost: OnLost, queue: MessageQueue, epoch: int, why: str) -> None:
        try:
            await self._call(partial(on_lost, self._tenant.bare_queue(queue), epoch, why))
        except BaseException as error:
            log_or_raise(self._member.log, "on_lost_failed", error, queue=str(queue))

    async def _call(self, function: "partial[Awaitable[object] | object]") -> None:
        wanted = function.func
        if inspect.iscoroutinefunction(wanted) or inspect.iscoroutinefunction(getattr(wanted, "__call__", None)):  # noqa: B004
            result = function()
        else:
            result = await self._on_thread(function)
        if inspect.isawaitable(result):
            await result
