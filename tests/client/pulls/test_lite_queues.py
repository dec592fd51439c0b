"""What was pulled, handed out and handled, of each queue (wire.md 12.10)."""

from lockstep.client.consumer.buffer import LiteQueue, LiteQueues
from tests.client.messages import messages_at
from tests.client.periods import free
from tests.client.stage import queue_at


def with_queues(count: int) -> tuple[LiteQueues, list[LiteQueue]]:
    queues = LiteQueues()
    return queues, [queues.add(free(queue_at(i), 0, i)) for i in range(count)]


def take(queues: LiteQueues, count_max: int | None = None) -> list[int]:
    return [message.queue_offset for message in queues.take(77, count_max)]


def test_pulls_come_out_whole_and_in_turn() -> None:
    """One call, one pull, in the order of their arrival; a count takes a pull apart."""
    queues, (first, second) = with_queues(2)
    queues.put(first, messages_at(0, 1, 2))
    queues.put(second, messages_at(5))
    queues.put(first, messages_at(3, 4))
    assert queues.waiting_pulls == 3
    assert [take(queues, 2), take(queues, 2), take(queues), take(queues), take(queues)] == [
        [0, 1],
        [2],
        [5],
        [3, 4],
        [],
    ]
    assert (queues.waiting_pulls, first.process_queue.cache.message_count) == (0, 0)
    assert first.process_queue.last_consume_ms == 77


def test_the_last_thing_handed_out_is_not_handled_yet() -> None:
    """The next call says that it is, whether it gets anything or not."""
    queues, (only,) = with_queues(1)
    queues.put(only, messages_at(7, 8))
    take(queues, 1)
    assert (only.handled, only.position) == (7, 8)
    take(queues)
    assert (only.handled, only.position) == (8, 9)
    take(queues)
    assert (only.handled, only.position) == (9, 9)


def test_a_seek_forgets_what_waits_and_what_was_handed_out() -> None:
    """Of that queue alone."""
    queues, (first, second) = with_queues(2)
    queues.put(first, messages_at(0, 1))
    queues.put(second, messages_at(5))
    take(queues, 1)
    queues.seek(first, 40)
    assert (first.process_queue.cache.next_offset, first.position, first.handled) == (40, 40, 40)
    assert first.process_queue.cache.is_empty
    assert take(queues) == [5]
    assert first.handled == 40


def test_a_queue_that_goes_takes_its_messages_along() -> None:
    """They are another's now."""
    queues, (first, second) = with_queues(2)
    queues.put(first, messages_at(0))
    queues.put(second, messages_at(5))
    assert queues.remove(queue_at(0)) is first
    assert queues.remove(queue_at(0)) is None
    assert (queues.queues, queues.get(queue_at(0))) == ([queue_at(1)], None)
    assert [take(queues), take(queues)] == [[5], []]


def test_offsets_that_are_there_already_count_once() -> None:
    """A broker that lost its tail may send offsets again; each is handed out once, and nothing is counted twice."""
    queues, (only,) = with_queues(1)
    queues.put(only, messages_at(0, 1, 2))
    queues.put(only, messages_at(1, 2))
    queues.put(only, messages_at(2, 3))
    assert [take(queues), take(queues), take(queues)] == [[0, 1, 2], [3], []]


def test_nothing_to_be_had_moves_the_position() -> None:
    """When nothing waits, and upwards only; what is in hand stays unhandled."""
    queues, (only,) = with_queues(1)
    queues.nothing_until(only, 5)
    assert (only.position, only.handled) == (5, 5)
    queues.nothing_until(only, 3)
    assert only.position == 5
    queues.put(only, messages_at(5, 6))
    queues.nothing_until(only, 9)
    assert only.position == 5, "5 and 6 wait"
    take(queues)
    queues.nothing_until(only, 9)
    assert (only.position, only.handled) == (9, 5), "5 and 6 are being handled"
    queues.settle()
    assert only.handled == 9
