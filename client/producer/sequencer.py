"""A send lane: the sends of one producer to one queue, kept in call order whatever happens to each
(docs/order.md 2).

To a Lockstep broker the sends of a lane are numbered and any number may be in flight: the broker refuses one whose
predecessor it did not store. To any other broker, whose threads may swap two sends of one connection, the next one
leaves when the one before it was answered. When a send fails, a new generation of numbers begins: nothing leaves
before every send of the old one is settled, and the broker refuses whatever of it still arrives. Sends that were
called before the failure was known, and had not left, fail with it; later ones leave when all these have been told.
"""

import asyncio
import heapq
from typing import NamedTuple

from lockstep.protocol.model import MessageQueue

__all__ = ["LaneBrokenError", "LaneNumber", "SendLane"]


class LaneNumber(NamedTuple):
    """What a numbered send carries to the broker; `ticket` is its place in call order."""

    generation: int
    sequence: int
    ticket: int


class LaneBrokenError(Exception):
    """An earlier send of the lane failed for good while this one waited to leave."""


class SendLane:
    """Turns and numbers of one lane; it knows nothing of messages, and of connections only which one it is on.

    Take a `ticket` when called. `depart_at_once` if that goes; else `ground` the ticket, wait for its `turn`, and
    leave when it is `cleared`. `depart` gives the number; exactly one of `settled`, `broke`, `abandon` and `recall`
    follows. A broken send stays grounded, and holds up all later ones, until it departs again, is given up, or may
    `leave`.
    """

    __slots__ = (
        "_failing",
        "_grounded",
        "_held",
        "_in_flight",
        "_live",
        "_next",
        "_stale",
        "_tickets",
        "_waiting",
        "generation",
        "peer",
        "queue",
        "sequence",
    )

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.generation = 0
        self.sequence = 0
        self.peer: object = None
        self._tickets = 0
        self._in_flight = 0
        self._stale = 0  # in flight, of a generation that broke
        self._failing = 0  # callers that failed with an earlier one and have not been told yet
        self._held = False  # somebody has the turn ...
        self._next = 0  # ... and is about to depart with this ticket
        self._grounded: list[int] = []  # a heap of the tickets called and not in flight ...
        self._live: set[int] = set()  # ... those of them that still count
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def free_for(self, peer: object) -> bool:
        """May a send that was called just now leave over `peer` without waiting for anybody?"""
        idle = not (self._held or self._live or self._stale or self._failing)
        return idle and (peer is self.peer or not self._in_flight)

    def depart_at_once(self, peer: object) -> LaneNumber | None:
        """`ticket` and `depart` for the common case, that a send may leave as it is called; None when it may not."""
        return self.depart(self.ticket(), peer) if self.free_for(peer) else None

    def ground(self, ticket: int) -> None:
        heapq.heappush(self._grounded, ticket)
        self._live.add(ticket)

    async def turn(self, ticket: int) -> None:
        """Wait until every earlier caller has left and no broken send is unsettled; `release` must follow.

        Raises LaneBrokenError when an earlier send was given up meanwhile. A caller that is cancelled has left.
        """
        if ticket not in self._live:
            raise LaneBrokenError
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self._admit()
        try:
            await future
        except LaneBrokenError:
            self._told()
            raise
        except asyncio.CancelledError:
            self._waiting.pop(ticket, None)
            self.leave(ticket)
            if future.done() and not future.cancelled():
                if future.exception() is None:
                    self.release()  # the turn came and nobody is there to take it
                else:
                    self._told()
            raise

    def cleared(self, ticket: int, peer: object) -> bool:
        """May the send that has the turn leave over `peer` now?

        While it waited for the connection an earlier one may have broken, and companions on the connection before
        may be unsettled: then its turn must come anew. Raises LaneBrokenError when an earlier one was given up.
        """
        if self._next != ticket:
            raise LaneBrokenError
        self._move_to(peer)
        return not self._stale and self._first() == ticket

    def release(self) -> None:
        self._held = False
        self._next = 0
        self._admit()

    def depart(self, ticket: int, peer: object) -> LaneNumber:
        """The number of a send that leaves now over `peer`. A new connection starts a new generation."""
        if self._live:
            assert self._first() == ticket, "an earlier send has not left yet"
            self._live.discard(heapq.heappop(self._grounded))
            self._next = 0
        self._move_to(peer)
        assert not self._stale, "a send of a broken generation is not settled yet"
        number = LaneNumber(self.generation, self.sequence, ticket)
        self.sequence += 1
        self._in_flight += 1
        return number

    def recall(self, number: LaneNumber) -> None:
        """It could not leave after all, and nothing left after it: its number is free again."""
        assert (number.generation, number.sequence) == (self.generation, self.sequence - 1), "others have left since"
        self.sequence -= 1
        self._in_flight -= 1

    def settled(self, number: LaneNumber) -> None:
        """The broker answered that it stored the message, or nothing depends on whether it did."""
        self._in_flight -= 1
        if number.generation != self.generation:
            self._stale -= 1
            self._admit()

    def broke(self, number: LaneNumber) -> None:
        """The message was refused, or nobody knows: a new generation begins once its companions are settled."""
        self.ground(number.ticket)
        if number.generation == self.generation:
            self._renew()
        self.settled(number)

    def abandon(self, number: LaneNumber) -> None:
        """Its caller has gone, and nobody will hear whether it is stored: later numbers must not depend on it."""
        if number.generation == self.generation:
            self._renew()
        self.settled(number)

    def give_up(self, ticket: int) -> None:
        """A grounded send failed for good: those after it that have not left must not overtake it."""
        for waiting in sorted(waiting for waiting in self._waiting if waiting > ticket):
            future = self._waiting.pop(waiting)
            self._live.discard(waiting)
            if not future.done():
                self._failing += 1
                future.set_exception(LaneBrokenError())
        if self._next > ticket:
            self._live.discard(self._next)
            self._next = 0
        self.leave(ticket)

    def leave(self, ticket: int) -> None:
        """A grounded send left without a number, or does not want to leave any more; it holds up nobody."""
        self._live.discard(ticket)
        self._admit()

    def _told(self) -> None:
        self._failing -= 1
        self._admit()

    def _move_to(self, peer: object) -> None:
        if peer is not self.peer:
            if self.peer is not None:
                self._renew()
            self.peer = peer

    def _renew(self) -> None:
        self.generation += 1
        self.sequence = 0
        self._stale = self._in_flight

    def _first(self) -> int:
        """The earliest grounded ticket, 0 when there is none."""
        grounded, live = self._grounded, self._live
        while grounded and grounded[0] not in live:
            heapq.heappop(grounded)
        return grounded[0] if grounded else 0

    def _admit(self) -> None:
        first = self._first()
        if not first or self._held or self._stale or self._failing:
            return
        future = self._waiting.pop(first, None)
        if future is not None and not future.done():
            self._held = True
            self._next = first
            future.set_result(None)
