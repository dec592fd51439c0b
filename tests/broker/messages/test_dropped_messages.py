"""Dropped messages that groups had not consumed: told in steps, however many groups and queues there are."""

import time
from collections.abc import Callable

from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.delay_levels import parse_delay_levels
from lockstep.broker.messages.delays.service import DelayService
from lockstep.broker.messages.delays.timers import Timers
from lockstep.broker.messages.dropped_messages import DroppedMessages
from lockstep.broker.sliced_work import SlicedWork
from tests.broker.helpers import RecordingLog
from tests.store.stores import memory_store

GROUPS = 20_000
QUEUES = 65_536


class Told:
    """`turns`: of the loop, to be run by the test."""

    def __init__(self) -> None:
        self.offsets, self.log, work = ConsumerOffsetManager(), RecordingLog(), SlicedWork()
        self.turns: list[Callable[[], None]] = []
        work.soon = self.turns.append
        delays = DelayService(memory_store(), parse_delay_levels("1s"))
        timers = Timers(memory_store(), 1000, 1)
        self.dropped = DroppedMessages(self.offsets, delays, timers, work, self.log, "memory limit")

    def run(self) -> int:
        count = 0
        while self.turns:
            self.turns.pop(0)()
            count += 1
        return count

    def of(self, event: str) -> list[dict[str, object]]:
        return [fields for _, name, fields in self.log.events if name == event]


def test_a_drop_that_concerns_many_groups_takes_many_turns_and_few_lines() -> None:
    """So a peer that commits offsets of many groups does not stop the broker at each segment that is dropped."""
    told = Told()
    for number in range(GROUPS):
        told.offsets.commit(f"g{number}", "T", 0, 0)
    told.dropped.on_trim("T", 0, 0, 5)
    assert len(told.log.events) <= 100
    assert told.run() >= 3
    assert told.dropped.ahead_count == 5 * GROUPS
    assert len(told.of("unconsumed_messages_dropped")) == 100
    (rest,) = told.of("more_unconsumed_messages_dropped")
    assert (rest["groups_and_queues"], rest["count"]) == (GROUPS - 100, 5 * (GROUPS - 100))


def test_a_drop_of_many_queues_with_few_groups_takes_few_lines() -> None:
    """Also when one step is enough for each of them."""
    told = Told()
    for number in range(1000):
        told.offsets.commit("g", "T", number, 0)
    for number in range(1000):
        told.dropped.on_trim("T", number, 0, 5)
    told.run()
    assert told.dropped.ahead_count == 5 * 1000
    assert len(told.of("unconsumed_messages_dropped")) == 100
    (rest,) = told.of("more_unconsumed_messages_dropped")
    assert (rest["groups_and_queues"], rest["count"]) == (900, 5 * 900)


def test_what_is_dropped_meanwhile_is_told_once() -> None:
    """Each message counts once for a group, also when a queue is trimmed twice before its first line."""
    told = Told()
    for number in range(1000):
        told.offsets.commit(f"g{number}", "first", 0, 0)
    told.offsets.commit("g", "T", 0, 2)
    told.dropped.on_trim("first", 0, 0, 1)
    told.dropped.on_trim("T", 0, 1, 4)
    told.dropped.on_trim("T", 0, 4, 6)
    told.run()
    assert told.dropped.ahead_count == 1000 + 4
    assert told.of("more_unconsumed_messages_dropped")[0]["count"] == 900 + 4


def test_a_drop_in_all_queues_of_a_broker_takes_no_longer_for_each_of_them() -> None:
    """In one go for the store, and then few for each step: 0.1 s in all, where it took 1.5 s in one step."""
    told = Told()
    for queue_id in range(QUEUES):
        told.dropped.on_trim("T", queue_id, 0, 1)
    begin = time.process_time()
    assert told.run() > 5
    assert time.process_time() - begin < 0.7
