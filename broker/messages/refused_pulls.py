"""Pulls of clients that do not own their queue: held ones end when its owner changes, and refused ones wait."""

from collections.abc import Iterable
from typing import Final

from lockstep.broker.messages.held_pulls import HeldPull, PullHold, QueueKey
from lockstep.broker.messages.pull_answers import NoRoom, Nothing, Why
from lockstep.broker.ownership.denial import Denial
from lockstep.broker.ownership.port import Ownership
from lockstep.broker.peer import Peer
from lockstep.store import GetResult, GetStatus, MessageStore

__all__ = ["RefusedPulls"]

_NO_ARRIVALS: Final = -1  # below every offset


class RefusedPulls:
    """`served` are the held pulls that arrivals answer; `refused` those of unmodified clients that only wait.

    An unmodified client takes an error for a passing fault and pulls again after a second, and it takes "no new
    message" for an answer. So a refused pull is held for its suspend time and ends with that answer and its own
    offset (wire.md 3, 6.3, 12.6).
    """

    def __init__(self, ownership: Ownership, served: PullHold, refused: PullHold, store: MessageStore) -> None:
        self._ownership = ownership
        self._served = served
        self._refused = refused
        self._store = store
        ownership.on_pullers_changed = self.owner_changed
        ownership.on_bound = self.bound

    def refuse(self, pull: HeldPull) -> NoRoom | None:
        """Hold a refused pull. Returns its answer when that cannot be."""
        return None if self._refused.park(pull) else self._refused.room.no_room

    def answer(self, topic: str, queue_id: int, queue_offset: int) -> Nothing:
        """The answer to a refused pull: nothing new, and the offset that it has."""
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return Nothing(Why.NOT_OWNER, GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high))

    def has_ended(self, pull: HeldPull, now_ms: int) -> bool:
        """Whether the sender of a held pull may not pull any more. Then it is answered, or waits as a refused one."""
        denial = self._denial(pull, now_ms)
        if denial is None:
            return False
        knows_epochs = pull.claim is not None and pull.claim.lock_epoch is not None
        answer = denial if knows_epochs else self.refuse(pull)
        if answer is not None:
            pull.then(answer)
        return True

    def owner_changed(self, consumer_group: str, key: QueueKey, now_ms: int) -> None:
        """Called when the lock table changed: end the pulls of the owner before, and those that need not wait now."""
        if self._served.has(key):
            for pull in self._served.take(key, lambda pull: pull.consumer_group == consumer_group):
                if not self.has_ended(pull, now_ms):
                    self._served.park(pull)
        if self._refused.has(key):
            self._end(self._refused.take(key, lambda pull: self._denial(pull, now_ms) is None))

    def bound(self, peer: Peer, now_ms: int) -> None:
        """Called when a connection has become that of another client too."""
        for key in self._refused.keys_of(peer):
            self._end(self._refused.take(key, lambda pull: self._denial(pull, now_ms) is None))

    def sweep(self, now_ms: int) -> None:
        """Answer the refused pulls whose wait time is over."""
        self._end(self._refused.sweep(now_ms, lambda *_: _NO_ARRIVALS))

    def on_closed(self, peer: Peer) -> None:
        self._refused.on_closed(peer)

    def _denial(self, pull: HeldPull, now_ms: int) -> Denial | None:
        return pull.claim and self._ownership.deny_held(pull.peer, pull.claim, now_ms)

    def _end(self, pulls: Iterable[HeldPull]) -> None:
        for pull in pulls:
            pull.then(self.answer(pull.topic, pull.queue_id, pull.queue_offset))
