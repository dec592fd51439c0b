"""A send lane: the sends of one producer to one queue, kept in call order whatever happens to each (DESIGN, "What
order means").

To a Lockstep broker the sends of a lane are numbered and any number may be in flight: the broker refuses one whose
predecessor it did not store. To any other broker, whose threads may swap two sends of one connection, the next one
leaves when the one before it was answered. When a send fails, a new generation of numbers begins: nothing leaves
before every send of the old one is settled, and the broker refuses whatever of it still arrives. Sends that were
called before the failure was known, and had not left, fail with it.
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

    Take a `ticket` when called. Leave at once if `free_for(peer)`; else `ground` the ticket and wait for its `turn`.
    `depart` gives the number; exactly one of `settled` and `broke` follows. A broken send stays grounded, and holds
    up all later ones, until it departs again or is given up.
    """

    __slots__ = (
        "_gone",
        "_grounded",
        "_held",
        "_in_flight",
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
        self._held = False  # somebody has the turn
        self._grounded: list[int] = []  # a heap of the tickets called and not in flight
        self._gone: set[int] = set()  # those of them that were given up, until they come to its top
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def free_for(self, peer: object) -> bool:
        """May a send that was called just now leave over `peer` without waiting for anybody?"""
        idle = not self._held and not self._grounded and not self._stale
        return idle and (peer is self.peer or not self._in_flight)

    def ground(self, ticket: int) -> None:
        heapq.heappush(self._grounded, ticket)

    async def turn(self, ticket: int) -> None:
        """Wait until every earlier caller has left and no broken send is unsettled; `release` must follow.

        Raises LaneBrokenError when an earlier send was given up meanwhile.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self._admit()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._held = False  # the turn came and nobody is there to take it
            self._leave(ticket)
            raise

    def release(self) -> None:
        self._held = False
        self._admit()

    def depart(self, ticket: int, peer: object) -> LaneNumber:
        """The number of a send that leaves now over `peer`. A new connection starts a new generation."""
        assert not self._stale, "a send of a broken generation is not settled yet"
        if self._grounded:
            assert self._grounded[0] == ticket, "an earlier send has not left yet"
            heapq.heappop(self._grounded)
        if peer is not self.peer:
            if self.peer is not None:
                self._renew()
            self.peer = peer
        number = LaneNumber(self.generation, self.sequence, ticket)
        self.sequence += 1
        self._in_flight += 1
        return number

    def settled(self, number: LaneNumber) -> None:
        """The broker answered that it stored the message, or the caller no longer wants to know."""
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

    def give_up(self, ticket: int) -> None:
        """A grounded send failed for good: those after it that wait to leave must not overtake it."""
        later = sorted(waiting for waiting in self._waiting if waiting > ticket)
        for waiting in later:
            future = self._waiting.pop(waiting)
            self._gone.add(waiting)
            if not future.done():
                future.set_exception(LaneBrokenError())
        self._leave(ticket)

    def _leave(self, ticket: int) -> None:
        self._waiting.pop(ticket, None)
        self._gone.add(ticket)
        self._admit()

    def _renew(self) -> None:
        self.generation += 1
        self.sequence = 0
        self._stale = self._in_flight

    def _admit(self) -> None:
        grounded = self._grounded
        while grounded and grounded[0] in self._gone:
            self._gone.remove(heapq.heappop(grounded))
        if not grounded or self._held or self._stale:
            return
        future = self._waiting.pop(grounded[0], None)
        if future is not None and not future.done():
            self._held = True
            future.set_result(None)
