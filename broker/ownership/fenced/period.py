"""One period of ownership of one queue under the fenced lock, and its epoch."""

from typing import Final, NamedTuple

from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.broker.ownership.fenced.states import LockState
from lockstep.broker.ownership.fenced.waiters import QueueKey
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.epochs import COUNTER_MAX, boot_of, make_epoch
from lockstep.store.format.lock_table import StoredLock

__all__ = ["Epochs", "FenceSettings", "FencedLock"]

_ENDED: Final = LockState.ENDED
# A year ahead of the clock at most: an epoch that a peer names must not use up the boots that are left.
_BOOT_AHEAD_MAX: Final = 366 * 24 * 3600 * 1000


class Epochs:
    """Gives each period its epoch, by numbers that grow.

    Args:
        boot: Epoch ms at the start of the broker, or one more than the kept boot.
    """

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self._counter = 0

    @property
    def last(self) -> int:
        """At least as high as every number that was given."""
        return make_epoch(self.boot, self._counter)

    def next(self) -> int:
        self._counter += 1
        if self._counter > COUNTER_MAX:
            self.boot, self._counter = self.boot + 1, 1
        return make_epoch(self.boot, self._counter)

    def go_above(self, epoch: int, now_ms: int) -> bool:
        """Later epochs are above `epoch`, of an earlier start that is not remembered. False: no start gave it."""
        if boot_of(epoch) > now_ms + _BOOT_AHEAD_MAX:
            return False
        self.go_above_boot(boot_of(epoch))
        return True

    def go_above_boot(self, boot: int) -> None:
        if boot >= self.boot:
            self.boot, self._counter = boot + 1, 0


class FenceSettings(NamedTuple):
    """Times of all periods, and how many locks there may be; 0: no limit."""

    lease_ms: int
    delay_ms: int
    delay_legacy_ms: int
    entries_max: int = 0
    entries_per_group_max: int = 0


class FencedLock:
    """Only `FencedLocks` changes it. The first attributes are those of a `StoredLock`.

    Attributes:
        renewed_ms: When it was granted or renewed last.
        ends_ms: From then on no client owns the queue, unless it is renewed before.
        connection: Of the last grant or renewal; None after its end and after a restart of the broker.
        watched: When its end is looked at, and a number of `DueLocks`; None: when a request comes.
    """

    __slots__ = (
        "acquired_ms", "client_id", "connection", "consumer_group", "ends_ms", "epoch", "fenced", "lease_ms", "queue",
        "renewed_ms", "state", "watched",
    )  # fmt: skip

    def __init__(self, begun: StoredLock, now_ms: int) -> None:
        self.consumer_group = begun.consumer_group
        self.queue = begun.queue
        self.client_id = begun.client_id
        self.fenced = begun.fenced
        self.epoch = begun.epoch
        self.lease_ms = begun.lease_ms
        self.acquired_ms = begun.acquired_ms
        self.state = LockState.HELD
        self.renewed_ms = now_ms
        self.ends_ms = now_ms + begun.lease_ms
        self.connection: Peer | None = None
        self.watched: tuple[int, int] | None = None

    @property
    def key(self) -> QueueKey:
        return self.queue.topic, self.queue.queue_id

    def kept(self) -> StoredLock:
        return StoredLock(
            self.consumer_group, self.queue, self.client_id, self.fenced, self.epoch, self.lease_ms, self.acquired_ms
        )

    def is_live(self, now_ms: int) -> bool:
        """Whether its client owns the queue now. A lock that has ended stays until the next owner."""
        return now_ms < self.ends_ms and self.state is not _ENDED

    def ends_after_delay(self, now_ms: int, settings: FenceSettings) -> None:
        """Its connection is gone: it ends with the lock delay, never later than its lease."""
        delay_ends_ms = now_ms + settings.delay_ms if self.fenced else self.renewed_ms + settings.delay_legacy_ms
        self.ends_ms = min(self.ends_ms, delay_ends_ms)

    def change(self, old: str | None, new: str | None, cause: ChangeCause, now_ms: int) -> OwnerChange:
        return OwnerChange(self.consumer_group, self.queue, old, new, self.epoch, cause, now_ms, self.renewed_ms)

    @property
    def is_draining(self) -> bool:
        return self.state in (LockState.DELAYED, LockState.RELEASING)

    def row(self, now_ms: int, waiting_count: int) -> LockTableRow:
        return LockTableRow(
            self.consumer_group,
            self.queue,
            self.client_id,
            age_ms=now_ms - self.renewed_ms,
            remaining_ms=self.ends_ms - 1 - now_ms,  # negative from `ends_ms` on
            held_ms=now_ms - self.acquired_ms,
            epoch=self.epoch,
            draining=self.is_draining and now_ms < self.ends_ms,
            waiting_count=waiting_count,
        )
