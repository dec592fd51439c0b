"""Reads many plain messages at once: numpy finds the fields, Arrow splits the properties."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.pipeline.schema import LOG_APPEND_TIME
from lockstep.protocol import properties as names
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.ids import encode_offset_message_id
from lockstep.protocol.message import MESSAGE_MAGIC, MESSAGE_OVERHEAD_BYTES
from lockstep.protocol.model import MessageQueue

__all__ = ["HEADERS", "TIME", "Columns", "Records", "VectorizedMessages", "find_records"]

TIME: Final = pa.timestamp("us", tz="UTC")
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
_MAGIC: Final = MESSAGE_MAGIC.to_bytes(4)
_NAME_END: Final = names.NAME_END.encode()
_PAIR_END: Final = names.PAIR_END.encode()
_PROPERTIES_END: Final = 1 << 16  # binary_slice without an end fails for most arrays (pyarrow 26.0.1)


class Records(NamedTuple):
    """Numpy arrays over all messages: the fixed part, and the bounds of body and properties in the buffer."""

    fixed: Any
    positions: Any
    tails: Any
    text_starts: Any
    ends: Any


def find_records(buffer: bytes) -> Records | None:
    """None when a message is not plain; then protocol/message.py reads them."""
    positions = _positions(buffer)
    if positions is None:
        return None
    view = np.frombuffer(buffer, np.uint8)
    fixed = view[positions[:, None] + np.arange(_FIXED_BYTES)].view(_FIXED).ravel()
    body_bytes, ends = fixed["body_bytes"], positions + fixed["size"]
    tails = positions + _FIXED_BYTES + body_bytes
    if (fixed["sys_flag"] & _UNUSUAL).any() or (body_bytes < 0).any() or (tails + 3 > ends).any():
        return None
    text_starts = tails + 3 + view[tails]
    if (text_starts > ends).any():
        return None
    text_bytes = view[text_starts - 2].astype(np.int64) << 8 | view[text_starts - 1]
    return Records(fixed, positions, tails, text_starts, ends) if (text_starts + text_bytes == ends).all() else None


def _positions(buffer: bytes) -> Any:
    """Start of each message; None when the lengths are wrong."""
    end = len(buffer)
    size = int.from_bytes(buffer[:4])
    if size >= MESSAGE_OVERHEAD_BYTES and end % size == 0:  # a guess: all have one size
        heads = np.frombuffer(buffer, np.uint8).reshape(-1, size)[:, :8].copy().view(">u4")
        if (heads[:, 0] == size).all() and (heads[:, 1] == MESSAGE_MAGIC).all():
            return np.arange(0, end, size, dtype=np.int64)
    found = []
    position = 0
    while position < end:
        size = int.from_bytes(buffer[position : position + 4])
        if size < MESSAGE_OVERHEAD_BYTES or buffer[position + 4 : position + 8] != _MAGIC:
            return None
        found.append(position)
        position += size
    return np.array(found, np.int64) if position == end else None


class VectorizedMessages:
    """Columns of the messages before offset `end`. Arrow raises ArrowInvalid for text that is not UTF-8."""

    def __init__(self, queue: MessageQueue, buffer: bytes, records: Records, end: int) -> None:
        count = int(np.searchsorted(records.fixed["queue_offset"].astype(np.int64), end))
        self._queue = queue
        self._buffer = buffer
        self._count = count
        self._records = Records(*(column[:count] for column in records))

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
        values = np.ascontiguousarray(self._records.fixed[field].astype(kind))
        return pa.Array.from_buffers(arrow, self._count, [None, pa.py_buffer(values)])

    def _times(self, field: str) -> pa.Array:
        micros = self._records.fixed[field].astype(np.int64) * 1000
        return pa.Array.from_buffers(TIME, self._count, [None, pa.py_buffer(micros)])

    def _slices(self, starts: Any, ends: Any) -> pa.Array:
        """The bytes from each start to its end."""
        count, sizes = self._count, ends - starts
        size = int(sizes[0]) if count else 0
        stride = int(starts[1] - starts[0]) if count > 1 else 0
        if count > 1 and (sizes == size).all() and (np.diff(starts) == stride).all():
            first = int(starts[0])
            view = np.frombuffer(self._buffer, np.uint8)
            rows = np.lib.stride_tricks.as_strided(view[first:], (count, size), (stride, 1))
            offsets = np.arange(0, (count + 1) * size, size or 1, dtype=np.int32)[: count + 1]
            if not size:
                offsets = np.zeros(count + 1, np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
            return pa.Array.from_buffers(pa.binary(), count, buffers)
        buffer = self._buffer
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return pa.array([buffer[start:end] for start, end in pairs], pa.binary())

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
            fixed = self._records.fixed
            hosts = zip(fixed["store_ip"], fixed["store_port"], fixed["log_offset"], strict=True)
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
