"""Messages for a time: they wait in a topic of their own until then, in any order (docs/wire.md 18.7).

RocketMQ 5 keeps them in files of a timing wheel. Here a queue of the topic is the whole state: its entries have the
times, and a start makes a heap of them again. Deliveries are in the order of time, and of the queue among equal times,
so one place says what was delivered.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from lockstep.broker.messages.delays.service import DAMAGED_RETRY_MS, DelayedPlace, delivered_record, java_number
from lockstep.broker.messages.stored import messages_of
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.names import TIMER_TOPIC
from lockstep.store import GetStatus, MessageStore, Record

__all__ = ["TIMER_QUEUE", "TimerPlace", "TimerRefused", "Timers", "recall_record", "timer_of"]

TIMER_QUEUE: Final = 0  # of messages
_RECALLS: Final = 1  # the queue of recalls
_READ_AT_ONCE: Final = 4096
_MS_PER_SECOND: Final = 1000
_LONG_DIGITS_MAX: Final = 19
# A place is one int, its time above these bits: a million of tuples would take 100 MB more, and the collector's time.
_OFFSET_BITS: Final = 44
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


class TimerRefused(Exception):
    """A message cannot wait; the text says why. `is_full`: because too many wait."""

    def __init__(self, text: str, *, is_full: bool = False) -> None:
        super().__init__(text)
        self.is_full = is_full


class TimerPlace(NamedTuple):
    """A message in the order of delivery: epoch ms, and its offset in the queue of messages."""

    deliver_at_ms: int
    queue_offset: int


class Timers:
    """Stores and delivers messages for a time.

    Attributes:
        next_due_ms: Epoch ms when the earliest message is due; None when there is none.
        delivered: All messages up to this place were delivered, recalled or passed over. None: no message was.
        on_skipped, is_gone, on_gone: As of DelayService, with level 0.
    """

    def __init__(self, store: MessageStore, delay_max_ms: int, count_max: int) -> None:
        """
        Args:
            delay_max_ms: A message that asks for more is refused.
            count_max: So many messages and recalls may wait.
        """
        self._store = store
        self._delay_max_ms = delay_max_ms
        self._count_max = count_max
        self._waiting: list[int] = []  # a heap of places
        self._recalled: dict[int, set[tuple[str, str]]] = {}  # time -> (topic, unique key) of messages
        self._recall_times: list[int] = []  # a heap
        self._recall_count = 0
        self.next_due_ms: int | None = None
        self.delivered: TimerPlace | None = None
        self.on_skipped: Callable[[int, int], None] = lambda _level, _offset: None
        self.is_gone: Callable[[str, int], bool] = lambda _topic, _log_offset: False
        self.on_gone: Callable[[str, int, int], None] = lambda _topic, _level, _offset: None

    def __len__(self) -> int:
        return len(self._waiting)

    # Storing -------------------------------------------------------------------------------------------------

    def place(self, properties: dict[str, str], topic: str, queue_id: int, now_ms: int) -> DelayedPlace | None:
        """Where a message for a time is stored now; None for one that does not wait. Call `wait` after storing it.

        Adds its time, and the real topic and queue to `properties`. As in RocketMQ a message that has a time of
        delivery was delivered, and does not wait again.

        Raises:
            TimerRefused: The time is none or too late, or too many messages wait.
        """
        if names.TIMER_OUT_MS in properties:
            return None
        try:
            at_ms = _asked_ms(properties, now_ms)
        except ValueError:
            raise self._illegal() from None
        # After the clock was set back, what is due before the last delivery does not wait: the place would not say
        # that it waits.
        if at_ms is None or at_ms <= max(now_ms, self._delivered_ms):
            return None
        if at_ms - now_ms > self._delay_max_ms:
            raise self._illegal()
        self.check_room()
        properties[names.TIMER_OUT_MS] = str(at_ms)
        properties[names.REAL_TOPIC] = topic
        properties[names.REAL_QID] = str(queue_id)
        return DelayedPlace(TIMER_TOPIC, TIMER_QUEUE, at_ms)

    def _illegal(self) -> TimerRefused:
        """RocketMQ's text."""
        limit = f"the delay time should not be bigger than the max delay {self._delay_max_ms}ms"
        rest = "or if set del msg, the delay time should be bigger than the current time"
        return TimerRefused(f"timer message illegal, {limit}; {rest}")

    def check_room(self) -> None:
        """Raises TimerRefused when too many messages and recalls wait."""
        if len(self._waiting) + self._recall_count >= self._count_max:
            text = f"too many messages wait for their time: the setting timer_messages_max is {self._count_max}"
            raise TimerRefused(text, is_full=True)

    def wait(self, place: TimerPlace) -> None:
        """A message was stored in the topic."""
        heappush(self._waiting, _packed(*place))
        self.set_next()

    def set_next(self) -> None:
        """Call when messages of the topic became readable, too: the earliest may be one of them."""
        self.next_due_ms = self._waiting[0] >> _OFFSET_BITS if self._waiting else None

    def recall(self, deliver_at_ms: int, topic: str, unique_key: str) -> None:
        """A mark of `recall_record` was stored: this message is not delivered."""
        if deliver_at_ms not in self._recalled:
            heappush(self._recall_times, deliver_at_ms)
        known = self._recalled.setdefault(deliver_at_ms, set())
        self._recall_count += (topic, unique_key) not in known
        known.add((topic, unique_key))

    # Delivering ----------------------------------------------------------------------------------------------

    def due(self, now_ms: int, count_max: int) -> Iterator[Record]:
        """Due messages, as records for their own topics. Each counts as delivered when the next one is requested.

        So a message that could not be stored stays, with those behind it. Passed over are those that are recalled, have
        no valid target or are for deleted topics. A message that is not on the disk yet, or is damaged, holds up the
        others: until it can be read, or the store has repaired or skipped it.

        Args:
            count_max: Of messages that are looked at.
        """
        retry_at_ms = None
        for _ in range(count_max):
            if not self._waiting or self._waiting[0] >> _OFFSET_BITS > now_ms:
                break
            place = _unpacked(self._waiting[0])
            found = self._store.get(TIMER_TOPIC, TIMER_QUEUE, place.queue_offset, 1, None)
            is_damaged = found.status is GetStatus.OFFSET_FOUND_NULL
            if is_damaged or place.queue_offset >= self._store.max_offset(TIMER_TOPIC, TIMER_QUEUE):
                retry_at_ms = now_ms + DAMAGED_RETRY_MS
                break
            record = self._record(place, found.body, now_ms)
            if record is not None:
                yield record
            heappop(self._waiting)
            self._passed(place)
        self._forget_recalls(now_ms)
        self.set_next()
        if retry_at_ms is not None:
            self.next_due_ms = retry_at_ms

    def _record(self, place: TimerPlace, body: bytes, now_ms: int) -> Record | None:
        """None for what is passed over."""
        message = decode_messages(body, unzip=False)[0] if body else None
        record = None if message is None else delivered_record(message, now_ms)
        if message is None or record is None:
            self.on_skipped(0, place.queue_offset)
            return None
        key = record.topic, message.properties.get(names.UNIQ_KEY, "")
        if key in self._recalled.get(place.deliver_at_ms, ()):
            return None
        if self.is_gone(record.topic, message.commit_log_offset):
            self.on_gone(record.topic, 0, place.queue_offset)
            return None
        # By it a start finds what was delivered.
        return record._replace(prepared_transaction_offset=message.commit_log_offset)

    def _passed(self, place: TimerPlace) -> None:
        self.delivered = place if self.delivered is None else max(self.delivered, place)

    def _forget_recalls(self, now_ms: int) -> None:
        """Those whose messages are delivered or passed over."""
        end_ms = now_ms + 1
        if self._waiting:
            end_ms = min(end_ms, self._waiting[0] >> _OFFSET_BITS)
        while self._recall_times and self._recall_times[0] < end_ms:
            self._recall_count -= len(self._recalled.pop(heappop(self._recall_times)))

    @property
    def _delivered_ms(self) -> int:
        return -1 if self.delivered is None else self.delivered.deliver_at_ms

    # Starting ------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Read again what waits in the store. `delivered` is of an earlier run."""
        done = -1 if self.delivered is None else _packed(*self.delivered)
        self._waiting = [place for place in self._stored() if place > done]
        heapify(self._waiting)
        for mark in messages_of(self._store, TIMER_TOPIC, _RECALLS):
            at_ms = timer_of(mark.properties)
            if at_ms is not None and at_ms >= self._delivered_ms:
                properties = mark.properties
                self.recall(at_ms, properties.get(names.REAL_TOPIC, ""), properties.get(names.TIMER_DEL_UNIQKEY, ""))
        self.set_next()

    def _stored(self) -> Iterator[int]:
        """The places of all messages in the store."""
        store = self._store
        offset = store.min_offset(TIMER_TOPIC, TIMER_QUEUE)
        while entries := store.entries(TIMER_TOPIC, TIMER_QUEUE, offset, _READ_AT_ONCE):
            for queue_offset, entry in enumerate(entries, offset):
                at_ms: int | None = entry.tags_code
                if entry.size_bytes <= 0:
                    # A damaged entry tells no time. Its message does, once it is found.
                    body = store.get(TIMER_TOPIC, TIMER_QUEUE, queue_offset, 1, None).body
                    at_ms = timer_of(decode_messages(body, unzip=False)[0].properties) if body else None
                if at_ms is not None:
                    yield _packed(at_ms, queue_offset)
            offset += len(entries)

    def in_doubt(self, last_ms: int) -> dict[int, int]:
        """Waiting messages that may have been delivered by `last_ms`: commit log offset -> place.

        Args:
            last_ms: Store time of the last message of the log, in epoch ms.
        """
        found = {}
        for place in self._waiting:
            if place >> _OFFSET_BITS <= last_ms:
                for entry in self._store.entries(TIMER_TOPIC, TIMER_QUEUE, place & _OFFSET_MASK, 1):
                    found[entry.commit_log_offset] = place
        return found

    def count_delivered(self, places: Collection[int]) -> None:
        """Count these of `in_doubt` as delivered."""
        self._keep(lambda place: place not in places)
        for place in places:
            self._passed(_unpacked(place))

    def drop_before(self, queue_offset: int) -> int:
        """The store dropped the messages before this offset. Returns how many of them waited."""
        before = len(self._waiting)
        self._keep(lambda place: place & _OFFSET_MASK >= queue_offset)
        return before - len(self._waiting)

    def _keep(self, is_kept: Callable[[int], bool]) -> None:
        self._waiting = [place for place in self._waiting if is_kept(place)]
        heapify(self._waiting)
        self.set_next()

    def waiting_queues(self) -> set[tuple[str, int]]:
        """(topic, queue id) of all messages that wait."""
        queues = set()
        for place in self._waiting:
            body = self._store.get(TIMER_TOPIC, TIMER_QUEUE, place & _OFFSET_MASK, 1, None).body
            record = delivered_record(decode_messages(body, unzip=False)[0], 0) if body else None
            if record is not None:
                queues.add((record.topic, record.queue_id))
        return queues


