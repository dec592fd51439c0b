"""Delayed messages: they are stored in the schedule topic, one queue a level, until they are due (wire.md 10.2).

All messages of a level have the same delay, so each queue is in the order of delivery, and only its head can be due.
RocketMQ polls every level ten times a second; here the earliest due time is known, and a timer is set for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from lockstep.protocol.codes import PROPERTIES_BYTES_MAX
from lockstep.protocol.errors import short_text
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.names import SCHEDULE_TOPIC
from lockstep.store import GetStatus, MessageStore, Record

__all__ = ["DAMAGED_RETRY_MS", "DelayService", "DelayedPlace", "delivered_record", "java_number", "record_of"]

_INT_DIGITS_MAX: Final = 10
DAMAGED_RETRY_MS: Final = 100
_TOPIC_BYTES_MAX: Final = 255  # of a stored message
_QUEUE_ID_MAX: Final = (1 << 31) - 1


class DelayedPlace(NamedTuple):
    """Where a message waits, and its due time in epoch ms, stored as the tag hash of the index entry."""

    topic: str
    queue_id: int
    deliver_at_ms: int


class DelayService:
    """Stores and delivers delayed messages.

    `next_due_ms`: epoch ms when the earliest message is due; None when there is none.
    `offsets`: level -> next queue offset to deliver, as in RocketMQ's delayOffset.json.
    `on_skipped`: called with the level and the queue offset of a message that cannot be delivered.
    `is_gone`: whether a message for this topic, stored at this commit log offset, was for a topic deleted since.
    `on_gone`: called with the topic, the level and the queue offset of such a message, which is not delivered.
    """

    def __init__(self, store: MessageStore, levels_ms: tuple[int, ...]) -> None:
        self._store = store
        self._levels_ms = levels_ms
        self._offsets: dict[int, int] = {}
        self.next_due_ms: int | None = None
        self.on_skipped: Callable[[int, int], None] = lambda _level, _offset: None
        self.is_gone: Callable[[str, int], bool] = lambda _topic, _log_offset: False
        self.on_gone: Callable[[str, int, int], None] = lambda _topic, _level, _offset: None

    @property
    def level_max(self) -> int:
        return len(self._levels_ms)

    @property
    def offsets(self) -> Mapping[int, int]:
        return self._offsets

    def restore(self, offsets: Mapping[int, int]) -> None:
        """Load the offsets of an earlier run."""
        self._offsets = {level: offset for level, offset in offsets.items() if 0 < level <= self.level_max}

    def cut(self) -> None:
        """After the store lost its newest messages: lower the offsets to the ends of the queues."""
        for level, offset in self._offsets.items():
            self._offsets[level] = min(offset, self._store.max_offset(SCHEDULE_TOPIC, level - 1))

    def first_in_doubt(self, last_ms: int) -> int | None:
        """The commit log offset of the oldest waiting message that may have been delivered by `last_ms`.

        All deliveries that may have happened are behind it in the log. None: there was none.

        Args:
            last_ms: Store time of the last message of the log, in epoch ms.
        """
        heads = [
            entry.commit_log_offset
            for level in self._levels
            for entry in self._store.entries(SCHEDULE_TOPIC, level - 1, self._offset(level), 1)
            if self._corrected(level, entry.tags_code, last_ms) <= last_ms
        ]
        return min(heads, default=None)

    def count_delivered(self, messages: Iterable[MessageExt]) -> int:
        """Count waiting messages as delivered whose deliveries are in the log. Returns how many.

        Args:
            messages: Delivered messages in the order of the log, from a place before which `offsets` is right.
        """
        count = 0
        for message in messages:
            level = _level_of(message)
            if 0 < level <= self.level_max:
                offset = self._waiting_of(message, level)
                if offset is not None:
                    self._offsets[level] = offset + 1
                    count += 1
        return count

    def _waiting_of(self, delivered: MessageExt, level: int) -> int | None:
        """The queue offset of the level's next deliverable message, if `delivered` is its delivery."""
        found = record_of(delivered, delivered.properties, delivered.topic, delivered.queue_id, 0)
        for offset in range(self._offset(level), self._store.max_offset(SCHEDULE_TOPIC, level - 1)):
            (entry,) = self._store.entries(SCHEDULE_TOPIC, level - 1, offset, 1)
            body = self._store.message_at(entry.commit_log_offset) if entry.size_bytes > 0 else None
            if body is None or entry.commit_log_offset >= delivered.commit_log_offset:
                return None  # damaged, and perhaps repaired later; or stored after `delivered`
            record = _delivered(body, 0)
            if record is not None and not self.is_gone(record.topic, entry.commit_log_offset):
                return offset if record == found else None
        return None

    def resume(self, now_ms: int) -> None:
        """Begin to deliver the messages in the store."""
        self.next_due_ms = self._next_due_ms(now_ms)

    def place(self, properties: dict[str, str], topic: str, queue_id: int, now_ms: int) -> DelayedPlace | None:
        """Where a message with a delay is stored now; None for one without. Call `waits` after storing it.

        Adds the real topic and queue to `properties`. Raises ValueError when DELAY is no number that Java accepts.
        """
        level = _java_int(properties.get(names.DELAY, "0"))
        if level <= 0:
            return None
        if level > len(self._levels_ms):
            level = len(self._levels_ms)
            properties[names.DELAY] = str(level)
        properties[names.REAL_TOPIC] = topic
        properties[names.REAL_QID] = str(queue_id)
        return DelayedPlace(SCHEDULE_TOPIC, level - 1, now_ms + self._levels_ms[level - 1])

    def waits(self, deliver_at_ms: int) -> None:
        """A message was stored in the schedule topic."""
        if self.next_due_ms is None or deliver_at_ms < self.next_due_ms:
            self.next_due_ms = deliver_at_ms

    def due(self, now_ms: int, count_max: int) -> Iterator[Record]:
        """Due messages, as records for their own topics. Each counts as delivered when the next one is requested.

        So a message that could not be stored stays. Messages without a target, or that do not fit it, are skipped, and
        so are those of deleted topics; RocketMQ delivers these. A damaged message holds up its level until the store
        has repaired or skipped it.

        Args:
            count_max: Of messages that are looked at.
        """
        is_damaged = False
        for level in self._levels:
            while count_max > 0 and self._is_due(level, now_ms):
                offset = self._offset(level)
                found = self._store.get(SCHEDULE_TOPIC, level - 1, offset, 1, None)
                if found.status is GetStatus.OFFSET_FOUND_NULL:
                    is_damaged = True
                    break
                if not self._is_due(level, now_ms):
                    break
                record = _delivered(found.body, now_ms)
                count_max -= 1
                if record is None:
                    self.on_skipped(level, offset)
                elif self.is_gone(record.topic, self._log_offset_of(level, offset)):
                    self.on_gone(record.topic, level, offset)
                else:
                    yield record
                self._offsets[level] = offset + 1
        self.next_due_ms = self._next_due_ms(now_ms)
        if is_damaged and self.next_due_ms is not None:
            self.next_due_ms = max(self.next_due_ms, now_ms + DAMAGED_RETRY_MS)

    def _log_offset_of(self, level: int, offset: int) -> int:
        (entry,) = self._store.entries(SCHEDULE_TOPIC, level - 1, offset, 1)
        return entry.commit_log_offset

    def waiting_queues(self) -> set[tuple[str, int]]:
        """(topic, queue id) of all messages that wait."""
        queues = set()
        for level in self._levels:
            for offset in range(self._offset(level), self._store.max_offset(SCHEDULE_TOPIC, level - 1)):
                (entry,) = self._store.entries(SCHEDULE_TOPIC, level - 1, offset, 1)
                body = self._store.message_at(entry.commit_log_offset) if entry.size_bytes > 0 else None
                record = _delivered(body or b"", 0)
                if record is not None:
                    queues.add((record.topic, record.queue_id))
        return queues

    @property
    def _levels(self) -> range:
        return range(1, len(self._levels_ms) + 1)

    def _next_due_ms(self, now_ms: int) -> int | None:
        heads_ms = [at_ms for level in self._levels if (at_ms := self._head_due_ms(level, now_ms)) is not None]
        return min(heads_ms, default=None)

    def _offset(self, level: int) -> int:
        """The next offset to deliver; messages that the store dropped are skipped."""
        return max(self._offsets.get(level, 0), self._store.min_offset(SCHEDULE_TOPIC, level - 1))

    def _is_due(self, level: int, now_ms: int) -> bool:
        at_ms = self._head_due_ms(level, now_ms)
        return at_ms is not None and at_ms <= now_ms

    def _head_due_ms(self, level: int, now_ms: int) -> int | None:
        entries = self._store.entries(SCHEDULE_TOPIC, level - 1, self._offset(level), 1)
        return self._corrected(level, entries[0].tags_code, now_ms) if entries else None

    def _corrected(self, level: int, deliver_at_ms: int, now_ms: int) -> int:
        """The due time, at most a level's delay from now.

        A later one was stored while the clock was ahead, or when the level was longer. As in RocketMQ such a message
        is due at once, and does not hold up those behind it (wire.md 10.2).
        """
        return now_ms if deliver_at_ms > now_ms + self._levels_ms[level - 1] else deliver_at_ms


