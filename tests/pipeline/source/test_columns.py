"""Stored messages as columns: the fast way and the slow way agree, and what is no message is told."""

import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.pipeline.source.columns import ARROW_TYPES, BatchBuilder, DamagedRecord
from lockstep.pipeline.source.vectorized import find_records
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.messages.compression import CompressionType, compress
from lockstep.protocol.messages.message import Record, encode_stored_message
from lockstep.protocol.model import MessageQueue

QUEUE = MessageQueue("t", "broker-a", 3)
NAMES = ("TAGS", "KEYS", "__SHARDINGKEY", "SHARDING_KEY", "__SHARDING_KEY", "UNIQ_KEY", "TAGSX", "own")
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES), TEXT)
MESSAGES = st.lists(st.tuples(st.binary(max_size=40), PROPERTIES, st.integers(-5, 5)), min_size=1, max_size=20)


def stored(
    offset: int,
    body: bytes = b"body",
    properties: str = "",
    *,
    flag: int = 0,
    sys_flag: int = 0,
    host: bytes = b"\x7f\0\0\1",
    born_ms: int | None = None,
) -> bytes:
    stored_ms = 1_700_000_000_500 + offset
    born_ms = stored_ms - 500 if born_ms is None else born_ms
    origin = (flag, sys_flag, born_ms, host, 50_000, stored_ms)
    record = Record("t", QUEUE.queue_id, *origin, 2, 0, body, properties.encode(), 0)
    return encode_stored_message(record, b"t", offset, 1000 * offset, host, 10911)


def columns(names: list[str] | None = None, tags: str = "*") -> BatchBuilder:
    return BatchBuilder([(name, True) for name in names or ARROW_TYPES], QUEUE, tags)


def batch_of(builder: BatchBuilder, buffer: bytes, end: int) -> pa.RecordBatch:
    (batch,) = builder.batches(buffer, end)
    return batch


def text_of(properties: dict[str, str]) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


@given(MESSAGES, st.integers(0, 25))
def test_the_fast_way_is_the_slow_way(messages: list[tuple[bytes, dict[str, str], int]], end: int) -> None:
    """Column by column equal, whatever bodies, properties and numbers are; one compressed body makes a batch slow."""
    records = [stored(i, body, text_of(props), flag=flag) for i, (body, props, flag) in enumerate(messages)]
    assert find_records(b"".join(records)) is not None
    fast = batch_of(columns(), b"".join(records), end)
    last = stored(len(records), zlib.compress(b"x"), sys_flag=SysFlag.COMPRESSED)
    assert find_records(b"".join([*records, last])) is None
    slow = batch_of(columns(), b"".join([*records, last]), min(end, len(records)))
    fast.validate(full=True)
    assert fast.schema == slow.schema
    assert fast.to_pylist() == slow.to_pylist()
    assert fast.num_rows == min(end, len(records))


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("size", [0, 128])
def test_messages_of_one_size(count: int, size: int) -> None:
    """The quickest way of all: every message as long as the others."""
    batch = batch_of(columns(), b"".join(stored(i, bytes([i]) * size, "UNIQ_KEY\x01abc") for i in range(count)), count)
    batch.validate(full=True)
    assert batch["value"].to_pylist() == [bytes([i]) * size for i in range(count)]
    assert batch["msgId"].to_pylist() == ["abc"] * count
    assert batch["offset"].to_pylist() == list(range(count))


def test_unusual_messages_are_read_too() -> None:
    """Compressed bodies are unpacked, IPv6 hosts are stepped over, text that is no UTF-8 has question marks."""
    host = bytes(15) + b"\1"
    broken = stored(2, b"c", "own\x01X").replace(b"own\x01X", b"own\x01\xff")
    records = [stored(0, zlib.compress(b"plain"), sys_flag=SysFlag.COMPRESSED), stored(1, b"b", host=host), broken]
    batch = batch_of(columns(), b"".join(records), 3)
    assert batch["value"].to_pylist() == [b"plain", b"b", b"c"]
    assert batch["headers"].to_pylist()[2] == [{"key": "own", "value": "\ufffd".encode()}]
    tagged = batch_of(
        columns(["tags", "offset"]), stored(5, b"", "TAGS\x01X").replace(b"TAGS\x01X", b"TAGS\x01\xff"), 6
    )
    assert tagged.to_pylist() == [{"tags": "\ufffd", "offset": 5}]


