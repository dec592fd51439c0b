"""SendSequence: the sends of one producer to one queue, kept in call order (docs/order.md 2). No messages, no sockets.

A Lockstep broker gets the sends of a sequence numbered, and any number of them may be in flight: it refuses a send
whose predecessor it did not store. Any other broker may swap two sends of one connection, so there each send leaves
after the one before it was answered. Sends that wait may leave with it in one request: `take_along`.

When a send fails, a new generation of numbers begins. Nothing leaves before every send of the old generation is
settled, and the broker refuses what arrives of it later. Sends that were called before the failure was known, and have
not left, fail too. Later sends leave after all of these were told.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

from lockstep.protocol.model import MessageQueue
from lockstep.protocol.tuples import new_tuple

__all__ = ["SendSequence", "SequenceBrokenError", "SequenceNumber"]


class SequenceNumber(NamedTuple):
    """The number that a send carries to the broker. `ticket` is its place in call order."""

    generation: int
    sequence: int
    ticket: int


class SequenceBrokenError(Exception):
    """An earlier send of the sequence failed finally while this one waited to leave."""


class SendSequence:
    """Turns and numbers of one sequence.

    How to use it: take a `ticket` in call order. `depart_at_once` if that is possible; else `hold` the ticket, wait for
    its `turn`, and leave when `may_depart` returns True. `depart` returns the number. Then exactly one of `settled`,
    `failed`, `abandon` and `recall` must follow. A failed send is held again: all later sends wait until it departs
    again, is given up, or may `leave`.
    """

    __slots__ = (
        "_departing",
        "_failing",
        "_heap",
        "_held",
        "_in_flight",
        "_joinable",
        "_stale",
        "_stored_offset",
        "_stored_ticket",
        "_tickets",
        "_turn_taken",
        "_waiting",
        "generation",
        "peer",
        "queue",
        "sequence",
        "throttled",
    )

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.generation = 0
        self.sequence = 0
        self.peer: object = None  # the connection of the present generation
        self.throttled = False  # the broker's flow control has refused a send
        self._tickets = 0
        self._in_flight = 0
        self._stale = 0  # sends in flight of an older generation
        self._stored_ticket = 0  # of the send that was answered last as stored
        self._stored_offset = -1
        self._failing = 0  # callers that must fail with an earlier send and do not know it yet
        self._turn_taken = False
        self._departing = 0  # the ticket that has the turn
        # Not a SortedSet of sortedcontainers: with it a send that waits costs 1.0 us of processor time more, a tenth to
        # a fifth of its way through a sequence, and a new sequence 9 us instead of 1.
        self._heap: list[int] = []  # tickets that were called and are not in flight, and old ones
        self._held: set[int] = set()  # those of _heap that still count
        self._waiting: dict[int, asyncio.Future[SequenceNumber | None]] = {}
        self._joinable: dict[int, object] = {}  # what an earlier frame may take, by the ticket that waits

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def is_free_for(self, peer: object) -> bool:
        """Return whether a send that is called now may leave over `peer` without waiting."""
        # Any number of sends may be in flight over one connection: the broker checks their numbers (docs/order.md 2).
        # Over another connection a send could overtake those.
        idle = not (self._turn_taken or self._held or self._stale or self._failing)
        return idle and (peer is self.peer or not self._in_flight)

    def depart_at_once(self, peer: object) -> SequenceNumber | None:
        """`ticket` and `depart` in one call, for the common case. Returns None when the send must wait."""
        if not self.is_free_for(peer):
            return None
        if peer is not self.peer:
            self._move_to(peer)
        self._tickets = ticket = self._tickets + 1
        sequence = self.sequence
        self.sequence = sequence + 1
        self._in_flight += 1
        return new_tuple(SequenceNumber, (self.generation, sequence, ticket))

    def hold(self, ticket: int) -> None:
        heapq.heappush(self._heap, ticket)
        self._held.add(ticket)

    async def turn(self, ticket: int, send: object = None) -> SequenceNumber | None:
        """Wait until every earlier send has left and no failed send is unsettled.

        A cancelled caller leaves the sequence.

        Args:
            send: What an earlier send may add to its frame. None: this one leaves by itself.

        Returns:
            None: this send has the turn, and `release` must follow. A number: an earlier send took it along.

        Raises:
            SequenceBrokenError: an earlier send was given up meanwhile.
        """
        # The ticket went with an earlier send that was given up.
        if ticket not in self._held:
            raise SequenceBrokenError
        future: asyncio.Future[SequenceNumber | None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        if send is not None:
            self._joinable[ticket] = send
        # Perhaps it is this one's turn already.
        self._admit()
        try:
            return await future
        except SequenceBrokenError:
            self._failure_known()
            raise
        except asyncio.CancelledError:
            self._waiting.pop(ticket, None)
            self.leave(ticket)
            if future.done() and not future.cancelled():
                if future.exception() is not None:
                    self._failure_known()
                elif (number := future.result()) is not None:
                    self.abandon(number)
                else:
                    # The turn was given to a caller that is gone.
                    self.release()
            raise
        finally:
            self._joinable.pop(ticket, None)

    def may_depart(self, ticket: int, peer: object) -> bool:
        """Return whether the send with the turn may leave over `peer` now. If not, it must wait for another turn.

        While it waited for the connection an earlier send may have failed, and sends of the previous connection may be
        unsettled.

        Raises:
            SequenceBrokenError: an earlier send was given up.
        """
        if self._departing != ticket:
            raise SequenceBrokenError
        self._move_to(peer)
        return not self._stale and self._first() == ticket

    def release(self) -> None:
        """End the turn."""
        self._turn_taken = False
        self._departing = 0
        self._admit()

    def depart(self, ticket: int, peer: object) -> SequenceNumber:
        """Return the number of a send that leaves over `peer` now. A new connection begins a new generation."""
        if self._held:
            assert self._first() == ticket, "an earlier send has not left yet"
            self._held.discard(heapq.heappop(self._heap))
            self._departing = 0
        self._move_to(peer)
        assert not self._stale, "a send of an older generation is not settled yet"
        number = SequenceNumber(self.generation, self.sequence, ticket)
        self.sequence += 1
        self._in_flight += 1
        return number

    def take_along(self, peer: object, takes: Callable[[Any], bool]) -> None:
        """Let sends that wait leave with the one that has just departed, in order.

        Args:
            takes: Gets the `send` that was given to `turn`, and returns whether the frame takes it. If not, this send
                and all later ones wait on.
        """
        while not self._failing:
            ticket = self._first()
            future, send = self._waiting.get(ticket), self._joinable.get(ticket)
            if future is None or future.done() or send is None or not takes(send):
                return
            del self._waiting[ticket]
            future.set_result(self.depart(ticket, peer))

    def recall(self, number: SequenceNumber) -> None:
        """Undo `depart`: the send could not leave, and nothing left after it."""
        assert (number.generation, number.sequence) == (self.generation, self.sequence - 1), "others have left since"
        # The next send gets this number, so that the broker sees no gap.
        self.sequence -= 1
        self._in_flight -= 1

    def search_from(self, ticket: int) -> int:
        """The queue offset at or behind which an earlier attempt of a send is stored, if it is stored.

        It is behind every send that left before it. When a later send was answered first, it may be anywhere.
        """
        return self._stored_offset + 1 if self._stored_ticket < ticket else 0

    def settled(self, number: SequenceNumber, queue_offset: int = -1) -> None:
        """The broker stored the message, or no other send depends on it.

        Args:
            queue_offset: where it is in the queue; -1: nowhere, or in another queue, as a delayed one.
        """
        if queue_offset >= 0:
            self._stored_ticket, self._stored_offset = number.ticket, queue_offset
        self._in_flight -= 1
        if number.generation != self.generation:
            # When the last send of the older generation has ended, the first one that waits may leave.
            self._stale -= 1
            self._admit()

    def failed(self, number: SequenceNumber) -> None:
        """The message was refused, or its outcome is unknown: begin a new generation."""
        self.hold(number.ticket)
        # Sends of this generation that follow in flight are refused by the broker. They come again, behind this one.
        if number.generation == self.generation:
            self.renew()
        self.settled(number)

    def abandon(self, number: SequenceNumber) -> None:
        """The caller is gone and the outcome will stay unknown: later numbers must not depend on this one."""
        if number.generation == self.generation:
            self.renew()
        self.settled(number)

    def give_up(self, ticket: int) -> None:
        """A held send failed finally. Sends after it that have not left must fail, or they would overtake it."""
        for waiting in sorted(waiting for waiting in self._waiting if waiting > ticket):
            future = self._waiting.pop(waiting)
            self._held.discard(waiting)
            if not future.done():
                self._failing += 1
                future.set_exception(SequenceBrokenError())
        if self._departing > ticket:
            self._held.discard(self._departing)
            self._departing = 0
        self.leave(ticket)

    def leave(self, ticket: int) -> None:
        """A held send left without a number, or will not leave: later sends need not wait for it."""
        self._held.discard(ticket)
        self._admit()

    def _failure_known(self) -> None:
        self._failing -= 1
        self._admit()

    def _move_to(self, peer: object) -> None:
        if peer is not self.peer:
            if self.peer is not None:
                self.renew()
            self.peer = peer

    def renew(self) -> None:
        """Begin a new generation."""
        self.generation += 1
        self.sequence = 0
        # What is in flight belongs to the old generation. Nothing leaves before all of it has ended.
        self._stale = self._in_flight

    def _first(self) -> int:
        """The earliest held ticket; 0 when there is none."""
        heap, held = self._heap, self._held
        while heap and heap[0] not in held:
            heapq.heappop(heap)
        return heap[0] if heap else 0

    def _admit(self) -> None:
        first = self._first()
        if not first or self._turn_taken or self._stale or self._failing:
            return
        future = self._waiting.pop(first, None)
        if future is not None and not future.done():
            self._turn_taken = True
            self._departing = first
            future.set_result(None)
