"""The turns and numbers of one lane, step by step; `test_send_order.py` drives it through all interleavings."""

import asyncio

import pytest

from lockstep.client.producer.sequencer import LaneBrokenError, LaneNumber, SendLane
from lockstep.protocol.model import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
HERE, THERE = object(), object()  # two connections


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def waiting(lane: SendLane) -> "tuple[int, asyncio.Task[None]]":
    """A send that is called now and waits for its turn."""
    ticket = lane.ticket()
    lane.ground(ticket)
    return ticket, asyncio.ensure_future(lane.turn(ticket))


async def test_sends_to_a_free_lane_are_numbered_in_call_order() -> None:
    """Any number may be in flight; each carries the generation and the next number."""
    lane = SendLane(QUEUE)
    numbers = []
    for _ in range(5):
        assert lane.free_for(HERE)
        numbers.append(lane.depart(lane.ticket(), HERE))
    assert [number[:2] for number in numbers] == [(0, i) for i in range(5)]
    for number in numbers:
        lane.settled(number)
    assert lane.free_for(THERE)


async def test_another_connection_is_free_only_when_nothing_is_in_flight() -> None:
    """What is under way on the old one could be overtaken on the new one."""
    lane = SendLane(QUEUE)
    number = lane.depart(lane.ticket(), HERE)
    assert lane.free_for(HERE)
    assert not lane.free_for(THERE)
    lane.settled(number)
    assert lane.free_for(THERE)
    assert lane.depart(lane.ticket(), THERE)[:2] == (1, 0), "a new connection, a new generation"


async def test_the_turn_goes_from_one_to_the_next_in_call_order() -> None:
    """Whoever waits first is not whoever called first; the ticket counts."""
    lane = SendLane(QUEUE)
    tickets = [lane.ticket() for _ in range(3)]
    for ticket in tickets:
        lane.ground(ticket)
    late_first = [asyncio.ensure_future(lane.turn(ticket)) for ticket in reversed(tickets)]
    order: list[LaneNumber] = []
    for ticket, turn in zip(tickets, reversed(late_first), strict=True):
        await settle()
        assert [task.done() for task in reversed(late_first)].count(True) == len(order) + 1
        await turn
        assert lane.cleared(ticket, HERE)
        order.append(lane.depart(ticket, HERE))
        lane.release()
    assert [number.ticket for number in order] == tickets


async def test_nothing_departs_while_a_broken_generation_is_unsettled() -> None:
    """The companions of a broken send must be settled before anything of the next generation leaves."""
    lane = SendLane(QUEUE)
    first, second, third = (lane.depart(lane.ticket(), HERE) for _ in range(3))
    lane.broke(first)
    lane.give_up(first.ticket)
    assert not lane.free_for(HERE)
    _, turn = waiting(lane)
    await settle()
    lane.settled(second)
    await settle()
    assert not turn.done()
    lane.settled(third)
    await turn
    assert lane.generation == 1


async def test_a_broken_send_holds_up_later_ones_until_it_departs_again() -> None:
    """It is the earliest, so its repeat leaves before anything that waits."""
    lane = SendLane(QUEUE)
    number = lane.depart(lane.ticket(), HERE)
    lane.broke(number)
    later, turn = waiting(lane)
    await settle()
    assert not turn.done()
    await lane.turn(number.ticket)
    assert lane.cleared(number.ticket, HERE)
    repeat = lane.depart(number.ticket, HERE)
    assert repeat == (1, 0, number.ticket)
    assert not turn.done()
    lane.release()
    await turn
    assert lane.cleared(later, HERE)
    assert lane.depart(later, HERE) == (1, 1, later)


