"""The life of a queue's lock in every interleaving of two brokers (wire.md 7.2, 7.3)."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.client.consumer.ownership import lock_states
from lockstep.client.consumer.ownership.lock_states import (
    NO_LOCK,
    TRANSITIONS,
    UNLOCK_FAILURES_MAX,
    LockAction,
    LockEvent,
    LockState,
    Outcome,
    QueueLock,
)
from tests.client.ownership.lock_model import Budget, World, check, is_settled, moves

STEPS_MAX = 5000
SMALL = (
    Budget(calls=1, unlocks=1, timeouts=1, losses=0, failures=1, rivals=1),
    Budget(calls=2, unlocks=1, timeouts=1, losses=0, rivals=0),
    Budget(calls=2, unlocks=1, timeouts=0, losses=1, rivals=0),
    Budget(calls=2, unlocks=2, timeouts=1, losses=0, rivals=0),
    Budget(calls=1, unlocks=2, timeouts=0, losses=2, rivals=0),
    Budget(calls=2, unlocks=1, timeouts=0, losses=0, rivals=0, fences=2),
    Budget(calls=1, unlocks=1, timeouts=1, losses=0, rivals=0, fences=1),
)
LARGE = (
    Budget(calls=2, unlocks=1, timeouts=1, losses=0, rivals=1),
    Budget(calls=2, unlocks=1, timeouts=1, losses=1, rivals=0),
)


def explore(budget: Budget) -> int:
    """Every world that can come of this budget, each checked; the number of them.

    Raises AssertionError as well when one of them can never settle.
    """
    numbers = {World(budget): 0}
    worlds = list(numbers)
    before: dict[int, list[int]] = {}  # by world: those from which it is reached at no cost
    for number, world in enumerate(worlds):  # the list grows meanwhile
        check(world)
        for move in moves(world):
            after = numbers.setdefault(move.world, len(worlds))
            if after == len(worlds):
                worlds.append(move.world)
            if move.is_free:
                before.setdefault(after, []).append(number)
    ends = {number for number, world in enumerate(worlds) if is_settled(world)}
    todo = list(ends)
    while todo:
        for number in before.get(todo.pop(), ()):
            if number not in ends:
                ends.add(number)
                todo.append(number)
    assert len(ends) == len(worlds), "a world that never settles"
    return len(worlds)


def explore_all(budgets: Iterable[Budget]) -> None:
    for budget in budgets:
        explore(budget)


@pytest.mark.parametrize(
    "budget", [*SMALL, *(pytest.param(budget, marks=pytest.mark.long) for budget in LARGE)], ids=str
)
def test_every_interleaving_of_two_brokers(budget: Budget) -> None:
    """No belief in a lock that is gone, none that stays when all is settled, and every world can settle."""
    assert explore(budget) > 2000


MUTANTS: dict[str, tuple[tuple[LockState, LockEvent], LockState, tuple[LockAction, ...]]] = {
    "the timer runs on when the queue is asked for": (
        (LockState.UNLOCK_DUE, LockEvent.ASK), LockState.ASKING, ()
    ),
    "an unlock overtakes a lock request": (
        (LockState.ASKING, LockEvent.UNLOCK), LockState.ASKING_UNWANTED, (LockAction.UNLOCK,)
    ),
    "what nobody took stays": ((LockState.ASKING, LockEvent.LEFT), LockState.HELD, ()),
    "a timer frees what is in use": (
        (LockState.UNLOCK_DUE, LockEvent.TIMER_KEPT), LockState.UNLOCKING, (LockAction.UNLOCK,)
    ),
    "a late grant behind an unlock": ((LockState.UNLOCKING, LockEvent.LATE_GRANT), LockState.UNLOCKING, ()),
    "a late grant after an unlock": (
        (LockState.IN_DOUBT, LockEvent.LATE_GRANT), LockState.FREE, (LockAction.STOP_TIMER,)
    ),
    "an unlock that was lost": ((LockState.UNLOCKING, LockEvent.UNLOCK_LAPSED), LockState.FREE, ()),
    "an unlock that failed": ((LockState.UNLOCKING, LockEvent.UNLOCK_FAILED), LockState.FREE, ()),
    "a lock that was fenced is kept": ((LockState.HELD, LockEvent.FENCED), LockState.HELD, ()),
    "a lock that was fenced is still unlocked later": ((LockState.UNLOCK_DUE, LockEvent.FENCED), LockState.FREE, ()),
    "no answer is taken for a refusal": ((LockState.FREE, LockEvent.DOUBTS_LEFT), LockState.FREE, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_each_protection_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed, each of these rows is found by some interleaving."""
    row, state, actions = MUTANTS[name]
    monkeypatch.setitem(TRANSITIONS, row, lock_states.Transition(state, actions))
    fenced_first = sorted(SMALL, key=lambda budget: budget.fences == 0)
    with pytest.raises((AssertionError, KeyError)):
        explore_all(fenced_first if "fenced" in name else SMALL)


