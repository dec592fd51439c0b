"""What a consume service is: it takes what was pulled and calls the listener, in its own order or without one.

There is one for each value of a consumer's `ordering`; `orderings` has the table.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep.client.consumer.dispatch.call_start import CallStarts
from lockstep.client.consumer.dispatch.stats import ConsumeStats
from lockstep.client.consumer.listener import ListenerCall
from lockstep.client.consumer.membership import Membership
from lockstep.client.consumer.ownership.locks import Locks
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.runtime import WorkerPool

__all__ = ["ConsumeService", "ServiceParts"]


class ConsumeService(Protocol):
    def start(self) -> None:
        """Begin what is repeated; there is nothing to consume yet."""

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Put pulled messages into their process queue, and consume them."""

    def between_runs(self, queue: MessageQueue) -> AbstractAsyncContextManager[None]:
        """In it an administrator's message may be handed to the listener beside those of `queue`."""

    def set_consume_thread_count(self, count: int) -> None:
        """From now on so many listener calls at a time."""

    async def stop(self, timeout_ms: int) -> list[ProcessQueue]:
        """Take no more messages; the queues whose listener did not return within `timeout_ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """The parts of a consumer that its consume service works with."""

    member: Membership
    call: ListenerCall[Any]
    pool: WorkerPool
    locks: Locks
    stats: ConsumeStats

    def call_starts(self) -> CallStarts:
        """For one service."""
        member = self.member
        return CallStarts(member.runtime, member.log, member.config, self.stats, traced=member.trace is not None)
