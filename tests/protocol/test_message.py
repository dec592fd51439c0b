"""The stored message layout: records written and read, hosts of both kinds, compression, and bytes that lie."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codes import SysFlag
from lockstep.protocol.errors import BodyError
from lockstep.protocol.messages.batch import BatchRecord, decode_batch, encode_batch
from lockstep.protocol.messages.message import (
    MESSAGE_MAGIC,
    MESSAGE_OVERHEAD_BYTES,
    PADDING_MAGIC,
    decode_messages,
)
from lockstep.protocol.messages.properties import sharding_key_of
from tests.fuzz.strategies import stored_message
from tests.rows import by_row

PROPERTIES = "KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x01FD00\x02__SHARDINGKEY\x01N123"
PARTS: dict[str, Any] = {
    "queue_id": 3,
    "flag": -7,
    "queue_offset": 2**40,
    "commit_log_offset": 0x106A2C20,
    "sys_flag": 0,
    "born_timestamp": 1795208639549,
    "born_host": b"\x0a\0\0\5",
    "born_port": 40000,
    "store_timestamp": 1795208639550,
    "store_host": b"\x7f\0\0\1",
    "store_port": 10911,
    "reconsume_times": 2,
    "prepared_transaction_offset": 99,
    "body": b"hello",
    "topic": b"TopicO",
    "properties": PROPERTIES.encode(),
}


def record(**parts: Any) -> bytes:
    return stored_message(PARTS | parts)


def record_v6(born_v6: bool, store_v6: bool, body: bytes = b"hello") -> bytes:
    """A record with hosts of 16 bytes, put together by hand."""
    born, store = bytes(range(16)) if born_v6 else b"\x0a\0\0\5", bytes(range(16, 32)) if store_v6 else b"\x7f\0\0\1"
    sys_flag = (SysFlag.BORN_HOST_V6 if born_v6 else 0) | (SysFlag.STORE_HOST_V6 if store_v6 else 0)
    rest = struct.pack(">IiiiqqiqXsi".replace("X", str(len(born))), MESSAGE_MAGIC, 5, 3, 0, 8, 9, sys_flag, 10, born, 1)
    rest += struct.pack(">qXsiiqi".replace("X", str(len(store))), 11, store, 2, 4, 0, len(body))
    rest += body + b"\x01T" + struct.pack(">h", 3) + b"a\x01b"
    return struct.pack(">i", len(rest) + 4) + rest


def test_a_record_is_laid_out_as_rocketmqs() -> None:
    """The offsets of wire.md 5, one by one."""
    data = record()
    properties = PARTS["properties"]
    assert struct.unpack_from(">iIiii", data) == (len(data), MESSAGE_MAGIC, zlib.crc32(b"hello") & 0x7FFFFFFF, 3, -7)
    assert struct.unpack_from(">qqi", data, 20) == (2**40, 0x106A2C20, 0)
    assert struct.unpack_from(">q4si", data, 40) == (1795208639549, b"\x0a\0\0\5", 40000)
    assert struct.unpack_from(">q4si", data, 56) == (1795208639550, b"\x7f\0\0\1", 10911)
    assert struct.unpack_from(">iqi", data, 72) == (2, 99, 5)
    assert data[88:] == b"hello\x06TopicO" + struct.pack(">h", len(properties)) + properties
    assert len(data) == MESSAGE_OVERHEAD_BYTES + len(b"hello") + len(b"TopicO") + len(properties)


def test_a_record_is_read_as_it_was_written() -> None:
    """Every part comes back under its name."""
    (message,) = decode_messages(record(), "broker-a")
    assert message.broker_name == "broker-a"
    assert message.born_host == (PARTS["born_host"], PARTS["born_port"])
    assert message.store_host == (PARTS["store_host"], PARTS["store_port"])
    for name in set(PARTS) - {"born_host", "born_port", "store_host", "store_port", "topic", "properties"}:
        assert getattr(message, name) == PARTS[name], name
    assert message.topic == "TopicO"
    assert message.properties == {"KEYS": "k1", "TAGS": "TagA", "UNIQ_KEY": "FD00", "__SHARDINGKEY": "N123"}
    assert (message.keys, message.tags, message.sharding_key) == ("k1", "TagA", "N123")
    assert message.stored_bytes == len(record())
    assert message.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF
    assert repr(message) == "<MessageExt TopicO:3@1099511627776 FD00 5B>"


def test_the_id_is_the_producers_or_the_brokers() -> None:
    """UNIQ_KEY where there is one, else address and log offset, as Java's getMsgId."""
    with_key, without = decode_messages(record() + record(properties=b""))
    assert with_key.msg_id == "FD00"
    assert (
        without.msg_id == without.offset_message_id == with_key.offset_message_id == "7F00000100002A9F00000000106A2C20"
    )
    assert (without.tags, without.keys, without.sharding_key, without.properties) == (None, None, None, {})


