"""Held pulls: each is woken once, and only by its own event (wire.md 6.4)."""

from lockstep.broker.messages.filters import Wanted
from lockstep.broker.messages.held_pulls import HeldPull, PullHold
from lockstep.broker.messages.pull_answers import PullAnswer
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages.message import encode_stored_message
from lockstep.store import Passes, Record
from tests.broker.helpers import NOW_MS, FakeConnection

A, B = tags_code("A"), tags_code("B")


def pull(
    connection: FakeConnection | None = None, offset: int = 0, tags: str = "*", queue_id: int = 0, wait_ms: int = 15_000
) -> HeldPull:
    wanted = Wanted(SubscriptionData.parse("T", tags))
    peer = connection or FakeConnection()
    return HeldPull(peer, "G", "T", queue_id, offset, 32, wanted, NOW_MS + wait_ms, never)


def never(answer: PullAnswer) -> None:
    raise AssertionError("the table of held pulls answers none")


def no_message(topic: str, queue_id: int, queue_offset: int) -> bytes:
    raise AssertionError("tags are told by their hash")


def test_many_messages_wake_a_pull_once() -> None:
    """64 arrivals, one wake-up; nothing is left to wake after it."""
    hold, held = PullHold(10), pull()
    hold.park(held)
    for offset in range(64):
        hold.on_arrival("T", 0, offset, 0)
    assert hold.take_arrived(no_message) == [held]
    assert hold.take_arrived(no_message) == []
    assert len(hold) == 0


def test_all_pulls_of_a_queue_are_woken_in_the_order_they_came() -> None:
    """There is no de-duplication: two parked pulls both get the messages."""
    hold, first, second = PullHold(10), pull(), pull()
    hold.park(first)
    hold.park(second)
    hold.on_arrival("T", 0, 0, 0)
    assert hold.take_arrived(no_message) == [first, second]


def test_other_queues_and_topics_wake_nobody() -> None:
    """An arrival for a queue without held pulls is not remembered."""
    hold = PullHold(10)
    hold.park(pull())
    hold.on_arrival("T", 1, 0, 0)
    hold.on_arrival("U", 0, 0, 0)
    assert not hold.has_arrivals
    assert len(hold) == 1


def test_an_arrival_wakes_by_tag() -> None:
    """A pull for A sleeps through B and untagged messages; one for everything does not."""
    hold, for_a, for_all = PullHold(10), pull(tags="A"), pull()
    hold.park(for_a)
    hold.park(for_all)
    hold.on_arrival("T", 0, 0, B)
    assert hold.take_arrived(no_message) == [for_all]
    hold.on_arrival("T", 0, 1, 0)
    assert hold.take_arrived(no_message) == []
    hold.on_arrival("T", 0, 2, A)
    assert hold.take_arrived(no_message) == [for_a]


def test_more_than_a_filter_is_shown_at_once_wakes_it() -> None:
    """The read that follows looks at as many as it may, and moves the pull on: nothing is looked at twice."""
    hold, seen = PullHold(10), list[int]()

    def message_of(topic: str, queue_id: int, queue_offset: int) -> bytes:
        seen.append(queue_offset)
        return b""

    wanted = Wanted(SubscriptionData.parse("T", "*"), Passes(lambda _: False, entries_max=2))
    held = pull(offset=1)._replace(wanted=wanted)
    hold.park(held)
    for offset in range(3):
        hold.on_arrival("T", 0, offset, 0)
    assert hold.take_arrived(message_of) == []
    assert seen == [1, 2]
    for offset in range(3, 6):
        hold.on_arrival("T", 0, offset, 0)
    assert hold.take_arrived(no_message) == [held]


def test_a_message_with_long_properties_wakes_each_filter() -> None:
    """Thousands of pulls may wait, and to read 8,000 properties for each takes a millisecond: their reads decide."""
    for properties, woken in ((b"a\x01" + b"x" * 100, []), (b"a\x01" + b"x" * 5000, [True])):
        fields = ("T", 0, 0, 0, NOW_MS, bytes(4), 1, NOW_MS, 0, 0, b"body" * 2000, properties, 0)
        stored = encode_stored_message(Record(*fields), b"T", 0, 0, bytes(4), 1)
        wanted = Wanted(SubscriptionData.parse("T", "*"), Passes(lambda _: False, entries_max=9))
        hold, held = PullHold(10), pull()._replace(wanted=wanted)
        hold.park(held)
        hold.on_arrival("T", 0, 0, 0)
        assert [found is held for found in hold.take_arrived(lambda *_, stored=stored: stored)] == woken


