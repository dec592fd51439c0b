"""The ways to own queues: without locks, under RocketMQ's locks, and under fenced locks. Here one is chosen."""

from dataclasses import dataclass

from lockstep.client.config import Fenced
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy
from lockstep.client.consumer.ownership.allocation.sticky import WITHOUT_FENCE, AllocateSticky
from lockstep.client.consumer.ownership.fenced_locks import FencedLocks
from lockstep.client.consumer.ownership.lock_port import LockOwner, Locks, NoLocks
from lockstep.client.consumer.ownership.locks import QueueLocks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.user_calls import OnAcquired, OnLost, UserCalls
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.settings import SettingError

__all__ = ["OwnershipWish", "fenced_of"]


@dataclass(frozen=True, slots=True)
class OwnershipWish:
    """How the user of a push consumer wants its queues to be owned, and the functions that are called about it.

    Args:
        fenced: whether fenced locks are wanted.
        on_acquired: called before the first call of the listener in a period under a fenced lock.
        on_lost: called once when such a period ends.
    """

    fenced: Fenced = Fenced.NO
    on_acquired: OnAcquired | None = None
    on_lost: OnLost | None = None

    def check(
        self, ordering: str, strategy: AllocateMessageQueueStrategy, *, needs_lock: bool, broadcasting: bool
    ) -> None:
        """Raise SettingError when the consumer cannot have it."""
        if isinstance(strategy, AllocateSticky) and self.fenced is not Fenced.REQUIRED:
            raise SettingError(WITHOUT_FENCE)
        if self.fenced is Fenced.NO:
            if self.on_acquired is not None or self.on_lost is not None:
                raise SettingError("on_acquired and on_lost are for fenced=True")
        elif not needs_lock:
            raise SettingError(f"fenced is for ordering='queue' or 'key', which need locks, not {ordering!r}")
        elif broadcasting:
            raise SettingError("fenced is not for BROADCASTING: each consumer owns all queues, without a lock")

    def locks(self, member: Membership, owner: LockOwner, tenant: NamesOfTenant, *, needed: bool) -> Locks:
        """Return the locks of a consumer. `needed`: a queue is consumed only by the holder of its lock."""
        if self.fenced is not Fenced.NO:
            calls = UserCalls(member, tenant, owner.on_thread)
            required = self.fenced is Fenced.REQUIRED
            return FencedLocks(member, owner, calls, self.on_acquired, self.on_lost, required=required)
        return QueueLocks(member, owner.lock_reacquired) if needed else NoLocks(member.runtime)


def fenced_of(value: object) -> Fenced:
    """Return what the argument `fenced` of a consumer means. Raises SettingError."""
    try:
        return Fenced(value)
    except ValueError:
        raise SettingError(f'fenced must be True, False or "if the broker can", not {value!r}') from None