@by_row(
    "properties, key",
    [
        (b"SHARDING_KEY\x01go\x02TAGS\x01A", "go"),
        (b"TAGS\x01A\x02__SHARDINGKEY\x01java", "java"),
        (b"__SHARDING_KEY\x01old", "old"),
        (b"__SHARDING_KEY\x01old\x02SHARDING_KEY\x01go", "go"),
        (b"SHARDING_KEY\x01go\x02__SHARDINGKEY\x01java", "java"),
        (b"__SHARDINGKEY\x01\x02SHARDING_KEY\x01go", "go"),
        (b"MY_SHARDING_KEY\x01x", None),
        (b"SHARDING_KEYS\x01x", None),
        (b"x\x01SHARDING_KEY", None),
    ],
)
def test_the_names_of_the_sharding_key(properties: bytes, key: str | None) -> None:
    """Go's name and Java 5's are read, and the one that Lockstep wrote once; of several the one of Java 5 wins."""
    (message,) = decode_messages(record(properties=properties))
    assert message.sharding_key == key
    assert sharding_key_of(message.properties) == key


_PIECES = ("__SHARDINGKEY", "SHARDING_KEY", "__SHARDING_KEY", "A__SHARDINGKEY", "\x01", "\x02", "a", "bc", "\u00e9", "")


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join), st.binary(max_size=2))
def test_the_sharding_key_is_the_propertys(text: str, torn: bytes) -> None:
    """Looked for in the bytes it is what the parsed properties say: the first name's last value, if there is any."""
    (message,) = decode_messages(record(properties=text.encode() + torn))
    found = message.sharding_key
    assert found == sharding_key_of(message.properties)
    assert message.sharding_key == found


def test_what_a_consumer_may_change() -> None:
    """A retried message gets its topic back, and counts its retries."""
    (message,) = decode_messages(record(topic=b"%RETRY%G"))
    assert message.topic == "%RETRY%G"
    message.topic = "TopicO"
    message.reconsume_times += 1
    assert (message.topic, message.reconsume_times) == ("TopicO", 3)


@pytest.mark.parametrize(
    ("topic", "properties", "body"),
    [
        (b"", b"", b""),
        (b"T" * 255, b"", b""),
        (b"T", b"a\x01" + b"x" * 32765, b"b"),
        ("ä中".encode(), b"", bytes(5000)),
    ],
)
def test_extremes_of_length(topic: bytes, properties: bytes, body: bytes) -> None:
    """Empty parts and the longest ones that the length fields can say."""
    (message,) = decode_messages(record(topic=topic, properties=properties, body=body))
    assert (message.topic, message.body) == (topic.decode(), body)
    assert len(message.properties) == bool(properties)


@pytest.mark.parametrize(
    "part",
    [{"queue_id": 2**31}, {"queue_offset": 2**63}, {"properties": bytes(2**15)}, {"topic": bytes(256)}],
    ids=lambda part: next(iter(part)),
)  # fmt: skip
def test_numbers_that_do_not_fit(part: dict[str, Any]) -> None:
    """A record that could not be read is not written."""
    with pytest.raises((struct.error, ValueError)):
        record(**part)


