"""ProcessQueue: the table of wire.md 12.5, row by row, and against a naive model."""

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.ownership.hold import FencedHold, Hold
from lockstep.client.consumer.ownership.life import PeriodLife
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from tests.client.messages import message_at, messages_at
from tests.client.periods import period

QUEUE = MessageQueue("T", "broker-a", 0)


def offsets(messages: list[MessageExt]) -> list[int]:
    return [message.queue_offset for message in messages]


def queue_with(*held: int) -> MessageCache:
    cache = MessageCache()
    cache.put_messages(messages_at(*held))
    return cache


def test_put_asks_for_a_consume_task_once() -> None:
    """True only when there are messages and no task runs; after an empty take it may be true again."""
    cache = MessageCache()
    assert not cache.put_messages([])
    assert cache.put_messages(messages_at(0, 1))
    assert not cache.put_messages(messages_at(2))
    cache.take_messages(3)
    assert cache.take_messages(1) == []
    assert not cache.put_messages([])
    assert cache.put_messages(messages_at(3))


def test_put_counts_a_message_once() -> None:
    """An offset that is there already is replaced and not counted (wire.md 12.5)."""
    cache = queue_with(0, 1, 2)
    cache.put_messages(messages_at(1, 2, 3))
    assert (cache.message_count, cache.message_bytes) == (4, 4)


def test_removed_messages_leave_the_first_offset_that_is_not_done() -> None:
    """Without order: the first one left, at the end the one behind all that ever came, and -1 for an empty queue."""
    cache = queue_with(3, 4, 9)
    assert cache.remove_messages(messages_at(4)) == 3
    assert cache.remove_messages(messages_at(4)) == 3  # it is gone already
    assert cache.remove_messages(messages_at(3)) == 9
    assert (cache.message_count, cache.message_bytes) == (1, 1)
    assert cache.remove_messages(messages_at(9)) == 10
    assert cache.remove_messages(messages_at(9)) == -1
    assert (cache.message_count, cache.message_bytes) == (0, 0)


def test_the_span_is_from_first_to_last() -> None:
    """Of the messages in the queue, and 0 of an empty one."""
    cache = queue_with(3, 4, 9)
    assert cache.max_span == 6
    cache.remove_messages(messages_at(3, 9))
    assert cache.max_span == 0
    cache.remove_messages(messages_at(4))
    assert cache.max_span == 0


def test_take_moves_the_first_in_offset_order() -> None:
    """Whatever the order in which they came."""
    cache = MessageCache()
    cache.put_messages(messages_at(5, 3))
    cache.put_messages(messages_at(4))
    assert offsets(cache.take_messages(2)) == [3, 4]
    assert offsets(cache.take_messages(2)) == [5]


def test_commit_is_the_last_taken_plus_one() -> None:
    """Gaps do not matter; count and bytes go down by the taken messages; without taken messages it is -1."""
    cache = queue_with(3, 7, 9)
    assert cache.commit() == -1
    cache.take_messages(2)
    assert cache.commit() == 8
    assert (cache.message_count, cache.message_bytes) == (1, 1)
    assert cache.commit() == -1


@pytest.mark.parametrize("changed", [None, b"", b"decoded", {"a": 1}], ids=repr)
def test_a_listener_may_change_the_body(changed: Any) -> None:
    """Count and bytes still go back to 0; otherwise the limits of the cache would stop the pulls some day."""
    cache = queue_with(1, 2, 3)
    (first,) = cache.take_messages(1)
    first.body = changed
    cache.rollback()
    (first,) = cache.take_messages(1)
    first.body = changed
    cache.commit()
    (last, other) = cache.take_messages(2)
    last.body = other.body = changed
    cache.make_messages_to_consume_again([other])
    assert cache.remove_messages([other]) == 4
    cache.commit()
    assert (cache.message_count, cache.message_bytes) == (0, 0)


def test_rollback_takes_everything_back() -> None:
    """All taken messages, of several takes, come again in order."""
    cache = queue_with(0, 1, 2)
    cache.take_messages(1)
    cache.take_messages(1)
    cache.rollback()
    assert offsets(cache.take_messages(5)) == [0, 1, 2]
    assert cache.message_count == 3


def test_make_again_takes_only_these_back() -> None:
    """Under manual commit earlier messages stay taken and are committed with the next COMMIT."""
    cache = queue_with(0, 1, 2)
    cache.take_messages(1)
    again = cache.take_messages(1)
    cache.make_messages_to_consume_again(again)
    assert offsets(cache.take_messages(5)) == [1, 2]
    assert cache.commit() == 3


def test_position_is_the_first_that_is_not_done() -> None:
    """In hand, else waiting, else the next to pull."""
    cache = MessageCache()
    assert cache.position == -1
    cache.next_offset = 6
    assert cache.position == 6
    cache.put_messages(messages_at(3, 4, 5))
    assert cache.position == 3
    cache.take_messages(2)
    assert cache.position == 3
    cache.commit()
    assert cache.position == 5