def test_a_message_below_the_wanted_offset_is_no_news() -> None:
    """A pull parked behind a message in the same read is not woken by it."""
    hold, early, late = PullHold(10), pull(offset=5), pull(offset=6)
    hold.park(early)
    hold.on_arrival("T", 0, 5, 0)
    hold.park(late)
    assert hold.take_arrived(no_message) == [early]
    assert len(hold) == 1


def test_the_sweep_wakes_by_deadline_and_by_newer_data_of_any_tag() -> None:
    """At its deadline, not a millisecond before; and tag-blind, as RocketMQ's."""
    hold, soon, late = PullHold(10), pull(wait_ms=5000), pull(tags="A")
    hold.park(soon)
    hold.park(late)
    assert hold.sweep(NOW_MS + 4999, lambda topic, queue_id: 0) == []
    assert hold.sweep(NOW_MS + 5000, lambda topic, queue_id: 0) == [soon]
    assert hold.sweep(NOW_MS + 5000, lambda topic, queue_id: 1) == [late]
    assert len(hold) == 0


def test_a_peer_that_takes_nothing_is_not_woken() -> None:
    """Neither by an arrival nor by its deadline, until its buffer has drained."""
    connection = FakeConnection()
    hold, held = PullHold(10), pull(connection)
    hold.park(held)
    connection.write_paused = True
    hold.on_arrival("T", 0, 0, 0)
    assert hold.take_arrived(no_message) == []
    assert hold.sweep(NOW_MS + 60_000, lambda topic, queue_id: 1) == []
    connection.write_paused = False
    assert hold.sweep(NOW_MS + 60_000, lambda topic, queue_id: 1) == [held]


def test_a_connection_may_park_only_so_many() -> None:
    """The limit is per connection and counts the pulls that are held now."""
    hold, connection = PullHold(2), FakeConnection()
    assert [hold.park(pull(connection)) for _ in range(3)] == [True, True, False]
    assert hold.park(pull())
    hold.on_arrival("T", 0, 0, 0)
    assert len(hold.take_arrived(no_message)) == 3
    assert hold.park(pull(connection))


def test_what_is_taken_out_leaves_the_others_and_makes_room() -> None:
    """As when the owner of a queue changes for one of its groups."""
    connection = FakeConnection()
    hold, mine, other = PullHold(2), pull(connection), pull(connection, offset=1)
    hold.park(mine)
    hold.park(other)
    assert not hold.park(pull(connection))
    assert hold.take(("T", 0), lambda one: one is mine) == [mine]
    assert len(hold) == 1
    assert hold.park(mine)
    hold.on_arrival("T", 0, 1, 0)
    assert hold.take_arrived(no_message) == [other, mine]


def test_a_closed_connection_takes_its_pulls_along() -> None:
    """Others stay."""
    hold, gone, stays = PullHold(10), FakeConnection(), pull()
    hold.park(pull(gone))
    hold.park(stays)
    hold.park(pull(gone, queue_id=1))
    hold.on_closed(gone)
    assert len(hold) == 1
    hold.on_arrival("T", 0, 0, 0)
    hold.on_arrival("T", 1, 0, 0)
    assert hold.take_arrived(no_message) == [stays]


def test_what_was_woken_and_parked_again_is_given_up_with_its_connection() -> None:
    """Pulls of several queues, among pulls of other connections; none is woken or counted afterwards."""
    hold, gone, stays = PullHold(10), FakeConnection(), FakeConnection()
    for queue_id in (0, 0, 1, 2):
        hold.park(pull(gone, queue_id=queue_id))
    hold.park(pull(stays, queue_id=1))
    hold.on_arrival("T", 0, 0, 0)
    woken = hold.take_arrived(no_message)
    assert len(woken) == 2
    hold.park(woken[0])
    hold.on_closed(gone)
    assert len(hold) == 1
    for queue_id in range(3):
        hold.on_arrival("T", queue_id, 1, 0)
    assert [held.peer for held in hold.take_arrived(no_message)] == [stays]
    hold.on_closed(gone)
    assert len(hold) == 0


def test_all_connections_together_have_a_bound() -> None:
    """One more pull is not held until another is woken or its connection ends."""
    hold, gone = PullHold(10, held_max=2), FakeConnection()
    first = pull()
    assert [hold.park(first), hold.park(pull(gone, queue_id=1)), hold.park(pull())] == [True, True, False]
    hold.on_closed(gone)
    assert len(hold) == 1
    assert hold.park(pull(queue_id=2))
    hold.on_arrival("T", 0, 0, 0)
    assert hold.take_arrived(no_message) == [first]
    assert len(hold) == 1
    assert hold.park(pull())
