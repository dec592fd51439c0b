"""FenceChecks: whether a client may pull, commit, send back or dead-letter now (docs/fencing.md)."""

from collections.abc import Iterable, Mapping
from typing import Final

from lockstep.broker.ownership.answers import FenceAnswer
from lockstep.broker.ownership.claim import Claiming
from lockstep.broker.ownership.denial import Act, Denial, Denials, Reason
from lockstep.broker.ownership.fenced.locks import FencedLock, FencedLocks
from lockstep.broker.ownership.fenced.states import LockState
from lockstep.broker.ownership.port import Around
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.locks import LockGrant
from lockstep.protocol.codes import ResponseCode
from lockstep.remoting.limit_log import EventThrottle

__all__ = ["BoundClients", "FenceChecks", "ResetMarks"]

_HELD: Final = LockState.HELD
_OK: Final = FenceAnswer.OK
_REFUSE: Final = "refuse"
_OFF: Final = "off"
_ANSWERS: Final = {
    FenceAnswer.FENCED: (Reason.FENCED, ResponseCode.FENCED, "another client has the queue, or had it since"),
    FenceAnswer.NOT_HELD: (Reason.NOT_HELD, ResponseCode.NOT_HELD, "no client has the queue; lock it again"),
    FenceAnswer.STALE: (Reason.STALE, ResponseCode.STALE, "this client has a newer epoch of the queue"),
}
_NEED_LEASE: Final = (Act.PULL, Act.RESET)
# Unmodified clients take 10 s to store the new offset (wire.md 12.9).
_MARK_LIFE_MS: Final = 30_000
# Of one connection. Above it the pair that was named longest ago is forgotten.
_PAIRS_MAX: Final = 4096
# Of all connections: from then on a new pair is kept in place of an older one, but for `_FEW` of each connection.
_ALL_MAX: Final = 100_000
_FEW: Final = 16
_HOW_TO_RESET: Final = "to set its offset, use `lockstep offset reset` or mqadmin's resetOffsetByTime"

_QueueKey = tuple[str, str, int]  # consumer group, topic, queue id


