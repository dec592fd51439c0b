"""The turns and numbers of one send sequence, step by step; `test_send_order.py` tests all interleavings."""

import asyncio

import pytest

from lockstep.client.producer.sequencer import SendSequence, SequenceBrokenError, SequenceNumber
from lockstep.protocol.model import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
HERE, THERE = object(), object()  # two connections


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def waiting(sequence: SendSequence, send: object = None) -> "tuple[int, asyncio.Task[SequenceNumber | None]]":
    """A send that is called now and waits for its turn."""
    ticket = sequence.ticket()
    sequence.hold(ticket)
    return ticket, asyncio.ensure_future(sequence.turn(ticket, send))


async def test_sends_to_a_free_sequence_are_numbered_in_call_order() -> None:
    """Any number may be in flight; each carries the generation and the next number."""
    sequence = SendSequence(QUEUE)
    numbers = []
    for _ in range(5):
        assert sequence.is_free_for(HERE)
        numbers.append(sequence.depart(sequence.ticket(), HERE))
    assert [number[:2] for number in numbers] == [(0, i) for i in range(5)]
    for number in numbers:
        sequence.settled(number)
    assert sequence.is_free_for(THERE)


async def test_another_connection_is_free_only_when_nothing_is_in_flight() -> None:
    """A send on the new connection could overtake one on the old connection."""
    sequence = SendSequence(QUEUE)
    number = sequence.depart(sequence.ticket(), HERE)
    assert sequence.is_free_for(HERE)
    assert not sequence.is_free_for(THERE)
    sequence.settled(number)
    assert sequence.is_free_for(THERE)
    assert sequence.depart(sequence.ticket(), THERE)[:2] == (1, 0), "a new connection, a new generation"


async def test_the_turn_goes_from_one_to_the_next_in_call_order() -> None:
    """Whoever waits first is not whoever called first; the ticket counts."""
    sequence = SendSequence(QUEUE)
    tickets = [sequence.ticket() for _ in range(3)]
    for ticket in tickets:
        sequence.hold(ticket)
    late_first = [asyncio.ensure_future(sequence.turn(ticket)) for ticket in reversed(tickets)]
    order: list[SequenceNumber] = []
    for ticket, turn in zip(tickets, reversed(late_first), strict=True):
        await settle()
        assert [task.done() for task in reversed(late_first)].count(True) == len(order) + 1
        await turn
        assert sequence.may_depart(ticket, HERE)
        order.append(sequence.depart(ticket, HERE))
        sequence.release()
    assert [number.ticket for number in order] == tickets


async def test_nothing_departs_while_a_broken_generation_is_unsettled() -> None:
    """The companions of a broken send must be settled before anything of the next generation leaves."""
    sequence = SendSequence(QUEUE)
    first, second, third = (sequence.depart(sequence.ticket(), HERE) for _ in range(3))
    sequence.failed(first)
    sequence.give_up(first.ticket)
    assert not sequence.is_free_for(HERE)
    _, turn = waiting(sequence)
    await settle()
    sequence.settled(second)
    await settle()
    assert not turn.done()
    sequence.settled(third)
    await turn
    assert sequence.generation == 1


async def test_a_broken_send_holds_up_later_ones_until_it_departs_again() -> None:
    """It is the earliest, so its repeat leaves before anything that waits."""
    sequence = SendSequence(QUEUE)
    number = sequence.depart(sequence.ticket(), HERE)
    sequence.failed(number)
    later, turn = waiting(sequence)
    await settle()
    assert not turn.done()
    await sequence.turn(number.ticket)
    assert sequence.may_depart(number.ticket, HERE)
    repeat = sequence.depart(number.ticket, HERE)
    assert repeat == (1, 0, number.ticket)
    assert not turn.done()
    sequence.release()
    await turn
    assert sequence.may_depart(later, HERE)
    assert sequence.depart(later, HERE) == (1, 1, later)


async def test_giving_up_fails_exactly_the_later_ones_that_wait() -> None:
    """Earlier ones keep their turn, and sends called afterwards are not concerned."""
    sequence = SendSequence(QUEUE)
    tickets = [sequence.ticket() for _ in range(4)]
    for ticket in tickets:
        sequence.hold(ticket)
    turns = {ticket: asyncio.ensure_future(sequence.turn(ticket)) for ticket in tickets if ticket != tickets[1]}
    await settle()
    sequence.give_up(tickets[1])
    for ticket in tickets[2:]:
        with pytest.raises(SequenceBrokenError):
            await turns[ticket]
    await turns[tickets[0]]
    assert sequence.may_depart(tickets[0], HERE)
    sequence.depart(tickets[0], HERE)
    sequence.release()
    assert sequence.is_free_for(HERE)


async def test_giving_up_reaches_the_one_that_has_the_turn() -> None:
    """It waits for a connection, has not left, and was called before the failure was known."""
    sequence = SendSequence(QUEUE)
    in_flight = sequence.depart(sequence.ticket(), HERE)
    holder, turn = waiting(sequence)
    await turn
    sequence.failed(in_flight)
    sequence.give_up(in_flight.ticket)
    with pytest.raises(SequenceBrokenError):
        sequence.may_depart(holder, THERE)
    sequence.release()
    with pytest.raises(SequenceBrokenError):
        await sequence.turn(holder)
    assert sequence.is_free_for(HERE)


