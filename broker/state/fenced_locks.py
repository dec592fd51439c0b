"""Queue locks of `--lock-mode fenced`: each period of ownership has an epoch, which requests are checked against.

docs/fencing.md has the rules and the table of transitions.
"""

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import NamedTuple

from lockstep.broker.state.locks import LockOutcome
from lockstep.protocol.bodies.locks import LockGrant, LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = ["Cause", "FenceAnswer", "FenceSettings", "FencedAnswer", "FencedLock", "FencedLocks", "OwnerChange", "Woken"]


class FenceAnswer(Enum):
    """The answer to a request under an epoch; the names are those of the response codes."""

    OK = "ok"
    FENCED = "fenced"  # another client has the queue, or had it since
    NOT_HELD = "not held"  # no client has it
    STALE = "stale"  # the same client has a newer epoch of it


class Cause(Enum):
    """Why the owner of a queue changed."""

    GRANTED = "granted"  # it had no owner
    TAKEN_OVER = "taken over"  # the time of its last owner was over
    RECLAIMED = "reclaimed"  # in the grace period of a broker that had lost its table
    RESET = "reset"  # the owner moved its offset: a new epoch
    UNLOCKED = "unlocked"
    LEFT = "left"  # UNREGISTER_CLIENT
    CONNECTION_LOST = "connection lost"  # and the lock delay is over
    LEASE_ENDED = "lease ended"


class OwnerChange(NamedTuple):
    """`old`, `new`: client ids, None for no owner. `epoch`: of the period that begins, or of the one that ended."""

    consumer_group: str
    queue: MessageQueue
    old: str | None
    new: str | None
    epoch: int
    cause: Cause
    now_ms: int


class FenceSettings(NamedTuple):
    lease_ms: int
    delay_ms: int
    delay_legacy_ms: int
    entries_max: int = 0
    entries_per_group_max: int = 0


class FencedLock:
    """The lock of one queue. `fenced`: its owner sends epochs; otherwise it is an unmodified client."""

    __slots__ = ("acquired_ms", "client_id", "connection", "ends_ms", "epoch", "fenced", "queue", "renewed_ms")

    client_id: str
    epoch: int
    fenced: bool
    queue: MessageQueue
    acquired_ms: int
    renewed_ms: int
    ends_ms: int
    connection: Hashable | None

    def is_live(self, now_ms: int) -> bool:
        """Whether its client owns the queue now. A lock that has ended stays until the next owner."""
        raise NotImplementedError


class FencedAnswer(NamedTuple):
    """The result for one queue of a lock or unlock request.

    `fence`: FENCED, NOT_HELD or STALE for a request under an epoch that was refused, else OK. `owner`: of a refused
    queue; `wait_ms`: until its time ends.
    """

    queue: MessageQueue
    outcome: LockOutcome
    grant: LockGrant | None = None
    fence: FenceAnswer = FenceAnswer.OK
    owner: str | None = None
    age_ms: int = 0
    wait_ms: int = 0


class Woken(NamedTuple):
    """Queues of a group that are free, and the connections that wait for one of them."""

    consumer_group: str
    waiting: dict[Hashable, tuple[MessageQueue, ...]]


class FencedLocks:
    """The table of locks; no clock and no I/O. `on_owner_changed` is called at each change of an owner or an epoch.

    Args:
        boot: Of its epochs: epoch ms at the start, or one more than the kept one.
    """

    def __init__(self, settings: FenceSettings, boot: int) -> None:
        self.settings = settings
        self.on_owner_changed: Callable[[OwnerChange], None] = lambda _: None
        self.next_due_ms: int | None = None
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def try_lock_batch(
        self,
        consumer_group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        epochs: Iterable[int] | None,
        connection: Hashable,
        now_ms: int,
    ) -> list[FencedAnswer]:
        """Claim or renew. Returns one answer for each queue, in order.

        Args:
            epochs: One for each queue, 0 to claim it; None: an unmodified client, which renews by its client id.
            connection: Its end begins the lock delay. When it is refused, `take_woken` names it once the queue is free.
        """
        raise NotImplementedError

    def unlock_batch(
        self,
        consumer_group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        epochs: Iterable[int] | None,
        now_ms: int,
    ) -> list[FencedAnswer]:
        """Release the queues that the client owns under these epochs. Returns REFUSED for each of the others.

        An unmodified client's queue is free at its next commit (`committed`), when it leaves, or after 1 s.
        """
        raise NotImplementedError

    def check(
        self,
        consumer_group: str,
        topic: str,
        queue_id: int,
        client_id: str,
        epoch: int,
        now_ms: int,
        *,
        needs_lease: bool = False,
    ) -> FenceAnswer:
        """Check a request under an epoch: OK while no other client and no later epoch has had the queue.

        Args:
            needs_lease: Whether the lease must not have ended (a pull); a commit is also taken later.
        """
        raise NotImplementedError

    def entry(self, consumer_group: str, topic: str, queue_id: int) -> FencedLock | None:
        """The lock of a queue, also one that has ended. Do not change it."""
        raise NotImplementedError

    def begin_epoch(
        self, consumer_group: str, topic: str, queue_id: int, client_id: str, epoch: int, now_ms: int
    ) -> LockGrant | FenceAnswer:
        """Give the live owner a new epoch of its queue, for a reset of its own (RESET_OWN_OFFSET)."""
        raise NotImplementedError

    def committed(self, consumer_group: str, topic: str, queue_id: int, now_ms: int) -> None:
        """An unmodified owner's commit was stored: a queue that it has unlocked is free now."""
        raise NotImplementedError

    def connection_ended(self, connection: Hashable, *, by_peer: bool, now_ms: int) -> None:
        """The lock delay begins for queues renewed over this connection; not when the broker decided on its end."""
        raise NotImplementedError

    def client_left(self, consumer_group: str, client_id: str, connection: Hashable, now_ms: int) -> None:
        """UNREGISTER_CLIENT over the connection of the last renewals: the client's queues are free at once."""
        raise NotImplementedError

    def due(self, now_ms: int) -> None:
        """End what has ended by now: lock delays, and leases of queues for which clients wait."""
        raise NotImplementedError

    def take_woken(self) -> list[Woken]:
        """What became free since the last call, and who waits for it. Call it once a loop turn."""
        raise NotImplementedError

    def waiters(self, consumer_group: str) -> dict[MessageQueue, int]:
        """For each queue of a group the number of connections that were refused and wait."""
        raise NotImplementedError

    def expire(self, now_ms: int, count_max: int) -> int:
        """Remove locks without a renewal for `KEPT_LIVES` leases, at most `count_max`. Returns how many."""
        raise NotImplementedError

    def list(self, now_ms: int, consumer_group: str | None = None) -> tuple[LockTableRow, ...]:
        """All locks, or those of one group, sorted by group and queue; also ended ones."""
        raise NotImplementedError