def _packed(deliver_at_ms: int, queue_offset: int) -> int:
    return deliver_at_ms << _OFFSET_BITS | queue_offset


def _unpacked(place: int) -> TimerPlace:
    return TimerPlace(place >> _OFFSET_BITS, place & _OFFSET_MASK)


def timer_of(properties: Mapping[str, str]) -> int | None:
    """The time, in epoch ms, of a message of the topic; None when another program wrote it."""
    try:
        return java_number(names.TIMER_OUT_MS, properties.get(names.TIMER_OUT_MS, ""), _LONG_DIGITS_MAX)
    except ValueError:
        return None


def _asked_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """Epoch ms that a message asks for; None when it asks for no time. Raises ValueError."""
    for name in names.TIMERS:
        if name in properties:
            asked = java_number(name, properties[name], _LONG_DIGITS_MAX)
            if name == names.TIMER_DELIVER_MS:
                return asked
            return now_ms + asked * (_MS_PER_SECOND if name == names.TIMER_DELAY_SEC else 1)
    return None


def recall_record(store: MessageStore, topic: str, unique_key: str, deliver_at_ms: int, now_ms: int) -> Record:
    """A mark: the message of this topic with this id and time is not to be delivered."""
    host, port = store.store_host, store.store_port
    found = {names.TIMER_DEL_UNIQKEY: unique_key, names.REAL_TOPIC: topic, names.TIMER_OUT_MS: str(deliver_at_ms)}
    properties = encode_properties(found).encode("utf-8", "replace")
    return Record(TIMER_TOPIC, _RECALLS, 0, 0, now_ms, host, port, now_ms, 0, 0, b"", properties, deliver_at_ms)