class FenceChecks:
    """The checks. Each returns None where the request may be done, else the Denial, which is counted and logged.

    A request with an epoch is compared with the lock table. A request without one, of an unmodified client, is allowed
    on a queue whose lock names a client of its connection, and on a queue that no lock names.

    `legacy`: what to do with requests of unmodified clients that are not allowed: "refuse" them, "warn" and serve them,
    or "off", serve them without a check.
    """

    def __init__(self, locks: FencedLocks, around: Around, legacy: str, denials: Denials) -> None:
        self._locks = locks
        self._find = locks.find
        self._end_of = around.end_of
        self._is_broadcasting = around.is_broadcasting
        self._log = around.log
        self._denials = denials
        self.legacy = legacy
        self._throttle = EventThrottle()
        self.clients = BoundClients()
        self.resets = ResetMarks()

    # Checks --------------------------------------------------------------------------------------------------

    def deny(self, connection: Peer, claim: Claiming, act: Act, now_ms: int) -> Denial | None:
        """May the sender do this? Only pulls and resets need a lease that has not ended."""
        lock = self._find((claim.consumer_group, claim.topic, claim.queue_id))
        if (
            lock is not None
            and lock.epoch == claim.lock_epoch
            and lock.client_id == claim.lock_client_id
            and lock.state is _HELD
            and now_ms < lock.ends_ms
        ):
            # Nearly all requests end here, without another call.
            return None
        denial = self._of_owner(connection, claim, now_ms, needs_lease=act in _NEED_LEASE)
        return None if denial is None else self._counted(connection, claim, act, denial, now_ms)

    def deny_commit(
        self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int, alone: bool
    ) -> Denial | None:
        """May the sender store this offset?

        While the queue has an owner, or its last one, commits do not go back, and not beyond the end of the queue: its
        log may have lost messages that the client handled, and new ones will have their offsets.

        Args:
            stored: The offset that is stored; -1 for none.
            alone: It does not come with a pull, which `deny` has allowed.
        """
        lock = self._find((claim.consumer_group, claim.topic, claim.queue_id)) if alone else None
        if lock is not None and lock.epoch == claim.lock_epoch and lock.client_id == claim.lock_client_id:
            # Nearly all commits carry the owner's epoch. That is all that `_of_owner` would ask.
            alone = False
        denial = self._of_owner(connection, claim, now_ms) if alone else None
        if denial is None:
            is_in_order = offset == stored or stored < offset <= self._end_of(claim.topic, claim.queue_id)
            if is_in_order and not self.resets:
                return None
            denial = self._of_offset(claim, offset, stored, now_ms)
        return None if denial is None else self._counted(connection, claim, Act.COMMIT, denial, now_ms)

    def deny_reset_to(self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int) -> Denial | None:
        """May the owner, whom `deny` has allowed, move its offset there? Back, and up to the end of the queue."""
        end = self._end_of(claim.topic, claim.queue_id)
        if offset <= end or offset == stored:
            return None
        return self._counted(connection, claim, Act.RESET, _beyond_end(claim, offset, end), now_ms)

    def deny_held(self, connection: Peer, claim: Claiming, now_ms: int) -> Denial | None:
        """As `deny`, for a pull that is held. Held pulls end with each change of owner, so that is not counted."""
        denial = self._of_owner(connection, claim, now_ms, needs_lease=True)
        return denial if denial is not None and self._refuses(claim) else None

    def _of_owner(self, connection: Peer, claim: Claiming, now_ms: int, *, needs_lease: bool = False) -> Denial | None:
        group, topic, queue_id, epoch = claim.consumer_group, claim.topic, claim.queue_id, claim.lock_epoch
        if epoch is not None:
            answer = self._locks.check(
                group, topic, queue_id, claim.lock_client_id or "", epoch, now_ms, needs_lease=needs_lease
            )
            return None if answer is _OK else self._refusal(claim, answer, now_ms)
        if self.legacy == _OFF:
            return None
        lock = self._locks.entry(group, topic, queue_id)
        is_its_client = lock is not None and self.clients.has(connection, group, lock.client_id)
        # Orderly members of a broadcasting group lock queues too, and each of them pulls all queues.
        if lock is None or (is_its_client and not lock.fenced) or self._is_broadcasting(group):
            return None
        why = "but the request has no epoch" if is_its_client else "and this connection is not that client's"
        remark = f"{_about(claim, lock, now_ms)}, {why}; {_HOW_TO_RESET}"
        return Denial(Reason.OTHER_OWNER, ResponseCode.SYSTEM_ERROR, remark)

    def _refusal(self, claim: Claiming, answer: FenceAnswer, now_ms: int) -> Denial:
        reason, code, remark = _ANSWERS[answer]
        return Denial(reason, code, f"{remark}: {_about(claim, self._lock(claim), now_ms)}")

    def _lock(self, claim: Claiming) -> FencedLock | None:
        return self._locks.entry(claim.consumer_group, claim.topic, claim.queue_id)

    def _of_offset(self, claim: Claiming, offset: int, stored: int, now_ms: int) -> Denial | None:
        """A stored offset beyond the end of its queue may be corrected: the broker's log lost its newest messages."""
        is_marked = self.resets.forbids(_key(claim), offset, now_ms)
        end = self._end_of(claim.topic, claim.queue_id)
        is_in_order = offset == stored or stored < offset <= end
        if (is_in_order and not is_marked) or (claim.lock_epoch is None and self.legacy == _OFF):
            return None
        if self._lock(claim) is None and not self._locks.was_freed(_key(claim), now_ms):
            return None  # the group locks no queues
        if is_marked:
            remark = f"the offset of {_name(claim)} was reset; until its owner commits the new one, no other is stored"
            return Denial(Reason.RESET, ResponseCode.SYSTEM_ERROR, remark)
        if offset > stored:
            return _beyond_end(claim, offset, end)
        if stored > end:
            return None
        remark = f"{_name(claim)} is committed up to {stored}, and {offset} is lower; {_HOW_TO_RESET}"
        return Denial(Reason.BACKWARDS, ResponseCode.SYSTEM_ERROR, remark)

    def _counted(self, connection: Peer, claim: Claiming, act: Act, denial: Denial, now_ms: int) -> Denial | None:
        """Count and log a denial. Returns it, unless the request is served with a warning."""
        refused = self._refuses(claim)
        counts = self._denials.refused if refused else self._denials.served
        counts[act, denial.reason] += 1
        times = self._throttle.times((act, denial.reason, refused), now_ms)
        if times:
            write = self._log.info if claim.lock_epoch is not None else self._log.warning
            event = "fence_refused" if refused else "fence_served_with_warning"
            write(
                event,
                act=act.value,
                reason=denial.reason.value,
                group=claim.consumer_group,
                queue_id=claim.queue_id,
                topic=claim.topic,
                peer=connection.address,
                why=denial.remark,
                times=times,
            )
        return denial if refused else None

    def _refuses(self, claim: Claiming) -> bool:
        return claim.lock_epoch is not None or self.legacy == _REFUSE

    # Changes -------------------------------------------------------------------------------------------------

    def committed(self, claim: Claiming, now_ms: int, alone: bool) -> None:
        """An allowed commit was stored. It ends a reset.

        Args:
            alone: It did not come with a pull. After the unlock of an unmodified owner it is its last one, so that
                the queue is free now.
        """
        if self.resets:
            self.resets.end(_key(claim))
        if alone and claim.lock_epoch is None:
            self._locks.committed(*_key(claim), now_ms)

    def begin_epoch(self, connection: Peer, claim: Claiming, now_ms: int) -> LockGrant | Denial:
        """Begin a new period of the owner that presents its epoch."""
        grant = self._locks.begin_epoch(
            claim.consumer_group,
            (claim.topic, claim.queue_id),
            claim.lock_client_id or "",
            claim.lock_epoch or 0,
            connection,
            now_ms,
        )
        return grant if isinstance(grant, LockGrant) else self._refusal(claim, grant, now_ms)

    def are_locked(self, consumer_group: str, topic: str, queue_ids: Iterable[int], now_ms: int) -> bool:
        """Whether one of the queues has an owner, or had one not long ago."""
        was_freed, keys = self._locks.was_freed, [(consumer_group, topic, queue_id) for queue_id in queue_ids]
        return any(self._find(key) is not None or was_freed(key, now_ms) for key in keys)

    def reset(self, consumer_group: str, topic: str, offsets: Mapping[int, int], now_ms: int) -> None:
        """An administrator has set the offsets of these queues. Their owners store no others until they know of it."""
        for queue_id, offset in offsets.items():
            self.resets.mark((consumer_group, topic, queue_id), offset, now_ms)