async def test_giving_up_fails_exactly_the_later_ones_that_wait() -> None:
    """Earlier ones keep their turn, and sends called afterwards are not concerned."""
    lane = SendLane(QUEUE)
    tickets = [lane.ticket() for _ in range(4)]
    for ticket in tickets:
        lane.ground(ticket)
    turns = {ticket: asyncio.ensure_future(lane.turn(ticket)) for ticket in tickets if ticket != tickets[1]}
    await settle()
    lane.give_up(tickets[1])
    for ticket in tickets[2:]:
        with pytest.raises(LaneBrokenError):
            await turns[ticket]
    await turns[tickets[0]]
    assert lane.cleared(tickets[0], HERE)
    lane.depart(tickets[0], HERE)
    lane.release()
    assert lane.free_for(HERE)


async def test_giving_up_reaches_the_one_that_has_the_turn() -> None:
    """It waits for a connection, has not left, and was called before the failure was known."""
    lane = SendLane(QUEUE)
    in_flight = lane.depart(lane.ticket(), HERE)
    holder, turn = waiting(lane)
    await turn
    lane.broke(in_flight)
    lane.give_up(in_flight.ticket)
    with pytest.raises(LaneBrokenError):
        lane.cleared(holder, THERE)
    lane.release()
    with pytest.raises(LaneBrokenError):
        await lane.turn(holder)
    assert lane.free_for(HERE)


async def test_the_turn_is_not_kept_over_an_earlier_break() -> None:
    """When an earlier send breaks and will be repeated, the one with the turn must wait for it."""
    lane = SendLane(QUEUE)
    in_flight = lane.depart(lane.ticket(), HERE)
    holder, turn = waiting(lane)
    await turn
    lane.broke(in_flight)
    assert not lane.cleared(holder, THERE)
    lane.release()
    again = asyncio.ensure_future(lane.turn(holder))
    await settle()
    assert not again.done()
    await lane.turn(in_flight.ticket)
    assert lane.cleared(in_flight.ticket, THERE)
    lane.depart(in_flight.ticket, THERE)
    lane.release()
    await again


async def test_a_new_connection_waits_for_what_is_under_way_on_the_old_one() -> None:
    """The one with the turn has a new connection while older sends may still arrive over the old one."""
    lane = SendLane(QUEUE)
    in_flight = lane.depart(lane.ticket(), HERE)
    holder, turn = waiting(lane)
    await turn
    assert not lane.cleared(holder, THERE)
    lane.release()
    again = asyncio.ensure_future(lane.turn(holder))
    await settle()
    assert not again.done()
    lane.settled(in_flight)
    await again
    assert lane.cleared(holder, THERE)
    assert lane.depart(holder, THERE)[:2] == (1, 0)


async def test_a_recalled_send_frees_its_number() -> None:
    """A message that no frame can carry never leaves; the next one takes its place, and nobody fails for it."""
    lane = SendLane(QUEUE)
    first = lane.depart(lane.ticket(), HERE)
    lane.recall(lane.depart(lane.ticket(), HERE))
    assert lane.depart(lane.ticket(), HERE)[:2] == (0, 1)
    with pytest.raises(AssertionError, match="others have left since"):
        lane.recall(first)


@pytest.mark.parametrize("moment", ["before its turn", "with the turn on its way", "given up on the way"])
async def test_a_cancelled_caller_makes_room(moment: str) -> None:
    """At whatever point of its wait: the next one gets the turn, and no ticket stays behind."""
    lane = SendLane(QUEUE)
    first, first_turn = waiting(lane)
    await first_turn
    second, second_turn = waiting(lane)
    await settle()
    if moment != "before its turn":
        lane.leave(first)
        lane.release()  # the second's future is done, its task has not run yet
    if moment == "given up on the way":
        lane.give_up(0)
    second_turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second_turn
    if moment == "before its turn":
        lane.leave(first)
        lane.release()
    third, third_turn = waiting(lane)
    await third_turn
    assert lane.cleared(third, HERE)
    lane.depart(third, HERE)
    lane.release()
    assert lane.free_for(HERE)
    assert second not in lane._live
