"""Reads many plain messages at once: numpy finds the fields, Arrow splits the properties."""

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.pipeline.schema import LOG_APPEND_TIME
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.protocol.messages.message import MESSAGE_MAGIC, MESSAGE_OVERHEAD_BYTES
from lockstep.protocol.model import MessageQueue

__all__ = ["FIRST_MS", "HEADERS", "LAST_MS", "TIME", "Columns", "Records", "VectorizedMessages", "find_records"]

TIME: Final = pa.timestamp("us", tz="UTC")
FIRST_MS: Final = -62_135_596_800_000  # the year 1 begins
LAST_MS: Final = 253_402_300_799_999  # the year 9999 ends; a time out of this range, as a peer may send it, is null
HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
Columns = dict[str, Callable[[], pa.Array]]

_FIXED: Final = np.dtype([
    ("size", ">i4"), ("magic", ">u4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
    ("log_offset", ">i8"), ("sys_flag", ">i4"), ("born", ">i8"), ("born_host", "V8"), ("store", ">i8"),
    ("store_ip", "V4"), ("store_port", ">i4"), ("reconsume", ">i4"), ("prepared", ">i8"), ("body_bytes", ">i4"),
])  # fmt: skip
_FIXED_BYTES: Final = _FIXED.itemsize
_UNUSUAL: Final = int(SysFlag.COMPRESSED | SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_HEAD: Final = struct.Struct(">iI")  # size and magic
_NAME_END: Final = names.NAME_END.encode()
_PAIR_END: Final = names.PAIR_END.encode()
_PROPERTIES_END: Final = 1 << 16  # binary_slice without an end fails for most arrays (pyarrow 26.0.1)


class Records:
    """Whole messages back to back in a buffer. A field is gathered when it is asked for.

    Attributes:
        positions: The start of each message.
        stride: Bytes of each message, when all have the same size; else 0.
        tails: The end of each body.
        text_starts: The start of each message's properties.
        ends: The end of each message.
    """

    def __init__(self, buffer: Any, positions: Any, stride: int, ends: Any) -> None:
        self._bytes = np.frombuffer(buffer, np.uint8)
        self.positions = positions
        self.stride = stride
        self.ends = ends
        self.tails = positions + _FIXED_BYTES + self.field("body_bytes")

    def field(self, name: str) -> Any:
        """A field of the fixed part of every message."""
        assert _FIXED.fields is not None
        kind, place = _FIXED.fields[name][:2]
        if self.stride:
            rows = self._bytes.reshape(-1, self.stride)[: len(self.positions), place : place + kind.itemsize]
            return rows.view(kind)[:, 0]
        return self._bytes[(self.positions + place)[:, None] + np.arange(kind.itemsize)].view(kind)[:, 0]

    @property
    def is_plain(self) -> bool:
        """Whether lengths are right, hosts are IPv4, and no body is compressed."""
        view, tails, ends = self._bytes, self.tails, self.ends
        if (self.field("sys_flag") & _UNUSUAL).any():
            return False
        if (tails < self.positions + _FIXED_BYTES).any() or (tails + 3 > ends).any():
            return False
        starts = self.text_starts
        if (starts > ends).any():
            return False
        text_bytes = view[starts - 2].astype(np.int64) << 8 | view[starts - 1]
        return bool((starts + text_bytes == ends).all())

    @cached_property
    def text_starts(self) -> Any:
        return self.tails + 3 + self._bytes[self.tails]

    def first(self, count: int) -> "Records":
        """The first `count` messages."""
        if count == len(self.positions):
            return self
        return Records(self._bytes, self.positions[:count], self.stride, self.ends[:count])


def find_records(buffer: bytes) -> Records | None:
    """None when a message is not plain; then protocol/messages/message.py reads them."""
    end = len(buffer)
    size = int.from_bytes(buffer[:4])
    if size >= MESSAGE_OVERHEAD_BYTES and end % size == 0:  # a guess: all have one size
        rows = np.frombuffer(buffer, np.uint8).reshape(-1, size)[:, :8].view(">u4")
        if (rows[:, 0] == size).all() and (rows[:, 1] == MESSAGE_MAGIC).all():
            positions = np.arange(0, end, size, dtype=np.int64)
            records = Records(buffer, positions, size, positions + size)
            return records if records.is_plain else None
    bounds = _bounds(buffer)
    if bounds is None:
        return None
    records = Records(buffer, bounds[:-1], 0, bounds[1:])
    return records if records.is_plain else None


def _bounds(buffer: bytes) -> Any:
    """Start of each message, and the end of the last one; None when the lengths are wrong."""
    end = len(buffer)
    bounds = [0]
    position = 0
    read, last = _HEAD.unpack_from, end - _HEAD.size
    while position <= last:
        size, magic = read(buffer, position)
        if size < MESSAGE_OVERHEAD_BYTES or magic != MESSAGE_MAGIC:
            return None
        position += size
        bounds.append(position)
    return np.array(bounds, np.int64) if position == end else None


class VectorizedMessages:
    """Columns of the messages before offset `end`. Arrow raises ArrowInvalid for text that is not UTF-8."""

    def __init__(self, queue: MessageQueue, buffer: bytes, records: Records, end: int) -> None:
        offsets = records.field("queue_offset")
        count = len(offsets)
        if count and offsets[-1] >= end:
            count = int(np.searchsorted(offsets.astype(np.int64), end))
        self._queue = queue
        self._buffer = buffer
        self._count = count
        self._records = records.first(count)

    def columns(self) -> Columns:
        """Functions by column name; each makes its column when called."""
        queue = self._queue
        return {
            "key": self._key,
            "value": lambda: self._slices(self._records.positions + _FIXED_BYTES, self._records.tails),
            "topic": lambda: self._constant(queue.topic, pa.string()),
            "partition": lambda: self._constant(queue.queue_id, pa.int32()),
            "offset": lambda: self._integers("queue_offset", np.int64, pa.int64()),
            "timestamp": lambda: self._times("store"),
            "timestampType": lambda: self._constant(LOG_APPEND_TIME, pa.int32()),
            "brokerName": lambda: self._constant(queue.broker_name, pa.string()),
            "queueId": lambda: self._constant(queue.queue_id, pa.int32()),
            "storeTimestamp": lambda: self._times("store"),
            "bornTimestamp": lambda: self._times("born"),
            "tags": lambda: self._property(names.TAGS).cast(pa.string()),
            "keys": lambda: self._property(names.KEYS).cast(pa.string()),
            "shardingKey": lambda: self._sharding_key().cast(pa.string()),
            "msgId": self._message_id,
            "flag": lambda: self._integers("flag", np.int32, pa.int32()),
            "reconsumeTimes": lambda: self._integers("reconsume", np.int32, pa.int32()),
            "bodyError": lambda: pa.nulls(self._count, pa.string()),  # compressed messages are not plain
            "headers": self._headers,
        }

    # The fixed part ------------------------------------------------------------------------------------------

    def _constant(self, value: str | int, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), self._count)

    def _integers(self, field: str, kind: type, arrow: pa.DataType) -> pa.Array:
        values = np.ascontiguousarray(self._records.field(field).astype(kind))
        return pa.Array.from_buffers(arrow, self._count, [None, pa.py_buffer(values)])

    def _times(self, field: str) -> pa.Array:
        times_ms = self._records.field(field).astype(np.int64)
        micros = times_ms * 1000
        absent = (times_ms < FIRST_MS) | (times_ms > LAST_MS)
        if absent.any():
            return pa.array(micros, pa.int64(), mask=absent).cast(TIME)
        return pa.Array.from_buffers(TIME, self._count, [None, pa.py_buffer(micros)])

    def _slices(self, starts: Any, ends: Any) -> pa.Array:
        """The bytes from each start to its end: every second piece of the buffer that these places cut."""
        count = self._count
        cuts = np.zeros(2 * count + 1, np.int32)
        cuts[: 2 * count : 2], cuts[1 : 2 * count : 2] = starts, ends
        cuts[2 * count] = len(self._buffer)
        pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(cuts), pa.py_buffer(self._buffer)])
        return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))

    # Properties ----------------------------------------------------------------------------------------------

    @cached_property
    def _pieces(self) -> tuple[Any, Any]:
        """(message, "NAME\\x01value") of every property of every message."""
        lists = pc.split_pattern(self._slices(self._records.text_starts, self._records.ends), pattern=_PAIR_END)
        return pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists)

    @cached_property
    def _properties(self) -> dict[str, pa.Array]:
        return {}

    def _property(self, name: str) -> pa.Array:
        """Its value for each message, null if absent or empty; the last of several counts."""
        found = self._properties.get(name)
        if found is None:
            found = self._properties[name] = self._find(name.encode() + _NAME_END)
        return found

    def _find(self, prefix: bytes) -> pa.Array:
        parents, pieces = self._pieces
        matches = pc.and_(
            pc.starts_with(pieces, pattern=prefix), pc.greater(pc.binary_length(pieces), len(prefix))
        ).to_numpy(zero_copy_only=False)
        values = pc.binary_slice(pieces.filter(pa.array(matches)), start=len(prefix), stop=_PROPERTIES_END)
        holders = parents[matches]
        if len(holders) == self._count and (holders == np.arange(self._count)).all():
            return values
        places = np.full(self._count, -1, np.int64)
        places[holders] = np.arange(len(holders))
        return values.take(pa.array(places, mask=places < 0))

    def _key(self) -> pa.Array:
        return pc.coalesce(self._sharding_key(), self._property(names.KEYS))

    def _sharding_key(self) -> pa.Array:
        """The older names are read only for messages without the first one."""
        found = self._property(names.SHARDING_KEY_NAMES[0])
        for name in names.SHARDING_KEY_NAMES[1:]:
            if found.null_count:
                found = pc.coalesce(found, self._property(name))
        return found

    def _message_id(self) -> pa.Array:
        ids = self._property(names.UNIQ_KEY)
        if ids.null_count:
            hosts = zip(*map(self._records.field, ("store_ip", "store_port", "log_offset")), strict=True)
            made = [encode_offset_message_id(bytes(ip), int(port), int(offset)).encode() for ip, port, offset in hosts]
            ids = pc.coalesce(ids, pa.array(made, pa.binary()))
        return ids.cast(pa.string())

    def _headers(self) -> pa.Array:
        """Every property of a message, as stored."""
        parents, pieces = self._pieces
        at = pc.find_substring(pieces, pattern=_NAME_END).to_numpy()
        whole = (at > 0) & (at + 1 < pc.binary_length(pieces).to_numpy())
        halves = pc.split_pattern(pieces.filter(pa.array(whole)), pattern=_NAME_END, max_splits=1)
        keys = pc.list_element(halves, 0).cast(pa.string())
        counts = np.bincount(parents[whole], minlength=self._count)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        entries = pa.StructArray.from_arrays([keys, pc.list_element(halves, 1)], ["key", "value"])
        return pa.ListArray.from_arrays(pa.array(offsets), entries).cast(HEADERS)