def _key(claim: Claiming) -> tuple[str, str, int]:
    return claim.consumer_group, claim.topic, claim.queue_id


def _name(claim: Claiming) -> str:
    return f"queue {claim.topic}:{claim.queue_id} of group {claim.consumer_group!r}"


def _beyond_end(claim: Claiming, offset: int, end: int) -> Denial:
    remark = f"{_name(claim)} ends at {end}, and {offset} is beyond it; its last messages were lost"
    return Denial(Reason.BEYOND_END, ResponseCode.SYSTEM_ERROR, remark)


def _about(claim: Claiming, lock: FencedLock | None, now_ms: int) -> str:
    if lock is None:
        return f"{_name(claim)} has no owner"
    state = "belongs to" if lock.is_live(now_ms) else "belonged last to"
    return f"{_name(claim)} {state} client {lock.client_id!r}"


class ResetMarks(dict[_QueueKey, tuple[int, int]]):
    """Queues whose offset an administrator has set, while their owner may not know of it yet.

    Queue -> the offset of the reset, and the epoch ms at which the mark ends.

    A mark ends when the owner commits exactly this offset, when a new period of ownership begins, or after 30 s.
    """

    def mark(self, queue: _QueueKey, offset: int, now_ms: int) -> None:
        self[queue] = (offset, now_ms + _MARK_LIFE_MS)

    def forbids(self, queue: _QueueKey, offset: int, now_ms: int) -> bool:
        """Whether a commit of `offset` must wait, because it is not the commit that ends the mark."""
        wanted, ends_ms = self.get(queue, (offset, now_ms))
        return offset != wanted and now_ms < ends_ms

    def end(self, queue: _QueueKey) -> None:
        self.pop(queue, None)

    def expire(self, now_ms: int) -> None:
        """Remove the marks whose time is over."""
        for queue in [queue for queue, (_, ends_ms) in self.items() if now_ms >= ends_ms]:
            del self[queue]


class BoundClients:
    """Which clients speak over a connection: a request of an unmodified client does not name its sender.

    Peer -> the pairs of consumer group and client id in its heartbeats, lock and unlock requests.

    A connection has several pairs when its client has several groups, or when a proxy carries several clients.
    """

    def __init__(self) -> None:
        self._pairs: dict[Peer, dict[tuple[str, str], None]] = {}
        self._count = 0  # of all pairs

    def bind(self, connection: Peer, consumer_group: str, client_id: str) -> bool:
        """Add a pair. Returns whether it is new to the connection."""
        pairs = self._pairs.setdefault(connection, {})
        pair = (consumer_group, client_id)
        is_new = pair not in pairs
        if not is_new:
            del pairs[pair]  # to the end of the line
        elif len(pairs) >= (_PAIRS_MAX if self._count < _ALL_MAX else _FEW):
            del pairs[next(iter(pairs))]
        else:
            self._count += 1
        pairs[pair] = None
        return is_new

    def has(self, connection: Peer, consumer_group: str, client_id: str) -> bool:
        return (consumer_group, client_id) in self._pairs.get(connection, ())

    def on_closed(self, connection: Peer) -> None:
        self._count -= len(self._pairs.pop(connection, ()))