def test_messages_back_to_back() -> None:
    """A pull's body is records without padding; an empty body is no message."""
    blob = b"".join(record(queue_offset=i, body=b"x" * i) for i in range(20))
    assert [(m.queue_offset, m.body) for m in decode_messages(blob)] == [(i, b"x" * i) for i in range(20)]
    assert decode_messages(b"") == []


@pytest.mark.parametrize(("born_v6", "store_v6"), [(False, True), (True, False), (True, True)])
def test_hosts_of_sixteen_bytes(born_v6: bool, store_v6: bool) -> None:
    """The sysFlag says which host is IPv6; such records stand among others and have long ids."""
    before, message, after = decode_messages(record() + record_v6(born_v6, store_v6) + record())
    assert before.body == message.body == after.body == b"hello"
    assert message.born_host == (bytes(range(16)) if born_v6 else b"\x0a\0\0\5", 1)
    assert message.store_host == (bytes(range(16, 32)) if store_v6 else b"\x7f\0\0\1", 2)
    assert (message.topic, message.properties, message.reconsume_times) == ("T", {"a": "b"}, 4)
    assert len(message.offset_message_id) == (56 if store_v6 else 32)


@pytest.mark.parametrize(("born_v6", "store_v6"), [(False, False), (False, True), (True, False), (True, True)])
def test_records_of_either_kind_of_host_are_written(born_v6: bool, store_v6: bool) -> None:
    """Each host has its own flag, set from its bytes, and the record is read again as it was."""
    born, store = bytes(range(16 if born_v6 else 4)), bytes(range(16 if store_v6 else 4))
    wrong = (0 if born_v6 else SysFlag.BORN_HOST_V6) | (0 if store_v6 else SysFlag.STORE_HOST_V6)
    (message,) = decode_messages(record(born_host=born, store_host=store, sys_flag=int(wrong)))
    assert (message.born_host, message.store_host) == ((born, 40000), (store, 10911))
    assert message.sys_flag == (0x10 if born_v6 else 0) | (0x20 if store_v6 else 0)
    assert (message.topic, message.body, message.properties["KEYS"]) == ("TopicO", b"hello", "k1")
    assert (message.queue_offset, message.reconsume_times, message.prepared_transaction_offset) == (2**40, 2, 99)


def test_a_senders_ipv6_bits_are_not_stored() -> None:
    """The bits tell how hosts are laid out here; a sender that sets them must not make a record nobody can read."""
    sent = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6 | SysFlag.MULTI_TAGS
    (message,) = decode_messages(record(sys_flag=int(sent)))
    assert message.sys_flag == SysFlag.MULTI_TAGS
    assert message.body == b"hello"


def test_a_body_that_cannot_be_unpacked_corrupts_its_message_alone() -> None:
    """It is handed out as it is stored, with what is wrong with it; those around it are as ever."""
    good = zlib.compress(b"a" * 6000, 5)
    blob = record(body=good, sys_flag=0x301) + record(queue_offset=7, body=b"no zlib", sys_flag=1) + record()
    before, corrupted, after = decode_messages(blob)
    assert (before.body, before.body_error, before.stored_body) == (b"a" * 6000, None, good)
    assert before.body_crc == zlib.crc32(good) & 0x7FFFFFFF
    assert before.stored_bytes < 6000
    assert (corrupted.body, corrupted.stored_body, corrupted.queue_offset) == (b"no zlib", b"no zlib", 7)
    assert "flagged as compressed is not zlib" in (corrupted.body_error or "")
    assert (corrupted.topic, corrupted.keys, corrupted.sys_flag) == ("TopicO", "k1", 1)
    assert (after.body, after.body_error) == (b"hello", None)


def test_without_unzip_a_compressed_body_is_as_it_is_stored() -> None:
    """So a broker writes it anew, whatever its flag says of it."""
    (message,) = decode_messages(record(body=b"no zlib", sys_flag=1), unzip=False)
    assert (message.body, message.body_error) == (b"no zlib", None)


