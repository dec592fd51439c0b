"""The lock of one queue as a state machine: states, events, and one table of transitions. Synchronous.

The broker may handle a request after the client stopped waiting for its answer; Apache's broker may even handle it
after a request that was sent later. Two rules follow:

- A lock request without an answer leaves a *doubt*. The queue may be locked until the late answer comes, or until the
  request cannot be handled any more.
- While an unlock is not answered, the client sends no lock request: the unlock could free the new lock.

docs/order.md shows these tables; a test compares them. A new rule of ownership is a new row, a new answer of the broker
a new event, and a new fact that a grant brings is a field of `QueueLock`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "NO_LOCK",
    "TRANSITIONS",
    "UNLOCK_FAILURES_MAX",
    "LockAction",
    "LockEvent",
    "LockState",
    "LockStep",
    "Outcome",
    "QueueLock",
    "Transition",
]

UNLOCK_FAILURES_MAX: Final = 4


class LockState(Enum):
    FREE = "not locked, and no request is under way"
    ASKING = "lock calls are under way"
    ASKING_UNWANTED = "lock calls are under way, and the consumer gave the queue up meanwhile"
    HELD = "granted, or perhaps granted; the queue is in the consumer's table"
    UNLOCK_DUE = "granted, or perhaps granted; unlocked when the timer fires, unless the queue is in the table then"
    UNLOCKING = "an unlock is under way"
    UNLOCKING_AGAIN = "an unlock is under way, and another unlock must follow"
    IN_DOUBT = "unlocked or refused, but an earlier lock request may still be handled"


class LockEvent(Enum):
    ASK = "a lock call begins"
    KEPT = "the last lock call ended without a refusal; the queue is in the table"
    LEFT = "the last lock call ended without a refusal; the queue is not in the table"
    REFUSED = "the last lock call ended with a refusal: another client has the lock"
    UNLOCK = "the consumer gives the queue up"
    UNLOCK_LATER = "the consumer gives the queue up, which had messages that were not handled"
    TIMER = "the timer fires; the queue is not in the table"
    TIMER_KEPT = "the timer fires; the queue is in the table"
    UNLOCKED = "the broker answered an unlock"
    UNLOCK_LAPSED = "an unlock was not answered, and cannot be handled any more"
    UNLOCK_FAILED = "an unlock was refused, or there is no connection for it"
    UNLOCK_GIVEN_UP = f"an unlock lapsed or failed for the {UNLOCK_FAILURES_MAX}th time in a row"
    LATE_GRANT = "a lock request without an answer was granted late, or lapsed and may have been granted"
    DOUBTS_ENDED = "the last lock request without an answer was refused late"
    DOUBTS_LEFT = "the queue would be free, but lock requests without an answer may still be handled"
    FENCED = "a broker with fenced locks refused a request under the epoch of this lock"


class LockAction(Enum):
    UNLOCK = "send an unlock"
    START_TIMER = "start the timer: `unlock_delay_ms`"
    START_SETTLE_TIMER = "start the timer: `lock_settle_ms`"
    STOP_TIMER = "stop the timer"
    LOG_GIVEN_UP = "log that no unlock will be sent again"


class Outcome(Enum):
    """The result of a lock call for one queue."""

    GRANTED = "granted"
    REFUSED = "refused"
    UNKNOWN = "not answered"


class Transition(NamedTuple):
    """The next state, and the actions to take now."""

    state: LockState
    actions: tuple[LockAction, ...] = ()


_S, _E, _A, _T = LockState, LockEvent, LockAction, Transition
_START, _SETTLE = (_A.START_TIMER,), (_A.START_SETTLE_TIMER,)
_SEND, _STOP, _LOG = (_A.UNLOCK,), (_A.STOP_TIMER,), (_A.LOG_GIVEN_UP,)

TRANSITIONS: Final[Mapping[tuple[LockState, LockEvent], Transition]] = {
    (_S.FREE, _E.ASK): _T(_S.ASKING),
    (_S.FREE, _E.UNLOCK): _T(_S.UNLOCKING, _SEND),
    (_S.FREE, _E.UNLOCK_LATER): _T(_S.FREE),
    (_S.FREE, _E.DOUBTS_LEFT): _T(_S.IN_DOUBT, _SETTLE),
    (_S.ASKING, _E.ASK): _T(_S.ASKING),
    (_S.ASKING, _E.KEPT): _T(_S.HELD),
    (_S.ASKING, _E.LEFT): _T(_S.UNLOCK_DUE, _START),
    (_S.ASKING, _E.REFUSED): _T(_S.FREE),
    (_S.ASKING, _E.UNLOCK): _T(_S.ASKING_UNWANTED),
    (_S.ASKING, _E.UNLOCK_LATER): _T(_S.ASKING),  # LEFT will start the timer
    (_S.ASKING, _E.LATE_GRANT): _T(_S.ASKING),
    (_S.ASKING, _E.FENCED): _T(_S.ASKING),  # the call decides
    (_S.ASKING_UNWANTED, _E.ASK): _T(_S.ASKING),
    (_S.ASKING_UNWANTED, _E.KEPT): _T(_S.UNLOCKING, _SEND),
    (_S.ASKING_UNWANTED, _E.LEFT): _T(_S.UNLOCKING, _SEND),
    (_S.ASKING_UNWANTED, _E.REFUSED): _T(_S.FREE),
    (_S.ASKING_UNWANTED, _E.UNLOCK): _T(_S.ASKING_UNWANTED),
    (_S.ASKING_UNWANTED, _E.UNLOCK_LATER): _T(_S.ASKING_UNWANTED),
    (_S.ASKING_UNWANTED, _E.LATE_GRANT): _T(_S.ASKING_UNWANTED),
    (_S.ASKING_UNWANTED, _E.FENCED): _T(_S.ASKING_UNWANTED),
    (_S.HELD, _E.ASK): _T(_S.ASKING),
    (_S.HELD, _E.UNLOCK): _T(_S.UNLOCKING, _SEND),
    (_S.HELD, _E.UNLOCK_LATER): _T(_S.UNLOCK_DUE, _START),
    (_S.HELD, _E.LATE_GRANT): _T(_S.HELD),
    (_S.HELD, _E.FENCED): _T(_S.FREE),
    (_S.UNLOCK_DUE, _E.ASK): _T(_S.ASKING, _STOP),
    (_S.UNLOCK_DUE, _E.UNLOCK): _T(_S.UNLOCKING, _STOP + _SEND),
    (_S.UNLOCK_DUE, _E.UNLOCK_LATER): _T(_S.UNLOCK_DUE, _START),
    (_S.UNLOCK_DUE, _E.TIMER): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCK_DUE, _E.TIMER_KEPT): _T(_S.HELD),
    (_S.UNLOCK_DUE, _E.LATE_GRANT): _T(_S.UNLOCK_DUE),
    (_S.UNLOCK_DUE, _E.FENCED): _T(_S.FREE, _STOP),
    (_S.UNLOCKING, _E.UNLOCK): _T(_S.UNLOCKING),
    (_S.UNLOCKING, _E.UNLOCK_LATER): _T(_S.UNLOCKING),
    (_S.UNLOCKING, _E.UNLOCKED): _T(_S.FREE),
    (_S.UNLOCKING, _E.UNLOCK_LAPSED): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCKING, _E.UNLOCK_FAILED): _T(_S.UNLOCK_DUE, _SETTLE),
    (_S.UNLOCKING, _E.UNLOCK_GIVEN_UP): _T(_S.FREE, _LOG),
    (_S.UNLOCKING, _E.LATE_GRANT): _T(_S.UNLOCKING_AGAIN),
    (_S.UNLOCKING, _E.FENCED): _T(_S.UNLOCKING),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK): _T(_S.UNLOCKING_AGAIN),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_LATER): _T(_S.UNLOCKING_AGAIN),
    (_S.UNLOCKING_AGAIN, _E.UNLOCKED): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_LAPSED): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_FAILED): _T(_S.UNLOCK_DUE, _SETTLE),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_GIVEN_UP): _T(_S.FREE, _LOG),
    (_S.UNLOCKING_AGAIN, _E.LATE_GRANT): _T(_S.UNLOCKING_AGAIN),
    (_S.UNLOCKING_AGAIN, _E.FENCED): _T(_S.UNLOCKING_AGAIN),
    (_S.IN_DOUBT, _E.ASK): _T(_S.ASKING, _STOP),
    (_S.IN_DOUBT, _E.UNLOCK): _T(_S.UNLOCKING, _STOP + _SEND),
    (_S.IN_DOUBT, _E.UNLOCK_LATER): _T(_S.IN_DOUBT),
    (_S.IN_DOUBT, _E.TIMER): _T(_S.UNLOCKING, _SEND),
    (_S.IN_DOUBT, _E.TIMER_KEPT): _T(_S.HELD),
    (_S.IN_DOUBT, _E.LATE_GRANT): _T(_S.UNLOCKING, _STOP + _SEND),
    (_S.IN_DOUBT, _E.DOUBTS_ENDED): _T(_S.FREE, _STOP),
}


class QueueLock(NamedTuple):
    """The lock of one queue. Immutable: each event returns the next lock and the actions to take.

    Args:
        calls: number of lock calls under way.
        perhaps_held: one of these calls was not refused.
        doubts: number of lock requests that got no answer in time and may still be handled.
        unlock_failures: number of unlocks in a row that failed.
        epoch: of the last grant of a broker with fenced locks, and what the next request presents; 0: none.
    """

    state: LockState = LockState.FREE
    calls: int = 0
    perhaps_held: bool = False
    doubts: int = 0
    unlock_failures: int = 0
    epoch: int = 0

    @property
    def may_ask(self) -> bool:
        """False while an unlock may still be handled: it could free a lock that is granted now."""
        return self.state not in (LockState.UNLOCKING, LockState.UNLOCKING_AGAIN)

    @property
    def is_wanted(self) -> bool:
        """Whether a grant that comes now may be trusted."""
        return self.state is LockState.ASKING

    def ask(self) -> "LockStep":
        """A lock call begins. `may_ask` must be True."""
        perhaps_held = self.perhaps_held and self.calls > 0
        # Written out: `_replace` costs three times as much, and each renewal of a queue begins and ends a call.
        return _on(QueueLock(self.state, self.calls + 1, perhaps_held, self.doubts, 0, self.epoch), LockEvent.ASK)

    def granted(self, epoch: int) -> "LockStep":
        """A broker with fenced locks granted or renewed the lock."""
        return LockStep(self._replace(epoch=epoch))

    def fenced(self, epoch: int) -> "LockStep":
        """Such a broker refused a request under `epoch`. A later epoch of this client is not touched."""
        return _on(self._replace(epoch=0), LockEvent.FENCED) if epoch and epoch == self.epoch else LockStep(self)

    def end(self, outcome: Outcome, *, in_table: bool) -> "LockStep":
        """A lock call ended. The last one decides the next state."""
        perhaps_held = self.perhaps_held or outcome is not Outcome.REFUSED
        ended = QueueLock(self.state, self.calls - 1, perhaps_held, self.doubts, self.unlock_failures, self.epoch)
        if ended.calls:
            return LockStep(ended)
        if not perhaps_held:
            return _on(ended, LockEvent.REFUSED)
        return _on(ended, LockEvent.KEPT if in_table else LockEvent.LEFT)

    def doubt(self) -> "LockStep":
        """A lock request got no answer in time."""
        return LockStep(self._replace(doubts=self.doubts + 1))

    def end_doubt(self, *, perhaps_granted: bool, epoch: int = 0) -> "LockStep":
        """A lock request without an answer was answered late, or cannot be handled any more."""
        less = self._replace(doubts=self.doubts - 1, epoch=max(epoch, self.epoch))
        if perhaps_granted:
            return _on(less._replace(perhaps_held=True), LockEvent.LATE_GRANT)
        if less.state is LockState.IN_DOUBT and not less.doubts:
            return _on(less, LockEvent.DOUBTS_ENDED)
        return LockStep(less)

    def unlock(self) -> "LockStep":
        return _on(self, LockEvent.UNLOCK)

    def unlock_later(self) -> "LockStep":
        return _on(self, LockEvent.UNLOCK_LATER)

    def timer(self, *, in_table: bool) -> "LockStep":
        return _on(self, LockEvent.TIMER_KEPT if in_table else LockEvent.TIMER)

    def unlocked(self) -> "LockStep":
        return _on(self._replace(unlock_failures=0), LockEvent.UNLOCKED)

    def unlock_failed(self, *, lapsed: bool) -> "LockStep":
        """`lapsed`: the request was sent, and cannot be handled any more."""
        failures = self.unlock_failures + 1
        if failures >= UNLOCK_FAILURES_MAX:
            return _on(self._replace(unlock_failures=0), LockEvent.UNLOCK_GIVEN_UP)
        event = LockEvent.UNLOCK_LAPSED if lapsed else LockEvent.UNLOCK_FAILED
        return _on(self._replace(unlock_failures=failures), event)


class LockStep(NamedTuple):
    """The lock after an event, and the actions to take now."""

    lock: QueueLock
    actions: tuple[LockAction, ...] = ()


def _on(lock: QueueLock, event: LockEvent) -> LockStep:
    state, actions = TRANSITIONS[lock.state, event]
    if state is LockState.FREE and lock.doubts:
        state, more = TRANSITIONS[state, LockEvent.DOUBTS_LEFT]
        actions += more
    epoch = 0 if state in (LockState.FREE, LockState.IN_DOUBT) else lock.epoch
    then = QueueLock(state, lock.calls, lock.perhaps_held, lock.doubts, lock.unlock_failures, epoch)
    return LockStep(then, actions)


NO_LOCK: Final = QueueLock()
