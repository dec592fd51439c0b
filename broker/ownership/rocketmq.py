"""RocketMQ's way of ownership: locks that expire, and no check of any request (wire.md 7.2)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.ownership.answers import LockAnswer, Locked, LockOutcome
from lockstep.broker.ownership.claim import Claim, Claiming
from lockstep.broker.ownership.denial import Act, Denial, Reason
from lockstep.broker.ownership.port import EXPIRED_AT_ONCE_MAX, Ownership
from lockstep.broker.ownership.rocketmq_locks import RebalanceLockManager
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue

__all__ = ["RocketMQOwnership"]

_RENEWED: Final = LockOutcome.RENEWED
_NO_EPOCHS: Final = Denial(
    Reason.NOT_HELD,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    "this broker has no fenced locks (--lock-mode fenced)",
)


class RocketMQOwnership(Ownership):
    """Only lock and unlock requests ask who owns a queue. Everybody may do everything else."""

    table: RebalanceLockManager

    def __init__(self, config: BrokerConfig, started_ms: int) -> None:
        super().__init__(config, started_ms)
        self.queues_max = (config.lock_queues_per_request_max, "lock_queues_per_request_max")
        self.table = RebalanceLockManager(
            config.lock_max_live_time_ms, config.lock_entries_max, config.lock_entries_per_group_max
        )
        self.table.on_owner_changed = self.journal.owner_changed

    # Locks ---------------------------------------------------------------------------------------------------

    def lock(self, asked: LockBatchBody, connection: Peer, now_ms: int, *, each: bool = False) -> Locked:
        # Nearly all requests only renew.
        if not each and self.table.renew_all(asked, now_ms):
            self.counts.outcomes[_RENEWED] += len(asked.mq_set)
            self._changed()
            return Locked(asked.mq_set)
        answers = self.table.try_lock_batch(asked.consumer_group, asked.client_id, asked.mq_set, now_ms)
        self._record(asked, answers, now_ms)
        self._changed(asked, answers)
        return Locked([answer.queue for answer in answers if answer.outcome.owned], answers)

    def unlock(self, asked: LockBatchBody, connection: Peer, now_ms: int) -> Sequence[LockAnswer]:
        # Only the owner's request frees a queue; any other is ignored (wire.md 7.2).
        refused = self.table.unlock_batch(asked.consumer_group, asked.client_id, asked.mq_set, now_ms)
        self._changed()
        return refused

    def expire(self, now_ms: int) -> None:
        self.table.expire(now_ms, EXPIRED_AT_ONCE_MAX)
        self._changed()

    # What it does not check, or does not know ------------------------------------------------------------------

    def use(self, config: BrokerConfig) -> None: ...

    def deny(self, connection: Peer, claim: Claiming, act: Act, now_ms: int) -> Denial | None:
        return None

    def deny_commit(
        self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int, alone: bool
    ) -> Denial | None:
        """Any value is stored, a lower one too (wire.md 8.2)."""
        return None

    def is_owned(self, consumer_group: str, topic: str, queue_id: int, now_ms: int) -> bool:
        """Pops do not ask for locks."""
        return False

    def committed(self, claim: Claiming, now_ms: int, alone: bool) -> None: ...

    def deny_reset(self, connection: Peer, claim: Claiming, now_ms: int) -> Denial | None:
        """RocketMQ has no such request."""
        return _NO_EPOCHS

    def deny_reset_to(self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int) -> Denial | None:
        return _NO_EPOCHS

    def begin_epoch(self, connection: Peer, claim: Claiming, now_ms: int) -> LockGrant | Denial:
        return _NO_EPOCHS

    def claim_to_hold(self, claim: Claiming) -> Claim | None:
        return None

    def deny_held(self, connection: Peer, claim: Claim, now_ms: int) -> Denial | None:
        return None

    def are_guarded(self, consumer_group: str, topic: str, queue_ids: Iterable[int], now_ms: int) -> bool:
        return False

    def reset(self, consumer_group: str, topic: str, offsets: Mapping[int, int], now_ms: int) -> bool:
        return False

    def bind(self, connection: Peer, client_id: str, consumer_groups: Iterable[str], now_ms: int) -> None: ...
    def client_left(self, consumer_group: str, client_id: str, connection: Peer, now_ms: int) -> None: ...
    def on_closed(self, connection: Peer) -> None: ...
    def connection_ended(self, connection: Peer, now_ms: int) -> None: ...
    def end_due(self, now_ms: int) -> None: ...

    def when_durable(
        self, consumer_group: str, begun: Sequence[tuple[MessageQueue, int]], now_ms: int, then: Callable[[str], None]
    ) -> None:
        then("")

    def denial_counts(self) -> Mapping[str, int] | None:
        return None

    def runtime_rows(self) -> Mapping[str, str]:
        return {}
