"""Which half messages are undecided, by what stands in the log (wire.md 11)."""

from collections.abc import Iterator
from typing import Final

from lockstep.broker.transactions.half_messages import HalfMessage
from lockstep.protocol import properties as names
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.filter import tags_code
from lockstep.protocol.message import MessageExt, decode_messages
from lockstep.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from lockstep.store import MessageStore, Record

__all__ = ["mark_of", "open_halves", "unmarked"]

_REMOVE_TAG: Final = "d"
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_COMMITTED: Final = int(SysFlag.TRANSACTION_COMMIT)
_READ_AT_ONCE: Final = 1000


def mark_of(store: MessageStore, queue_offset: int, now_ms: int) -> Record:
    """RocketMQ's own note that a half message has ended; tools read it."""
    host, port, body = store.store_host, store.store_port, b"%d" % queue_offset
    properties = f"{names.TAGS}{names.NAME_END}{_REMOVE_TAG}".encode()
    code = tags_code(_REMOVE_TAG)
    return Record(OP_HALF_TOPIC, 0, 0, 0, now_ms, host, port, now_ms, 0, 0, body, properties, code)


def open_halves(store: MessageStore, also_ended: HalfMessage | None = None) -> list[HalfMessage]:
    """Those without a note that they ended; of the copies of one that was asked for again, the last."""
    ended = _ended(store)
    if also_ended is not None:
        ended.add(also_ended.queue_offset)
    latest: dict[str, tuple[HalfMessage, bool]] = {}
    for message in _messages(store, HALF_TOPIC):
        offset = message.queue_offset
        unique_key = message.properties.get(names.UNIQ_KEY) or f"#{offset}"
        done = offset in ended or (unique_key in latest and latest[unique_key][1])
        latest[unique_key] = (HalfMessage(offset, message.commit_log_offset), done)
    return [half for half, done in latest.values() if not done]


def unmarked(store: MessageStore) -> HalfMessage | None:
    """The half message whose commit is the last that a crash has left of the log: its mark would stand behind it."""
    lasts = [
        store.entries(topic, queue_id, end - 1, 1)
        for (topic, queue_id), end in store.max_offsets().items()
        if end > store.min_offset(topic, queue_id)
    ]
    last = max([entry.commit_log_offset for entries in lasts for entry in entries], default=-1)
    committed = _message_at(store, last)
    if committed is None or committed.sys_flag & _TRANSACTION != _COMMITTED:
        return None
    half = _message_at(store, committed.prepared_transaction_offset)
    if half is None or half.topic != HALF_TOPIC:
        return None
    return HalfMessage(half.queue_offset, half.commit_log_offset)


def _ended(store: MessageStore) -> set[int]:
    """Queue offsets of half messages that were committed or rolled back; later Apache brokers note several in one."""
    ended: set[int] = set()
    for message in _messages(store, OP_HALF_TOPIC):
        body = message.body.decode("ascii", "replace")
        ended.update(int(part) for part in body.split(",") if part.isdecimal())
    return ended


def _message_at(store: MessageStore, commit_log_offset: int) -> MessageExt | None:
    data = store.message_at(commit_log_offset)
    return None if data is None else decode_messages(data, unzip=False)[0]


def _messages(store: MessageStore, topic: str) -> Iterator[MessageExt]:
    """All that can be read of queue 0, many at a time."""
    offset, end = store.min_offset(topic, 0), store.max_offset(topic, 0)
    while offset < end:
        found = store.get(topic, 0, offset, _READ_AT_ONCE, None)
        yield from decode_messages(found.body, unzip=False)
        offset = max(found.next_begin_offset, offset + 1)
