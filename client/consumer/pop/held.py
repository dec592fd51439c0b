"""What a consumer in POP mode holds: deliveries without an answer, in lanes. Synchronous.

The messages of a lane are handled in the order of their arrival, one listener call at a time.
"""

import asyncio
from collections import deque
from collections.abc import Hashable, Iterator, Sequence

from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.client.consumer.pop_calls import Delivery
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.selector import KeyOf

__all__ = ["Held", "HeldMessages", "Lane", "Place"]

_Name = tuple[str, str, int, int, int]  # topic, broker, queue id, kind of topic, queue offset


class Place:
    """What one loop of pops reads: a queue of a topic at a broker, or with the id -1 all of them.

    Attributes:
        count: Messages of it that are held.
        is_over: Nothing more is asked for.
    """

    __slots__ = ("_room", "broker_name", "count", "is_over", "queue_id", "topic")

    def __init__(self, topic: str, broker_name: str, queue_id: int) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.count = 0
        self.is_over = False
        self._room = asyncio.Event()

    def __str__(self) -> str:
        return str(MessageQueue(self.topic, self.broker_name, self.queue_id))

    def left(self, count: int) -> None:
        self.count -= count
        self._room.set()

    async def wait_for_room(self) -> None:
        """Until something is held no more, or `end` is called."""
        self._room.clear()
        await self._room.wait()

    def end(self) -> None:
        self.is_over = True
        self._room.set()


class Lane:
    """Messages that are handled one after the other.

    Attributes:
        running: Those of the listener call that runs; they are no longer in `waiting`.
        is_started: A worker has it, or will have it.
    """

    __slots__ = ("is_started", "key", "running", "waiting")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.waiting: deque[Held] = deque()
        self.running: list[Held] = []
        self.is_started = False

    def take(self, count_max: int) -> list["Held"]:
        """The next messages for one call: they are of one queue."""
        queue = self.waiting[0].queue
        while self.waiting and len(self.running) < count_max and self.waiting[0].queue == queue:
            self.running.append(self.waiting.popleft())
        return self.running

    def put_back(self, held: Sequence["Held"]) -> None:
        """Those of `running` that are to be handled again come first again."""
        self.waiting.extendleft(reversed(held))


class Held:
    """One message that this client has.

    Attributes:
        delivery: The newest delivery of it.
        until_ns: So long its delivery lasts for sure, by this client's monotonic clock.
        is_first: Nothing was before it in its lane when it came.
        is_lost: The delivery has ended, and another client may have the message.
        is_handled: The listener is through with it: its delivery is not renewed any more.
    """

    __slots__ = (
        "delivery",
        "is_first",
        "is_handled",
        "is_lost",
        "lane",
        "message",
        "name",
        "place",
        "queue",
        "until_ns",
    )

    def __init__(self, place: Place, delivery: Delivery, until_ns: int) -> None:
        receipt = delivery.receipt
        self.place = place
        self.delivery = delivery
        self.message: MessageExt = delivery.message
        self.message.reconsume_times = delivery.times_before
        self.queue = MessageQueue(place.topic, receipt.broker_name, receipt.queue_id)
        self.name: _Name = (
            place.topic,
            receipt.broker_name,
            receipt.queue_id,
            receipt.topic_kind,
            receipt.queue_offset,
        )
        self.until_ns = until_ns
        self.is_first = False
        self.is_lost = False
        self.is_handled = False
        self.lane: Lane | None = None

    def delivered_again(self, delivery: Delivery, until_ns: int) -> None:
        """The answers are for this delivery now. A call that runs goes on."""
        self.delivery, self.until_ns, self.is_lost = delivery, until_ns, False
        self.message.reconsume_times = max(self.message.reconsume_times, delivery.times_before)


class HeldMessages:
    """The table of what is held.

    Args:
        batch_max: So many messages one call gets at most.
    """

    def __init__(self, ordering: OrderingName, key_of: KeyOf, batch_max: int) -> None:
        self._ordering = ordering
        self._key_of = key_of
        self._batch_max = batch_max
        self._table: dict[_Name, Held] = {}
        self._lanes: dict[Hashable, Lane] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._table.values()))

    def take(self, place: Place, deliveries: Sequence[Delivery], until_ns: int) -> list[Lane]:
        """Take what a pop brought. A message that is held is not taken twice: its newest delivery counts.

        Returns:
            The lanes that must be given to a worker now.
        """
        started: list[Lane] = []
        for delivery in deliveries:
            held = Held(place, delivery, until_ns)
            known = self._table.get(held.name)
            if known is not None:
                known.delivered_again(delivery, until_ns)
                continue
            self._table[held.name] = held
            place.count += 1
            lane = held.lane = self._lane_of(held, started)
            held.is_first = not lane.waiting and not lane.running
            lane.waiting.append(held)
            if not lane.is_started:
                lane.is_started = True
                started.append(lane)
        return started

    def _lane_of(self, held: Held, started: Sequence[Lane]) -> Lane:
        if self._ordering == "none":
            last = started[-1] if started else None
            if last is None or last.waiting[0].queue != held.queue or len(last.waiting) >= self._batch_max:
                return Lane(None)
            return last
        key = self._key_of(held.message) if self._ordering == "key" else None
        # A key that moves to another queue, since the topic got more of them, stays in order here. Messages without
        # a key keep the order of their queue.
        name: Hashable = held.queue if key is None else (held.queue.topic, key)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        return lane

    def forget(self, held: Held) -> None:
        """It is answered, or lost."""
        if self._table.get(held.name) is held:
            del self._table[held.name]
            held.place.left(1)

    def clear(self, lane: Lane) -> list[Held]:
        """Forget what waits in a lane; returned. What comes then does not wait for the lane's next attempt."""
        waiting = list(lane.waiting)
        lane.waiting.clear()
        for held in waiting:
            self.forget(held)
        if not lane.running:
            self._leave(lane)
        return waiting

    def rest(self, lane: Lane) -> None:
        """A worker leaves an empty lane."""
        lane.is_started = False
        self._leave(lane)

    def _leave(self, lane: Lane) -> None:
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
