"""Makes columns of stored messages (protocol/messages/message.py), whole batches at once, and only the wanted columns.

Messages that vectorized.py cannot read (IPv6 hosts, compressed bodies, bytes that are not UTF-8, a filter by tags) are
decoded one by one by `lockstep.protocol.messages.message`, which is slower and says what is wrong with a record.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa

from lockstep.pipeline.schema import LOG_APPEND_TIME
from lockstep.pipeline.source.vectorized import (
    FIRST_MS,
    HEADERS,
    LAST_MS,
    TIME,
    Columns,
    VectorizedMessages,
    find_records,
)
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.filter import parse_tags
from lockstep.protocol.messages.compression import PLAIN_BYTES_MAX
from lockstep.protocol.messages.message import MessageExt, decode_into, unpacked
from lockstep.protocol.model import MessageQueue

__all__ = ["ARROW_TYPES", "BatchBuilder", "DamagedRecord"]

_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_log = logging.getLogger("lockstep.pipeline")

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "timestampType": pa.int32(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "storeTimestamp": TIME,
    "bornTimestamp": TIME,
    "tags": pa.string(),
    "keys": pa.string(),
    "shardingKey": pa.string(),
    "msgId": pa.string(),
    "flag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "bodyError": pa.string(),
    "headers": HEADERS,
}


class DamagedRecord(Exception):
    """A record that is no message. It must be pulled alone: nobody can say where the next one begins.

    Attributes:
        offset: of the record, or an earlier one if a filter passed over messages; None: it is the first record.
    """

    def __init__(self, offset: int | None) -> None:
        super().__init__(offset)
        self.offset = offset


class BatchBuilder:
    """Makes batches of the messages of one queue; `columns` are (name, nullable) in the order of the result."""

    def __init__(self, columns: list[tuple[str, bool]], queue: MessageQueue, tags: str) -> None:
        self._schema = pa.schema([pa.field(name, ARROW_TYPES[name], nullable) for name, nullable in columns])
        self._queue = queue
        self._tags = frozenset(parse_tags(tags))

    def batches(self, buffer: bytes, end: int) -> Iterator[pa.RecordBatch]:
        """`buffer` is whole messages back to back; those from offset `end` on are left out.

        Usually one batch. Unpacked bodies may be far larger than stored ones, so they may make several.

        Raises DamagedRecord, after the batches of the messages before it.
        """
        records = None if self._tags else find_records(buffer)
        if records is not None:
            try:
                yield self._made(VectorizedMessages(self._queue, buffer, records, end).columns())
                return
            except pa.ArrowInvalid:  # text that is not UTF-8
                pass
        for messages in self._one_by_one(buffer, end):
            yield self.rows(messages)

    def _made(self, columns: Columns) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([columns[name]() for name in self._schema.names], schema=self._schema)

    def _one_by_one(self, buffer: bytes, end: int) -> Iterator[list[MessageExt]]:
        """The wanted messages, in parts of about `PLAIN_BYTES_MAX` bytes of unpacked bodies. Raises DamagedRecord."""
        messages, packed = list[MessageExt](), list[int]()
        problem = decode_into(messages, packed, buffer, self._queue.broker_name)
        following = messages[-1].queue_offset + 1 if messages else None
        tags = self._tags
        part, size = list[MessageExt](), 0
        messages.reverse()
        while messages:  # none is kept behind its part: its body may be large
            message = messages.pop()
            if message.queue_offset >= end or (tags and message.tags not in tags):
                continue
            if message.sys_flag & _COMPRESSED:
                message = unpacked(message)
                size += len(message.body)
            part.append(message)
            if size >= PLAIN_BYTES_MAX:
                yield part
                part, size = [], 0
        if part or problem is None:
            yield part
        if problem is not None and (following is None or following < end):
            raise DamagedRecord(following)

    def rows(self, messages: list[MessageExt]) -> pa.RecordBatch:
        for message in messages:
            if message.body_error is not None:  # `value` is as it is stored, and a schema may lack the column for it
                _log.error("queue %s, offset %d: %s", self._queue, message.queue_offset, message.body_error)
        return self._made(_columns_of(self._queue, messages))


def _columns_of(queue: MessageQueue, messages: list[MessageExt]) -> Columns:
    values: dict[str, Any] = {
        "key": lambda m: _bytes(m.sharding_key or m.keys),
        "value": lambda m: m.body,
        "topic": lambda m: queue.topic,
        "partition": lambda m: queue.queue_id,
        "offset": lambda m: m.queue_offset,
        "timestamp": lambda m: _micros(m.store_timestamp),
        "timestampType": lambda m: LOG_APPEND_TIME,
        "brokerName": lambda m: queue.broker_name,
        "queueId": lambda m: queue.queue_id,
        "storeTimestamp": lambda m: _micros(m.store_timestamp),
        "bornTimestamp": lambda m: _micros(m.born_timestamp),
        "tags": lambda m: m.tags,
        "keys": lambda m: m.keys,
        "shardingKey": lambda m: m.sharding_key,
        "msgId": lambda m: m.msg_id,
        "flag": lambda m: m.flag,
        "reconsumeTimes": lambda m: m.reconsume_times,
        "bodyError": lambda m: m.body_error,
        "headers": lambda m: [{"key": key, "value": _bytes(value)} for key, value in m.properties.items()],
    }

    def column(name: str) -> pa.Array:
        return pa.array([values[name](message) for message in messages], ARROW_TYPES[name])

    return {name: partial(column, name) for name in values}


def _micros(epoch_ms: int) -> int | None:
    return epoch_ms * 1000 if FIRST_MS <= epoch_ms <= LAST_MS else None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "replace")