async def test_the_turn_is_not_kept_over_an_earlier_break() -> None:
    """When an earlier send breaks and will be repeated, the one with the turn must wait for it."""
    sequence = SendSequence(QUEUE)
    in_flight = sequence.depart(sequence.ticket(), HERE)
    holder, turn = waiting(sequence)
    await turn
    sequence.failed(in_flight)
    assert not sequence.may_depart(holder, THERE)
    sequence.release()
    again = asyncio.ensure_future(sequence.turn(holder))
    await settle()
    assert not again.done()
    await sequence.turn(in_flight.ticket)
    assert sequence.may_depart(in_flight.ticket, THERE)
    sequence.depart(in_flight.ticket, THERE)
    sequence.release()
    await again


async def test_a_new_connection_waits_for_what_is_under_way_on_the_old_one() -> None:
    """The one with the turn has a new connection while older sends may still arrive over the old one."""
    sequence = SendSequence(QUEUE)
    in_flight = sequence.depart(sequence.ticket(), HERE)
    holder, turn = waiting(sequence)
    await turn
    assert not sequence.may_depart(holder, THERE)
    sequence.release()
    again = asyncio.ensure_future(sequence.turn(holder))
    await settle()
    assert not again.done()
    sequence.settled(in_flight)
    await again
    assert sequence.may_depart(holder, THERE)
    assert sequence.depart(holder, THERE)[:2] == (1, 0)


async def test_a_recalled_send_frees_its_number() -> None:
    """A message that is too large for a frame is never sent; the next one takes its number, and no other send fails."""
    sequence = SendSequence(QUEUE)
    first = sequence.depart(sequence.ticket(), HERE)
    sequence.recall(sequence.depart(sequence.ticket(), HERE))
    assert sequence.depart(sequence.ticket(), HERE)[:2] == (0, 1)
    with pytest.raises(AssertionError, match="others have left since"):
        sequence.recall(first)


@pytest.mark.parametrize(
    "moment", ["before its turn", "with the turn on its way", "given up on the way", "failed on the way"]
)
async def test_a_cancelled_caller_makes_room(moment: str) -> None:
    """At whatever point of its wait: the next one gets the turn, and no ticket stays behind."""
    sequence = SendSequence(QUEUE)
    first, first_turn = waiting(sequence)
    await first_turn
    second, second_turn = waiting(sequence)
    await settle()
    if moment == "failed on the way":
        sequence.give_up(first)
    elif moment != "before its turn":
        sequence.leave(first)
    if moment != "before its turn":
        sequence.release()  # the second's future is done, its task has not run yet
    if moment == "given up on the way":
        sequence.give_up(0)
    second_turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second_turn
    if moment == "before its turn":
        sequence.leave(first)
        sequence.release()
    third, third_turn = waiting(sequence)
    await settle()
    assert third_turn.done()
    assert sequence.may_depart(third, HERE)
    sequence.depart(third, HERE)
    sequence.release()
    assert sequence.is_free_for(HERE)
    assert second not in sequence._held


async def test_a_send_takes_along_those_that_wait_behind_it() -> None:
    """In call order, up to the first that does not fit or must leave by itself; the turn comes to that one later."""
    sequence = SendSequence(QUEUE)
    first, turn = waiting(sequence, "a")
    await turn
    others = [waiting(sequence, send)[1] for send in ("b", "c", "too large", "d")]
    await settle()
    sequence.depart(first, HERE)
    sequence.take_along(HERE, lambda send: send != "too large")
    await settle()
    assert [task.done() for task in others] == [True, True, False, False]
    assert [task.result() for task in others[:2]] == [(0, 1, first + 1), (0, 2, first + 2)]
    sequence.release()
    await settle()
    assert others[2].result() is None
    (_, alone), (_, behind) = waiting(sequence), waiting(sequence, "e")
    sequence.depart(first + 3, HERE)
    sequence.take_along(HERE, lambda _: True)
    await settle()
    assert [others[3].done(), alone.done(), behind.done()] == [True, False, False]
    alone.cancel()
    behind.cancel()


async def test_one_that_was_taken_along_and_is_cancelled() -> None:
    """Its message is on its way: the next send waits until all that left with it are settled."""
    sequence = SendSequence(QUEUE)
    first, turn = waiting(sequence, "a")
    await turn
    _, along = waiting(sequence, "b")
    await settle()
    number = sequence.depart(first, HERE)
    sequence.take_along(HERE, lambda _: True)
    along.cancel()
    with pytest.raises(asyncio.CancelledError):
        await along
    _, later = waiting(sequence)
    sequence.release()
    await settle()
    assert not later.done()
    sequence.settled(number)
    await later


async def test_none_is_taken_along_while_a_failure_is_not_known() -> None:
    """Callers that must fail are told first; a send that is called after that failure waits for this."""
    sequence = SendSequence(QUEUE)
    first, turn = waiting(sequence)
    await turn
    _, failing = waiting(sequence)
    await settle()
    asked: list[object] = []

    def takes(send: object) -> bool:
        asked.append(send)
        return True

    _, later = waiting(sequence, "c")
    asyncio.get_running_loop().call_soon(sequence.take_along, HERE, takes)  # `later` waits by then
    sequence.give_up(first)
    with pytest.raises(SequenceBrokenError):
        await failing
    assert asked == []
    sequence.release()
    assert await later is None


async def test_a_search_for_a_send_begins_behind_what_was_stored_before_it() -> None:
    """Answers may come in another order. One to a later send says nothing about where the first is."""
    sequence = SendSequence(QUEUE)
    peer = object()
    numbers = [sequence.depart_at_once(peer) for _ in range(3)]
    first, second, third = [number for number in numbers if number is not None]
    assert sequence.search_from(first.ticket) == 0
    sequence.settled(first, 40)
    assert sequence.search_from(second.ticket) == 41
    assert sequence.search_from(third.ticket) == 41
    sequence.settled(third, 42)
    assert sequence.search_from(second.ticket) == 0
    sequence.failed(second)
    assert sequence.is_free_for(peer) is False