def test_every_cut_is_noticed() -> None:
    """A blob that ends inside a record, at whatever byte, is refused."""
    whole = record(queue_offset=1)
    for cut in range(1, len(whole)):
        for blob in (whole[:cut], whole + whole[:cut]):
            with pytest.raises(BodyError):
                decode_messages(blob)
    long = record_v6(True, True)
    for cut in range(1, len(long)):
        with pytest.raises(BodyError):
            decode_messages(long[:cut])


def patched(offset: int, layout: str, value: int) -> bytes:
    data = bytearray(record() + record())
    struct.pack_into(layout, data, offset, value)
    return bytes(data)


BODY_END, TOPIC_END = 88 + 5, 88 + 5 + 1 + 6


@pytest.mark.parametrize(
    ("offset", "layout", "values"),
    [
        (0, ">i", [0, -1, 4, 90, 92, len(record()) - 1, len(record()) + 1, 2 * len(record()), 2**31 - 1, -(2**31)]),
        (4, ">I", [0, PADDING_MAGIC, 0xDAA320AB, 0xFFFFFFFF]),
        (36, ">i", [0x10, 0x20, 0x30]),
        (84, ">i", [-1, 4, 6, 100, 2**31 - 1, -(2**31)]),
        (BODY_END, ">B", [0, 5, 7, 255]),
        (TOPIC_END, ">h", [-1, 0, len(PROPERTIES) - 1, len(PROPERTIES) + 1, 32767, -32768]),
    ],
    ids=["size", "magic", "sys flag", "body length", "topic length", "properties length"],
)
def test_lengths_that_lie(offset: int, layout: str, values: list[int]) -> None:
    """A length that does not fit the others is refused while decoding, not when the topic is asked for."""
    for value in values:
        with pytest.raises(BodyError, match=r"byte (0|1?5\d):"):
            decode_messages(patched(offset, layout, value))


def test_a_lie_in_a_later_record_names_its_byte() -> None:
    """The error says where the bad record stands."""
    size = len(record())
    with pytest.raises(BodyError, match=f"byte {size}"):
        decode_messages(patched(size + BODY_END, ">B", 200))


RECORDS = [
    BatchRecord(0, b"b1", "UNIQ_KEY\x01A\x02WAIT\x01true"),
    BatchRecord(-5, b"", ""),
    BatchRecord(2**31 - 1, bytes(3000), "ä\x01中😀"),
]


def test_a_batch_goes_there_and_back() -> None:
    """Records of a batch keep flag, body and properties (wire.md 4.4)."""
    assert decode_batch(encode_batch(RECORDS)) == RECORDS
    assert encode_batch(RECORDS[:1]) == struct.pack(">iiiii", 44, 0, 0, 0, 2) + b"b1" + struct.pack(">h", 20) + (
        b"UNIQ_KEY\x01A\x02WAIT\x01true"
    )


def test_a_batch_cut_anywhere_is_refused() -> None:
    """It is a whole number of records, and at least one."""
    blob, ends = encode_batch(RECORDS), [len(encode_batch(RECORDS[:count])) for count in (1, 2)]
    for cut in range(len(blob)):
        if cut not in ends:
            with pytest.raises(BodyError):
                decode_batch(blob[:cut])


@pytest.mark.parametrize(
    ("offset", "layout", "values"),
    [(0, ">i", [0, -1, 21, 43, 45, 2**31 - 1]), (16, ">i", [-1, 1, 3, 2**31 - 1, -(2**31)]),
     (22, ">h", [-1, 19, 21, 32767])],
    ids=["size", "body length", "properties length"],
)  # fmt: skip
def test_a_batch_that_lies(offset: int, layout: str, values: list[int]) -> None:
    """Lengths that do not add up are refused, and always end."""
    for value in values:
        data = bytearray(encode_batch(RECORDS))
        struct.pack_into(layout, data, offset, value)
        with pytest.raises(BodyError):
            decode_batch(bytes(data))
