"""Hold: the lock of a queue in one period of ownership, as far as this client may trust it. Synchronous.

There are three ways: no lock is needed; RocketMQ's lock, which is trusted for a time; a fenced lock, which has an epoch
and a lease (docs/fencing.md). The other parts of a consumer do not ask which one it is. Times are epoch milliseconds.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from lockstep.client.errors import LockLostError
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import Runtime

__all__ = ["FencedHold", "Hold", "NoHold"]

# No call begins in the last twentieth of a lease.
_MARGIN_PARTS: Final = 20


class Hold:
    """RocketMQ's lock.

    Args:
        asked_ms: when the lock was requested.
        trusted_ms: how long the lock is trusted from then on.

    Attributes:
        needed: False: the queue is consumed without a lock, which then counts as held.
        epoch: of a fenced lock; 0: none.
        lease_ms: the life of a fenced lock, from `last_lock_ms` on; 0: none.
        locked: granted, and not lost since.
        last_lock_ms: when the last lock that was granted was requested.
    """

    needed = True
    epoch = 0
    lease_ms = 0

    def __init__(self, asked_ms: int, trusted_ms: int) -> None:
        self.locked = True
        self.last_lock_ms = asked_ms
        self._trusted_ms = trusted_ms

    def is_trusted(self, now_ms: int) -> bool:
        """Whether this client may still trust its lock: it must stop before the broker gives the queue away.

        A fenced lock is trusted for its lease less a margin, and not while its connection is cut.
        """
        return self.locked and now_ms - self.last_lock_ms <= self._trusted_ms

    @property
    def trusted_until_ms(self) -> int:
        """How long this client trusts the lock that it holds, if it is not lost before."""
        return self.last_lock_ms + self._trusted_ms

    def is_younger(self, now_ms: int, age_ms: int) -> bool:
        """Whether it is locked, and was requested `age_ms` ago at most."""
        return self.locked and now_ms - self.last_lock_ms <= age_ms

    def granted(self, asked_ms: int, lease_ms: int = 0) -> None:
        """The broker granted the lock that was requested at `asked_ms`; `lease_ms`: its life if it is fenced."""
        self.locked = True
        # Trust counts from the request, not from the answer: the broker's clock began between the two.
        self.last_lock_ms = max(self.last_lock_ms, asked_ms)

    @property
    def lease_end_ms(self) -> int:
        """When the lease of a fenced lock ends, counted from the time of the request."""
        return self.last_lock_ms + self.lease_ms

    def wait(self, on_locked: Callable[[], object]) -> bool:
        """Call `on_locked` once, when the lock is trusted again. Returns False if the caller must ask for the lock."""
        return False

    # What requests, records and listeners say about it -------------------------------------------------------

    def trace_fields(self, period: int) -> dict[str, Any]:
        """The fields of each trace record of the period."""
        return {"period": period}

    def call_fields(self, now_ms: int, *, lost: bool) -> dict[str, Any]:
        """The fields of a trace record of a call that ends now."""
        return {}

    def sent_fields(self, runtime: Runtime) -> dict[str, int]:
        """The fields of a trace record of a request that leaves now."""
        return {}

    def outlived_ms(self, now_ms: int, *, lost: bool) -> int:
        """How long a call that ends now ran beyond its lease, at least 1 after its lock was lost; 0: it did not."""
        return 0

    def lease_remaining_ms(self, now_ms: int) -> int:
        """How long the lease of a fenced lock still lasts; 0: it has ended, or is none."""
        return 0

    def check(self, queue: MessageQueue, now_ms: int, *, ended: bool) -> None:
        """Raise LockLostError when the lease of a fenced lock has ended, or its period."""


class NoHold(Hold):
    """No lock is needed: consumption without order, and broadcasting."""

    needed = False

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms, 0)
        self.locked = False

    def is_trusted(self, now_ms: int) -> bool:
        return True

    @property
    def trusted_until_ms(self) -> int:
        return sys.maxsize


class FencedHold(Hold):
    """A fenced lock, from its grant on."""

    def __init__(self, asked_ms: int, epoch: int, lease_ms: int) -> None:
        super().__init__(asked_ms, 0)
        self.epoch = epoch
        self._epoch_text = epoch_text(epoch)
        self._on_locked: Callable[[], object] | None = None
        self.granted(asked_ms, lease_ms)

    def granted(self, asked_ms: int, lease_ms: int = 0) -> None:
        super().granted(asked_ms)
        self.lease_ms = lease_ms
        # The margin is for clocks that run at different speed, and for a call that was let in just before.
        self._trusted_ms = lease_ms - lease_ms // _MARGIN_PARTS
        if self._on_locked is not None:
            on_locked, self._on_locked = self._on_locked, None
            on_locked()

    def wait(self, on_locked: Callable[[], object]) -> bool:
        """The lock is asked for by its LeaseWatch."""
        self._on_locked = on_locked
        return True

    def trace_fields(self, period: int) -> dict[str, Any]:
        return {"period": period, "epoch": self._epoch_text}

    def call_fields(self, now_ms: int, *, lost: bool) -> dict[str, Any]:
        fields, outlived_ms = {"epoch": self._epoch_text}, self.outlived_ms(now_ms, lost=lost)
        return {**fields, "outlived_ms": outlived_ms} if outlived_ms else fields

    def sent_fields(self, runtime: Runtime) -> dict[str, int]:
        return {"begin_mono_ns": runtime.monotonic_ns()}

    def outlived_ms(self, now_ms: int, *, lost: bool) -> int:
        return max(now_ms - self.lease_end_ms, int(lost), 0)

    def lease_remaining_ms(self, now_ms: int) -> int:
        return max(self.lease_end_ms - now_ms, 0)

    def check(self, queue: MessageQueue, now_ms: int, *, ended: bool) -> None:
        if ended or not self.lease_remaining_ms(now_ms):
            raise LockLostError(f"the lock of {queue} under epoch {self._epoch_text} is lost")