def _delivered(body: bytes, now_ms: int) -> Record | None:
    return delivered_record(decode_messages(body, unzip=False)[0], now_ms) if body else None


def delivered_record(message: MessageExt, now_ms: int) -> Record | None:
    """A message that waits as a record for its own topic; None when it has no valid one, or is too large.

    Another broker may have stored it. Properties that are not UTF-8 grow when they are written again.
    """
    topic = message.properties.get(names.REAL_TOPIC, "")
    try:
        queue_id = _java_int(message.properties.get(names.REAL_QID, ""))
    except ValueError:
        return None
    if not 0 < len(topic.encode("utf-8", "replace")) <= _TOPIC_BYTES_MAX or not 0 <= queue_id <= _QUEUE_ID_MAX:
        return None
    record = record_of(message, message.properties, topic, queue_id, now_ms)
    return record if len(record.properties) <= PROPERTIES_BYTES_MAX else None


def _level_of(message: MessageExt) -> int:
    """The delay level of a message; 0 for none."""
    try:
        return _java_int(message.properties.get(names.DELAY, "0"))
    except ValueError:
        return 0


def _java_int(text: str) -> int:
    return java_number(names.DELAY, text, _INT_DIGITS_MAX)


def java_number(name: str, text: str, digits_max: int) -> int:
    """Parse a property as Java's parseInt and parseLong do: ASCII digits, perhaps a sign. Raises ValueError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= digits_max):
        raise ValueError(f"{name} must be a number, not {short_text(text)}")
    return int(text)


def record_of(message: MessageExt, properties: Mapping[str, str], topic: str, queue_id: int, now_ms: int) -> Record:
    """A record that stores `message` again in another queue. `message` must be decoded without unzipping."""
    return Record(
        topic,
        queue_id,
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        *message.born_host,
        now_ms,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        encode_properties(properties).encode("utf-8", "replace"),
        tags_code(properties.get(names.TAGS)),
    )