def test_columns_come_in_the_order_of_the_schema() -> None:
    """And no others; a column that may not be null says so."""
    batch = batch_of(BatchBuilder([("offset", False), ("value", True)], QUEUE, "*"), stored(7), 8)
    assert batch.schema == pa.schema([pa.field("offset", pa.int64(), False), pa.field("value", pa.binary())])
    assert batch.to_pylist() == [{"offset": 7, "value": b"body"}]


def test_a_tag_is_compared_by_text() -> None:
    """A broker compares hashes alone: "Aa" and "BB" have the same."""
    records = b"".join(stored(i, properties=f"TAGS\x01{tag}") for i, tag in enumerate(("Aa", "BB", "C")))
    assert batch_of(columns(["tags"], "Aa || C"), records, 3)["tags"].to_pylist() == ["Aa", "C"]


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda record: record[:50],
        lambda record: record[:4] + b"\0\0\0\0" + record[8:],
        lambda record: b"\0\0\0\7" + record[4:],
        lambda record: record[:84] + b"\x7f\xff\xff\xff" + record[88:],
    ],
    ids=["cut", "another magic", "too small", "too large a body"],
)
@pytest.mark.parametrize("before", [0, 2])
def test_what_is_no_message_is_never_a_row(corrupt: Callable[[bytes], bytes], before: int) -> None:
    """The messages before it are rows; then its offset is told, if a message before it tells it."""
    buffer = b"".join([stored(i) for i in range(before)])
    batches = columns(["offset"]).batches(buffer + corrupt(stored(before)), 9)
    rows = [next(batches)["offset"].to_pylist()] if before else []
    with pytest.raises(DamagedRecord) as caught:
        next(batches)
    assert rows == ([list(range(before))] if before else [])
    assert caught.value.offset == (before or None)
    assert batch_of(columns(["offset"]), stored(0) + corrupt(stored(1)), 1).num_rows == 1, "it lies behind the end"


def test_a_body_that_is_no_zlib_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Flagged as compressed, and not so: it comes as it is stored, and the others as ever."""
    records = [stored(0), stored(1, b"not compressed", sys_flag=SysFlag.COMPRESSED), stored(2)]
    batch = batch_of(columns(), b"".join(records), 3)
    assert batch["value"].to_pylist() == [b"body", b"not compressed", b"body"]
    errors = batch["bodyError"].to_pylist()
    assert errors[0] is errors[2] is None
    assert "not zlib" in errors[1]
    (record,) = caplog.records
    assert f"queue {QUEUE}, offset 1: a body flagged as compressed is not zlib" in record.getMessage()


def test_bodies_of_every_codec_are_unpacked() -> None:
    """What Java 5 producers write as LZ4 and zstd, too; the error column is null in the quick way as well."""
    kinds = list(CompressionType)
    records = [stored(i, compress(b"plain", kind, 5), sys_flag=kind.sys_flag) for i, kind in enumerate(kinds)]
    batch = batch_of(columns(["value", "bodyError"]), b"".join(records), 3)
    assert batch.to_pylist() == [{"value": b"plain", "bodyError": None}] * 3
    assert batch_of(columns(["bodyError"]), stored(0) + stored(1), 2).to_pylist() == [{"bodyError": None}] * 2


@pytest.mark.parametrize("born_ms", [2**63 - 1, -(2**63), 2**60, 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_that_no_timestamp_can_be(born_ms: int) -> None:
    """Producers may send any number. It is null, in both ways; it neither fails the query nor becomes another time."""
    records = stored(0) + stored(1, born_ms=born_ms) + stored(2)
    packed = stored(3, zlib.compress(b"x"), sys_flag=SysFlag.COMPRESSED)
    for buffer in (records, records + packed):
        times = batch_of(columns(["bornTimestamp"]), buffer, 3)["bornTimestamp"]
        assert [time and time.timestamp() for time in times.to_pylist()] == [1.7e9, None, 1.7e9 + 0.002]


def test_bodies_that_grow_make_several_batches() -> None:
    """4 MiB of stored bodies may be gigabytes: about 64 MiB of unpacked ones make a batch, and memory has one at a
    time."""
    packed = compress(bytes(40 * 1024 * 1024), CompressionType.ZSTD, 1)
    records = [stored(i, packed, sys_flag=CompressionType.ZSTD.sys_flag) for i in range(5)]
    batches = columns(["offset", "value"]).batches(b"".join(records), 5)
    assert [(batch["offset"].to_pylist(), batch.nbytes >> 20) for batch in batches] == [
        ([0, 1], 80),
        ([2, 3], 80),
        ([4], 40),
    ]
