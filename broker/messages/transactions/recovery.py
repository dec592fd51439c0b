"""Which half messages are undecided, found in the log (wire.md 11)."""

import sys
from typing import Final, NamedTuple

from lockstep.broker.messages.stored import messages_of
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from lockstep.store import MessageStore, Record

__all__ = ["mark_of", "open_halves", "undecided_queues", "unmarked"]

_REMOVE_TAG: Final = "d"
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_COMMITTED: Final = int(SysFlag.TRANSACTION_COMMIT)
_DIGITS_MAX: Final = 10  # of a queue id


class _Copies(NamedTuple):
    """Of one half message, all with its unique key: the last one, and commit log offsets."""

    last: HalfMessage
    began: int  # of the copy that its checks are counted from
    ended: int  # of the last mark; -1: none


def mark_of(store: MessageStore, queue_offset: int, now_ms: int) -> Record:
    """The record by which RocketMQ marks a half message as ended; tools read it."""
    host, port, body = store.store_host, store.store_port, b"%d" % queue_offset
    properties = f"{names.TAGS}{names.NAME_END}{_REMOVE_TAG}".encode()
    code = tags_code(_REMOVE_TAG)
    return Record(OP_HALF_TOPIC, 0, 0, 0, now_ms, host, port, now_ms, 0, 0, body, properties, code)


def open_halves(store: MessageStore, also_ended: HalfMessage | None = None) -> list[HalfMessage]:
    """The last copy of each half message that no mark has ended.

    The checks of a copy with the count "0" were resumed (RESUME_CHECK_HALF_MESSAGE): earlier marks do not count.

    Args:
        also_ended: A half message that has ended, whatever its marks say.
    """
    marks = _marks(store)
    if also_ended is not None:
        marks[also_ended.queue_offset] = sys.maxsize
    latest: dict[str, _Copies] = {}
    for message in messages_of(store, HALF_TOPIC):
        half = HalfMessage(message.queue_offset, message.commit_log_offset)
        unique_key = message.properties.get(names.UNIQ_KEY) or f"#{half.queue_offset}"
        before = latest.get(unique_key, _Copies(half, half.commit_log_offset, -1))
        began = before.began
        if message.properties.get(names.TRANSACTION_CHECK_TIMES) == "0":
            began = half.commit_log_offset
        latest[unique_key] = _Copies(half, began, max(before.ended, marks.get(half.queue_offset, -1)))
    return [copies.last for copies in latest.values() if copies.ended < copies.began]


def undecided_queues(store: MessageStore) -> set[tuple[str, int]]:
    """(topic, queue id) that the messages of `open_halves` are for. Another broker may have stored them."""
    found = [_message_at(store, half.commit_log_offset) for half in open_halves(store)]
    targets = [
        (message.properties.get(names.REAL_TOPIC, ""), message.properties.get(names.REAL_QID, ""))
        for message in found
        if message is not None
    ]
    return {(topic, int(number)) for topic, number in targets if number.isdecimal() and len(number) <= _DIGITS_MAX}


def unmarked(store: MessageStore) -> HalfMessage | None:
    """The half message whose commit is the last record of the log: a crash may have lost the mark behind it."""
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


def _marks(store: MessageStore) -> dict[int, int]:
    """Queue offset of a half message that has ended -> commit log offset of its mark.

    Later Apache brokers write several queue offsets into one mark.
    """
    marks: dict[int, int] = {}
    for message in messages_of(store, OP_HALF_TOPIC):
        body = message.body.decode("ascii", "replace")
        marks.update({int(part): message.commit_log_offset for part in body.split(",") if part.isdecimal()})
    return marks


def _message_at(store: MessageStore, commit_log_offset: int) -> MessageExt | None:
    data = store.message_at(commit_log_offset)
    return None if data is None else decode_messages(data, unzip=False)[0]
