"""The lock table: RocketMQ's rules to the millisecond (wire.md 7.2)."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.ownership.answers import LockAnswer, LockOutcome
from lockstep.broker.ownership.port import KEPT_LIVES
from lockstep.broker.ownership.rocketmq_locks import RebalanceLockManager
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS, queues_of

LIFE_MS = 60_000
(QUEUE,) = queues_of("T", 1)


def one(locks: RebalanceLockManager, client_id: str, now_ms: int) -> LockAnswer:
    (answer,) = locks.try_lock_batch("G", client_id, [QUEUE], now_ms)
    return answer


def test_a_free_queue_is_granted_and_its_owner_renews() -> None:
    """The first caller gets the queue; asking again renews it."""
    locks = RebalanceLockManager(LIFE_MS)
    assert one(locks, "a", NOW_MS).outcome is LockOutcome.GRANTED
    assert one(locks, "a", NOW_MS + 20_000).outcome is LockOutcome.RENEWED


def test_a_lock_is_not_lost_at_its_life_and_lost_a_millisecond_later() -> None:
    """At 60 000 ms after the last renewal another is refused; at 60 001 it takes over."""
    locks = RebalanceLockManager(LIFE_MS)
    one(locks, "a", NOW_MS)
    assert one(locks, "b", NOW_MS + LIFE_MS)[:4] == (QUEUE, LockOutcome.REFUSED, "a", LIFE_MS)
    assert one(locks, "b", NOW_MS + LIFE_MS + 1)[:4] == (QUEUE, LockOutcome.TAKEN_OVER, "a", LIFE_MS + 1)
    assert one(locks, "a", NOW_MS + LIFE_MS + 1)[:4] == (QUEUE, LockOutcome.REFUSED, "b", 0)


def test_a_renewal_prolongs_a_lock_from_when_it_was_made() -> None:
    """The life counts from the last renewal, and a refused rival does not shorten it."""
    locks = RebalanceLockManager(LIFE_MS)
    one(locks, "a", NOW_MS)
    one(locks, "a", NOW_MS + LIFE_MS)
    one(locks, "b", NOW_MS + LIFE_MS + 1)
    assert one(locks, "b", NOW_MS + 2 * LIFE_MS).outcome is LockOutcome.REFUSED
    assert one(locks, "b", NOW_MS + 2 * LIFE_MS + 1).outcome is LockOutcome.TAKEN_OVER


def test_all_locks_of_a_request_are_renewed_or_none() -> None:
    """To the end of their life, for their owner alone; a queue that it does not hold leaves the others as they are."""
    locks, other = RebalanceLockManager(LIFE_MS), QUEUE._replace(queue_id=1)
    one(locks, "a", NOW_MS)
    asked = LockBatchBody("G", "a", (QUEUE,))
    assert locks.renew_all(asked, NOW_MS + LIFE_MS)
    renewed = list(locks.rows(NOW_MS + LIFE_MS))
    assert [row.age_ms for row in renewed] == [0]
    for refused in (
        asked._replace(client_id="b"),
        asked._replace(consumer_group="H"),
        asked._replace(mq_set=(QUEUE, other)),
    ):
        assert not locks.renew_all(refused, NOW_MS + LIFE_MS + 1)
    assert not locks.renew_all(asked, NOW_MS + 2 * LIFE_MS + 1)
    assert list(locks.rows(NOW_MS + LIFE_MS)) == renewed


def test_an_owner_that_comes_back_too_late_starts_anew() -> None:
    """An expired owner takes its own queue over again: since when it holds it starts at that moment."""
    locks = RebalanceLockManager(LIFE_MS)
    one(locks, "a", NOW_MS)
    late_ms = NOW_MS + LIFE_MS + 1
    assert one(locks, "a", late_ms)[:4] == (QUEUE, LockOutcome.REACQUIRED, "a", LIFE_MS + 1)
    assert next(iter(locks.rows(late_ms))).held_ms == 0


def test_only_the_owner_unlocks() -> None:
    """Another's unlock changes nothing; the owner's frees the queue at once."""
    locks = RebalanceLockManager(LIFE_MS)
    one(locks, "a", NOW_MS)
    assert locks.unlock_batch("G", "b", [QUEUE], NOW_MS) == [LockAnswer(QUEUE, LockOutcome.REFUSED, "a")]
    assert one(locks, "b", NOW_MS + 1).outcome is LockOutcome.REFUSED
    assert locks.unlock_batch("G", "a", [QUEUE], NOW_MS) == []
    assert one(locks, "b", NOW_MS + 1).outcome is LockOutcome.GRANTED


def test_unlocking_what_nobody_holds_is_answered_and_changes_nothing() -> None:
    """An unknown group or queue is no error."""
    locks = RebalanceLockManager(LIFE_MS)
    assert locks.unlock_batch("G", "a", [QUEUE], NOW_MS) == [LockAnswer(QUEUE, LockOutcome.REFUSED, None)]
    assert tuple(locks.rows(NOW_MS)) == ()


def test_a_batch_is_answered_queue_by_queue() -> None:
    """Some queues of a batch are granted and others refused."""
    locks = RebalanceLockManager(LIFE_MS)
    queues = queues_of("T", 4)
    locks.try_lock_batch("G", "a", queues[:2], NOW_MS)
    answers = locks.try_lock_batch("G", "b", queues, NOW_MS)
    assert [answer.outcome.owned for answer in answers] == [False, False, True, True]


def test_the_list_is_sorted_and_tells_ages() -> None:
    """Rows stand by group and queue; expired ones are there, with a negative time left."""
    locks = RebalanceLockManager(LIFE_MS)
    first, second = queues_of("T", 2)
    locks.try_lock_batch("H", "b", [first], NOW_MS)
    locks.try_lock_batch("G", "a", [second, first], NOW_MS - LIFE_MS - 1)
    locks.try_lock_batch("G", "a", [first], NOW_MS - LIFE_MS)
    assert [row[:6] for row in tuple(locks.rows(NOW_MS))] == [
        ("G", first, "a", 60_000, 0, 60_001),
        ("G", second, "a", 60_001, -1, 60_001),
        ("H", first, "b", 0, 60_000, 0),
    ]
    assert [row.consumer_group for row in tuple(locks.rows(NOW_MS, "H"))] == ["H"]
    assert tuple(locks.rows(NOW_MS, "nobody")) == ()


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["lock", "unlock"]),
        st.sampled_from(["G", "H"]),
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.integers(0, 2), max_size=3),
        st.sampled_from([0, 1, 30_000, 59_999, 60_000, 60_001]),
    ),
    max_size=40,
)


@given(CALLS)
def test_the_table_agrees_with_a_naive_model(calls: list[tuple[str, str, str, list[int], int]]) -> None:
    """Whatever is called in whatever order, owners are those of the rule written as one line."""
    locks = RebalanceLockManager(LIFE_MS)
    model: dict[tuple[str, MessageQueue], tuple[str, int]] = {}
    now_ms = NOW_MS
    for verb, group, client_id, ids, passed_ms in calls:
        now_ms += passed_ms
        queues = [MessageQueue("T", "broker-a", queue_id) for queue_id in ids]
        if verb == "unlock":
            locks.unlock_batch(group, client_id, queues, now_ms)
            for queue in queues:
                if model.get((group, queue), ("", 0))[0] == client_id:
                    del model[group, queue]
            continue
        answers = locks.try_lock_batch(group, client_id, queues, now_ms)
        for queue, answer in zip(queues, answers, strict=True):
            owner, renewed_ms = model.get((group, queue), (client_id, now_ms))
            may = owner == client_id or now_ms - renewed_ms > LIFE_MS
            if may:
                model[group, queue] = (client_id, now_ms)
            assert answer.outcome.owned == may
    held = {(row.consumer_group, row.queue): (row.client_id, now_ms - row.age_ms) for row in tuple(locks.rows(now_ms))}
    assert held == model


# Bounds -----------------------------------------------------------------------------------------------------------


def outcomes(answers: list[LockAnswer]) -> list[LockOutcome]:
    return [answer.outcome for answer in answers]


def test_a_full_table_grants_nothing_new_and_renews_what_is_there() -> None:
    """Two entries fit: a third queue finds no room, whatever its group; the owner of the first two renews them."""
    locks = RebalanceLockManager(LIFE_MS, entries_max=2)
    queues = queues_of("T", 3)
    granted, no_room = LockOutcome.GRANTED, LockOutcome.TABLE_FULL
    assert outcomes(locks.try_lock_batch("G", "a", queues, NOW_MS)) == [granted, granted, no_room]
    assert one_of(locks, "other", NOW_MS) is no_room
    assert not no_room.owned
    assert outcomes(locks.try_lock_batch("G", "a", queues[:2], NOW_MS)) == [LockOutcome.RENEWED] * 2
    assert len(locks) == 2


def one_of(locks: RebalanceLockManager, group: str, now_ms: int) -> LockOutcome:
    return outcomes(locks.try_lock_batch(group, "z", [QUEUE], now_ms))[0]


def test_an_expired_entry_makes_room_in_a_full_table() -> None:
    """An entry without renewals is removed when its life is over, not earlier, also when it is the only one of its
    group."""
    locks = RebalanceLockManager(LIFE_MS, entries_max=1)
    assert one_of(locks, "G", NOW_MS) is LockOutcome.GRANTED
    assert one_of(locks, "H", NOW_MS + LIFE_MS) is LockOutcome.TABLE_FULL
    assert one_of(locks, "H", NOW_MS + LIFE_MS + 1) is LockOutcome.GRANTED
    assert [row.consumer_group for row in tuple(locks.rows(NOW_MS))] == ["H"]
    first, second = queues_of("T", 2)
    late_ms = NOW_MS + 2 * LIFE_MS + 2
    assert outcomes(locks.try_lock_batch("H", "a", [second], late_ms)) == [LockOutcome.GRANTED]
    assert [row.queue for row in tuple(locks.rows(late_ms))] == [second]
    assert first == QUEUE


def test_a_group_has_a_bound_of_its_own() -> None:
    """One group that asks for everything leaves room for the others."""
    locks = RebalanceLockManager(LIFE_MS, entries_max=10, entries_per_group_max=2)
    answers = locks.try_lock_batch("G", "a", queues_of("T", 3), NOW_MS)
    assert outcomes(answers)[2] is LockOutcome.TABLE_FULL
    assert one_of(locks, "H", NOW_MS) is LockOutcome.GRANTED


def test_entries_that_nobody_renews_are_forgotten_in_slices() -> None:
    """After ten lives, the longest unrenewed first, no more at a time than asked for; a renewed one stays."""
    locks = RebalanceLockManager(LIFE_MS)
    queues = queues_of("T", 4)
    locks.try_lock_batch("G", "a", queues, NOW_MS)
    locks.try_lock_batch("G", "a", queues[:1], NOW_MS + 1)
    at_ms = NOW_MS + KEPT_LIVES * LIFE_MS
    assert locks.expire(at_ms, 10) == 0
    assert locks.expire(at_ms + 1, 2) == 2
    assert locks.expire(at_ms + 1, 2) == 1
    assert [row.queue for row in tuple(locks.rows(at_ms))] == [queues[0]]
    assert locks.expire(at_ms + 2, 2) == 1
    assert len(locks) == 0


def test_a_lock_that_was_taken_over_has_the_age_of_its_new_owner() -> None:
    """The last renewal of the owner before it is no reason to forget it, however long ago that was."""
    locks = RebalanceLockManager(LIFE_MS)
    one(locks, "a", NOW_MS)
    over_ms = NOW_MS + LIFE_MS + 1
    for life in range(KEPT_LIVES + 1):
        assert one(locks, "b", over_ms + life * LIFE_MS).outcome.owned
    now_ms = over_ms + KEPT_LIVES * LIFE_MS
    assert (locks.expire(now_ms, 10), len(locks)) == (0, 1)
    assert one(locks, "c", now_ms).outcome is LockOutcome.REFUSED


def test_a_request_that_gets_nothing_leaves_nothing() -> None:
    """A lock of no queue makes no entry, and so no group."""
    locks = RebalanceLockManager(LIFE_MS)
    assert locks.try_lock_batch("G", "a", [], NOW_MS) == []
    assert (len(locks), tuple(locks.rows(NOW_MS))) == (0, ())