def test_the_lock_holds_to_its_last_millisecond() -> None:
    """Believed in while now - lastLock <= 30 000, and only while it is locked at all."""
    hold = Hold(1000, 30_000)
    assert hold.is_trusted(31_000)
    assert not hold.is_trusted(31_001)
    hold.granted(2000)
    assert hold.is_trusted(32_000)
    hold.granted(1500)  # an older answer that came late
    assert hold.is_trusted(32_000)
    hold.locked = False
    assert not hold.is_trusted(2000)


def test_who_waits_for_the_lock_is_told_once() -> None:
    """With each later renewal a queue that its listener suspended would be consumed before its pause is over."""
    hold, told = FencedHold(0, 1, 60_000), list[int]()
    assert hold.wait(lambda: told.append(hold.last_lock_ms))
    hold.granted(100, 60_000)
    hold.granted(200, 60_000)
    assert told == [100]


def test_a_pull_expires_after_its_last_millisecond() -> None:
    """now - lastPull > 120 000."""
    process_queue = period(QUEUE, 1000)
    assert not process_queue.pull_expired(121_000, 120_000)
    assert process_queue.pull_expired(121_001, 120_000)


async def test_waiting_for_a_listener() -> None:
    """At once when none runs; else when it returns, or False after the time; several may wait."""
    life = PeriodLife()
    assert await life.listener_idle(0)
    life.listener_running = True
    assert not await life.listener_idle(1)
    waiters = [asyncio.ensure_future(life.listener_idle(60_000)) for _ in range(2)]
    await asyncio.sleep(0)
    life.listener_returned()
    assert await asyncio.gather(*waiters) == [True, True]


async def test_a_listener_that_starts_again_is_not_idle() -> None:
    """A waiter must check again: the next batch may have begun before it wakes."""
    life = PeriodLife()
    life.listener_running = True
    waiter = asyncio.ensure_future(life.listener_idle(60_000))
    await asyncio.sleep(0)
    life.listener_returned()
    life.listener_running = True
    assert not await waiter


async def test_waiting_for_room() -> None:
    """Woken by the commit that brings the count below the mark, or by the time."""
    cache = queue_with(*range(10))
    await cache.wait_below(5, 1)
    waiter = asyncio.ensure_future(cache.wait_below(5, 60_000))
    for _ in range(5):
        await asyncio.sleep(0)
        assert not waiter.done()
        cache.take_messages(1)
        cache.commit()
    cache.take_messages(1)
    cache.commit()
    await asyncio.wait_for(waiter, 10)


class CacheMachine(RuleBasedStateMachine):
    """Against two plain dicts. Offsets are drawn with gaps and repeats, as tag filters and retries make them."""

    def __init__(self) -> None:
        super().__init__()
        self.real = MessageCache()
        self.waiting: dict[int, MessageExt] = {}
        self.in_hand: dict[int, MessageExt] = {}
        self.consuming = False

    @rule(held=st.lists(st.integers(0, 30), max_size=8))
    def put(self, held: list[int]) -> None:
        fresh = [message_at(offset) for offset in held if offset not in self.in_hand]
        dispatched = self.real.put_messages(fresh)
        self.waiting.update({message.queue_offset: message for message in fresh})
        assert dispatched == (bool(self.waiting) and not self.consuming)
        self.consuming |= dispatched

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        expected = sorted(self.waiting)[:count]
        taken = self.real.take_messages(count)
        assert offsets(taken) == expected
        assert all(message is self.waiting[message.queue_offset] for message in taken)
        for offset in expected:
            self.in_hand[offset] = self.waiting.pop(offset)
        if not taken:
            self.consuming = False

    @rule()
    def commit(self) -> None:
        assert self.real.commit() == (max(self.in_hand) + 1 if self.in_hand else -1)
        self.in_hand.clear()

    @rule()
    def rollback(self) -> None:
        self.real.rollback()
        self.waiting.update(self.in_hand)
        self.in_hand.clear()

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def make_again(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.in_hand)), unique=True))
        self.real.make_messages_to_consume_again([self.in_hand[offset] for offset in chosen])
        for offset in chosen:
            self.waiting[offset] = self.in_hand.pop(offset)

    @invariant()
    def agrees(self) -> None:
        held = [*self.waiting.values(), *self.in_hand.values()]
        assert self.real.message_count == len(held)
        assert self.real.message_bytes == sum(len(message.body) for message in held)
        assert self.real.is_empty == (not held)
        assert self.real.consuming == self.consuming


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("count", [1, 32])
def test_a_queue_drained_in_batches_hands_out_each_message_once(count: int) -> None:
    """The everyday course: put, take, commit, to the end."""
    cache = queue_with(*range(100))
    seen: list[int] = []
    while messages := cache.take_messages(count):
        seen += offsets(messages)
        assert cache.commit() == seen[-1] + 1
    assert seen == list(range(100))
    assert cache.is_empty
