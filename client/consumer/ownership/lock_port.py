"""Locks: what the parts of a consumer ask of the locks on the brokers, and the answer without locks."""

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol

from lockstep.client.consumer.ownership.hold import Hold, NoHold
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.host.runtime import Runtime

__all__ = ["Grant", "LockOwner", "Locks", "NoLocks", "Refused", "StartPeriod", "Unfenced"]

StartPeriod = Callable[[ProcessQueue], None]


class Grant(NamedTuple):
    """A lock that was granted.

    Args:
        asked_ms: the time of the request. The lock counts from then on, because the broker's own time for the lock
            starts later, however late the answer is read.
        epoch: of a fenced lock; 0: of a broker that has none.
        lease_ms: the life of a fenced lock.
    """

    asked_ms: int
    epoch: int = 0
    lease_ms: int = 0


class Refused(NamedTuple):
    """Why a lock call got no lock of a queue.

    Args:
        is_held: another client has the lock.
        owner: its client id, if the broker said it.
        wait_ms: until its lock ends, if the broker said it.
    """

    why: str
    is_held: bool = False
    owner: str = ""
    wait_ms: int = 0


class LockOwner(Protocol):
    """The consumer that locks work for."""

    def lock_reacquired(self, process_queue: ProcessQueue) -> None:
        """A lock was granted again that was lost, or may have been: the process queue must end, see QueueLocks."""

    def cancel_calls(self, process_queue: ProcessQueue) -> None:
        """Cancel the running calls of an `async def` listener."""

    def drop(self, process_queue: ProcessQueue, why: str) -> None:
        """Stop the process queue: it takes no message and commits no offset any more."""

    def rebalance_soon(self) -> None: ...

    def on_thread(self, function: Callable[[], object]) -> Awaitable[object]:
        """Run a function of the user on a thread of the listener."""


class Locks(Protocol):
    """The locks on the brokers. There are three ways, see `ways`; the other parts of a consumer do not ask which."""

    refusals: dict[MessageQueue, Refused]
    """Why `lock` did not get a queue, when it was asked for it the last time."""

    @property
    def needed(self) -> bool:
        """Whether a queue is consumed only while its lock is held."""

    @property
    def watches_calls(self) -> bool:
        """Whether a lock may be lost at once: the calls that run then are cancelled, or noted as late."""

    def new_hold(self, grant: Grant) -> Hold:
        """Return the hold of a period that begins with this grant."""

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Grant]: ...
    async def lock_all(self) -> None: ...
    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None: ...
    def unlock(self, queue: MessageQueue) -> None: ...
    def unlock_later(self, queue: MessageQueue) -> None: ...
    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None: ...

    def hands_over(self, process_queue: ProcessQueue, why: str) -> bool:
        """Begin to end the period of a fenced lock, which then leaves the table. Returns False for other locks."""

    def refused(self, process_queue: ProcessQueue, error: Exception) -> bool:
        """Return whether a broker refused a request under the epoch of this period; then the period ends."""

    async def reset_offset(self, process_queue: ProcessQueue, offset: int) -> bool:
        """Move the offset of a queue under its fenced lock. Returns whether the broker did it."""

    # The life of the consumer

    async def check_brokers(self) -> None:
        """Raise ConsumerError when a broker of the topics has not the locks that the user requires."""

    def start(self) -> None:
        """Renew the locks from now on."""

    async def settle(self) -> None:
        """Wait for the periods that are ending; then renew no lock any more."""

    def connection_ended(self, address: str) -> None:
        """A connection to a broker ended."""

    def acquired(self, process_queue: ProcessQueue, start: StartPeriod) -> None:
        """A period begins: call `start` with it, now or when the user's function has returned."""

    def dropped(self, process_queue: ProcessQueue, why: str) -> None:
        """A period has ended."""

    def commit(self, process_queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        """Send the offsets that go to a broker under an epoch; return the process queues of the others."""

    async def commit_last(self, process_queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        """As `commit`, and wait for the answers: their locks are given up next."""


class Unfenced:
    """What locks without a fence answer."""

    watches_calls = False

    def hands_over(self, process_queue: ProcessQueue, why: str) -> bool:
        return False

    def refused(self, process_queue: ProcessQueue, error: Exception) -> bool:
        return False

    async def reset_offset(self, process_queue: ProcessQueue, offset: int) -> bool:
        raise AssertionError("this lock has no epoch")

    async def check_brokers(self) -> None:
        pass

    def start(self) -> None:
        pass

    async def settle(self) -> None:
        pass

    def connection_ended(self, address: str) -> None:
        pass

    def acquired(self, process_queue: ProcessQueue, start: StartPeriod) -> None:
        start(process_queue)

    def dropped(self, process_queue: ProcessQueue, why: str) -> None:
        pass

    def commit(self, process_queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        return list(process_queues)

    async def commit_last(self, process_queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        return list(process_queues)


class NoLocks(Unfenced):
    """For consumption without order and for broadcasting: grants all, without a request (wire.md 12.3)."""

    needed = False

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.refusals: dict[MessageQueue, Refused] = {}

    def new_hold(self, grant: Grant) -> Hold:
        return NoHold(grant.asked_ms)

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Grant]:
        return dict.fromkeys(queues, Grant(self._runtime.now_ms()))

    async def lock_all(self) -> None:
        pass

    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None:
        pass

    def unlock(self, queue: MessageQueue) -> None:
        pass

    def unlock_later(self, queue: MessageQueue) -> None:
        pass

    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        pass
