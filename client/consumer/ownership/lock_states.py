"""The life of one queue's lock as this client knows it: states, events, and one table of transitions. Synchronous.

A request that got no answer in time may still be handled, by Apache's broker also behind one that was sent later. So a
lock request without an answer leaves a *doubt*: the queue is perhaps locked until its late answer comes, or until it
cannot be handled any more. And while an unlock is not answered, no new lock is asked for: the unlock might free it.

Another rule of ownership is another row: an epoch that a grant brings belongs into `QueueLock`, a new answer of the
broker is a new event.
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
    FREE = "nothing is locked, nothing under way"
    ASKING = "lock calls are under way"
    ASKING_UNWANTED = "lock calls are under way, and the queue was given up meanwhile"
    HELD = "granted or perhaps granted, and in the consumer's table"
    UNLOCK_DUE = "granted or perhaps granted, and unlocked when the timer fires, unless it is in the table then"
    UNLOCKING = "an unlock is under way"
    UNLOCKING_AGAIN = "an unlock is under way, and another one must follow"
    IN_DOUBT = "unlocked or refused, but an earlier lock request may still be handled"


class LockEvent(Enum):
    ASK = "a lock call begins"
    KEPT = "the last lock call ended and none was refused for certain; the queue is in the table"
    LEFT = "the last lock call ended and none was refused for certain; the queue is not in the table"
    REFUSED = "the last lock call ended: another client has the lock"
    UNLOCK = "the consumer gives the queue up"
    UNLOCK_LATER = "the consumer gives the queue up; messages of it were in hand"
    TIMER = "the timer fires; the queue is not in the table"
    TIMER_KEPT = "the timer fires; the queue is in the table"
    UNLOCKED = "the broker answered an unlock"
    UNLOCK_LAPSED = "an unlock was not answered, and cannot be handled any more"
    UNLOCK_FAILED = "an unlock was refused, or there is no connection to send it over"
    UNLOCK_HOPELESS = f"an unlock lapsed or failed for the {UNLOCK_FAILURES_MAX}th time in a row"
    LATE_GRANT = "a lock request without an answer was granted late, or lapsed and was perhaps granted"
    DOUBTS_ENDED = "the last lock request without an answer was refused late"
    DOUBTS_LEFT = "the queue would be free, but lock requests without an answer may still be handled"


class LockAction(Enum):
    UNLOCK = "send an unlock"
    START_TIMER = "start the timer: `unlock_delay_ms`"
    START_SETTLE_TIMER = "start the timer: `lock_settle_ms`"
    STOP_TIMER = "stop the timer"
    TELL_GIVEN_UP = "log that no more unlocks are sent"


class Outcome(Enum):
    """What a lock call knows of one queue when it ends."""

    GRANTED = "granted"
    REFUSED = "refused"
    UNKNOWN = "not answered"


class Transition(NamedTuple):
    """The next state, and what to do now."""

    state: LockState
    actions: tuple[LockAction, ...] = ()


_S, _E, _A, _T = LockState, LockEvent, LockAction, Transition
_START, _SETTLE = (_A.START_TIMER,), (_A.START_SETTLE_TIMER,)
_SEND, _STOP, _TELL = (_A.UNLOCK,), (_A.STOP_TIMER,), (_A.TELL_GIVEN_UP,)

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
    (_S.ASKING_UNWANTED, _E.ASK): _T(_S.ASKING),
    (_S.ASKING_UNWANTED, _E.KEPT): _T(_S.UNLOCKING, _SEND),
    (_S.ASKING_UNWANTED, _E.LEFT): _T(_S.UNLOCKING, _SEND),
    (_S.ASKING_UNWANTED, _E.REFUSED): _T(_S.FREE),
    (_S.ASKING_UNWANTED, _E.UNLOCK): _T(_S.ASKING_UNWANTED),
    (_S.ASKING_UNWANTED, _E.UNLOCK_LATER): _T(_S.ASKING_UNWANTED),
    (_S.ASKING_UNWANTED, _E.LATE_GRANT): _T(_S.ASKING_UNWANTED),
    (_S.HELD, _E.ASK): _T(_S.ASKING),
    (_S.HELD, _E.UNLOCK): _T(_S.UNLOCKING, _SEND),
    (_S.HELD, _E.UNLOCK_LATER): _T(_S.UNLOCK_DUE, _START),
    (_S.HELD, _E.LATE_GRANT): _T(_S.HELD),
    (_S.UNLOCK_DUE, _E.ASK): _T(_S.ASKING, _STOP),
    (_S.UNLOCK_DUE, _E.UNLOCK): _T(_S.UNLOCKING, _STOP + _SEND),
    (_S.UNLOCK_DUE, _E.UNLOCK_LATER): _T(_S.UNLOCK_DUE, _START),
    (_S.UNLOCK_DUE, _E.TIMER): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCK_DUE, _E.TIMER_KEPT): _T(_S.HELD),
    (_S.UNLOCK_DUE, _E.LATE_GRANT): _T(_S.UNLOCK_DUE),
    (_S.UNLOCKING, _E.UNLOCK): _T(_S.UNLOCKING),
    (_S.UNLOCKING, _E.UNLOCK_LATER): _T(_S.UNLOCKING),
    (_S.UNLOCKING, _E.UNLOCKED): _T(_S.FREE),
    (_S.UNLOCKING, _E.UNLOCK_LAPSED): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCKING, _E.UNLOCK_FAILED): _T(_S.UNLOCK_DUE, _SETTLE),
    (_S.UNLOCKING, _E.UNLOCK_HOPELESS): _T(_S.FREE, _TELL),
    (_S.UNLOCKING, _E.LATE_GRANT): _T(_S.UNLOCKING_AGAIN),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK): _T(_S.UNLOCKING_AGAIN),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_LATER): _T(_S.UNLOCKING_AGAIN),
    (_S.UNLOCKING_AGAIN, _E.UNLOCKED): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_LAPSED): _T(_S.UNLOCKING, _SEND),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_FAILED): _T(_S.UNLOCK_DUE, _SETTLE),
    (_S.UNLOCKING_AGAIN, _E.UNLOCK_HOPELESS): _T(_S.FREE, _TELL),
    (_S.UNLOCKING_AGAIN, _E.LATE_GRANT): _T(_S.UNLOCKING_AGAIN),
    (_S.IN_DOUBT, _E.ASK): _T(_S.ASKING, _STOP),
    (_S.IN_DOUBT, _E.UNLOCK): _T(_S.UNLOCKING, _STOP + _SEND),
    (_S.IN_DOUBT, _E.UNLOCK_LATER): _T(_S.IN_DOUBT),
    (_S.IN_DOUBT, _E.TIMER): _T(_S.UNLOCKING, _SEND),
    (_S.IN_DOUBT, _E.TIMER_KEPT): _T(_S.HELD),
    (_S.IN_DOUBT, _E.LATE_GRANT): _T(_S.UNLOCKING, _STOP + _SEND),
    (_S.IN_DOUBT, _E.DOUBTS_ENDED): _T(_S.FREE, _STOP),
}


class QueueLock(NamedTuple):
    """One queue's lock. Immutable: each event gives the next one, and what to do.

    `calls` counts lock calls under way, `perhaps_held` says that one of them was not refused; `doubts` counts lock
    requests that got no answer in time and may still be handled; `unlock_failures` those in a row.
    """

    state: LockState = LockState.FREE
    calls: int = 0
    perhaps_held: bool = False
    doubts: int = 0
    unlock_failures: int = 0

    @property
    def may_ask(self) -> bool:
        """Not while an unlock may still be handled: it would free what is granted now."""
        return self.state not in (LockState.UNLOCKING, LockState.UNLOCKING_AGAIN)

    @property
    def is_wanted(self) -> bool:
        """A grant that comes in this state may be believed in."""
        return self.state is LockState.ASKING

    def ask(self) -> "LockStep":
        """A lock call begins. Only when `may_ask`."""
        perhaps_held = self.perhaps_held and self.calls > 0
        began = self._replace(calls=self.calls + 1, perhaps_held=perhaps_held, unlock_failures=0)
        return _on(began, LockEvent.ASK)

    def end(self, outcome: Outcome, *, in_table: bool) -> "LockStep":
        """A lock call ended. What the queue's lock is now the last one decides."""
        perhaps_held = self.perhaps_held or outcome is not Outcome.REFUSED
        ended = self._replace(calls=self.calls - 1, perhaps_held=perhaps_held)
        if ended.calls:
            return LockStep(ended)
        if not perhaps_held:
            return _on(ended, LockEvent.REFUSED)
        return _on(ended, LockEvent.KEPT if in_table else LockEvent.LEFT)

    def doubt(self) -> "LockStep":
        """A lock request of a call under way got no answer in time."""
        return LockStep(self._replace(doubts=self.doubts + 1))

    def end_doubt(self, *, perhaps_granted: bool) -> "LockStep":
        """Such a request was answered late, or cannot be handled any more."""
        less = self._replace(doubts=self.doubts - 1)
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
        """`lapsed`: it left, and cannot be handled any more."""
        failures = self.unlock_failures + 1
        if failures >= UNLOCK_FAILURES_MAX:
            return _on(self._replace(unlock_failures=0), LockEvent.UNLOCK_HOPELESS)
        event = LockEvent.UNLOCK_LAPSED if lapsed else LockEvent.UNLOCK_FAILED
        return _on(self._replace(unlock_failures=failures), event)


class LockStep(NamedTuple):
    """What a queue's lock is after an event, and what to do now."""

    lock: QueueLock
    actions: tuple[LockAction, ...] = ()


def _on(lock: QueueLock, event: LockEvent) -> LockStep:
    state, actions = TRANSITIONS[lock.state, event]
    if state is LockState.FREE and lock.doubts:
        state, more = TRANSITIONS[state, LockEvent.DOUBTS_LEFT]
        actions += more
    return LockStep(lock._replace(state=state), actions)


NO_LOCK: Final = QueueLock()