def test_a_lock_waits_for_an_unlock_or_is_freed_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for at any time, a lock is freed by the client's own unlock in some interleaving."""
    for state in (LockState.UNLOCKING, LockState.UNLOCKING_AGAIN):
        row = lock_states.Transition(LockState.ASKING)
        monkeypatch.setitem(TRANSITIONS, (state, LockEvent.ASK), row)
    monkeypatch.setattr(QueueLock, "may_ask", True)
    with pytest.raises((AssertionError, KeyError)):
        explore(SMALL[1])


class _Used(dict[Any, Any]):
    def __init__(self, rows: Any) -> None:
        super().__init__(rows)
        self.keys_used: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        self.keys_used.add(key)
        return super().__getitem__(key)


@pytest.mark.long
def test_every_row_of_the_table_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for an unlock that fails again and again, and a queue that is in the table although it was given up."""
    used = _Used(TRANSITIONS)
    monkeypatch.setattr(lock_states, "TRANSITIONS", used)
    explore_all(SMALL)
    assert set(TRANSITIONS) - used.keys_used == {
        (LockState.UNLOCKING, LockEvent.UNLOCK_GIVEN_UP),
        (LockState.UNLOCKING_AGAIN, LockEvent.UNLOCK_GIVEN_UP),
        (LockState.ASKING_UNWANTED, LockEvent.KEPT),
        (LockState.IN_DOUBT, LockEvent.TIMER_KEPT),
    }


def test_what_a_consumer_does_is_allowed_at_any_time() -> None:
    """It may give a queue up in every state, and ask for it unless its unlock is under way."""
    for state in LockState:
        assert {(state, LockEvent.UNLOCK), (state, LockEvent.UNLOCK_LATER)} <= set(TRANSITIONS)
        assert ((state, LockEvent.ASK) in TRANSITIONS) == QueueLock(state).may_ask


def test_an_unlock_is_not_tried_for_ever() -> None:
    """A broker that is gone keeps no entry here."""
    lock = NO_LOCK.ask().lock.end(Outcome.GRANTED, in_table=True).lock.unlock().lock
    for _ in range(UNLOCK_FAILURES_MAX - 1):
        step = lock.unlock_failed(lapsed=True)
        assert step.actions == (LockAction.UNLOCK,)
        lock = step.lock
    assert lock.unlock_failed(lapsed=False).lock.state is LockState.FREE
    assert lock.unlock_failed(lapsed=True).lock == NO_LOCK._replace(perhaps_held=True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_long_story_settles(data: st.DataObject) -> None:
    """Many calls, unlocks, timeouts, lost connections and rivals; then whatever is under way ends."""
    world = World(Budget(calls=8, unlocks=8, timeouts=4, losses=3, failures=2, rivals=4))
    for choice in data.draw(st.lists(st.integers(0, 2**30), max_size=80)):
        if options := list(moves(world)):
            world = options[choice % len(options)].world
            check(world)
    rng = data.draw(st.randoms(use_true_random=False))
    for _ in range(STEPS_MAX):
        if is_settled(world):
            break
        world = rng.choice([move.world for move in moves(world) if move.is_free])
        check(world)
    assert is_settled(world)
