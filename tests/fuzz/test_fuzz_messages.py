"""Stored records and batches after somebody changed their bytes, and texts that go there and back."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.errors import BodyError, LocalProtocolError
from lockstep.protocol.filter import java_string_hash, parse_tags
from lockstep.protocol.messages.batch import BatchRecord, decode_batch, encode_batch
from lockstep.protocol.messages.ids import decode_offset_message_id, encode_offset_message_id
from lockstep.protocol.messages.message import MessageExt, PyMessageExt, decode_messages
from lockstep.protocol.messages.properties import check_user_properties, decode_properties, encode_properties
from lockstep.protocol.messages.together import decode_rows, decode_sends, encode_rows
from tests.fuzz.strategies import (
    batches,
    fuzz,
    fuzz_broken,
    int32s,
    int64s,
    send_frames,
    stored_blobs,
    stored_message,
    stored_parts,
    texts,
    with_bytes_changed,
)


@st.composite
def lying_blobs(draw: st.DrawFn) -> bytes:
    """Records whose lengths or sysFlag were overwritten with likely numbers."""
    data = bytearray(draw(stored_blobs))
    body_bytes = struct.unpack_from(">i", data, 84)[0]
    topic_at = 88 + body_bytes
    field, layout = draw(
        st.sampled_from([(0, ">i"), (36, ">i"), (84, ">i"), (topic_at, ">B"), (topic_at + 1 + data[topic_at], ">h")])
    )
    (old,) = struct.unpack_from(layout, data, field)
    limit = {">i": 2**31 - 1, ">h": 2**15 - 1, ">B": 255}[layout]
    low = 0 if layout == ">B" else -limit - 1
    new = draw(st.one_of(st.integers(old - 30, old + 30), st.integers(low, limit), st.just(old ^ 0x10)))
    struct.pack_into(layout, data, field, min(max(new, low), limit))
    return bytes(data)


def check_blob(blob: bytes, decode: Callable[[bytes], list[MessageExt]] = decode_messages) -> None:
    try:
        messages = decode(blob)
    except BodyError:
        return
    assert sum(message.stored_bytes for message in messages) == len(blob)
    for message in messages:
        assert isinstance(message.topic, str)
        assert isinstance(message.properties, dict)
        assert message.msg_id
        assert repr(message)
        assert decode_offset_message_id(message.offset_message_id).commit_log_offset == message.commit_log_offset


@fuzz
@given(st.one_of(st.binary(max_size=200), with_bytes_changed(stored_blobs), lying_blobs()))
def test_changed_records(blob: bytes) -> None:
    """Bytes are records whose every part can be read and that fill them exactly, or a BodyError and nothing else."""
    check_blob(blob)


@fuzz
@given(stored_parts, stored_parts)
def test_records_go_there_and_back(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Every part of a record is read as it was written, also behind another one."""
    blob = stored_message(first) + stored_message(second)
    for parts, message in zip((first, second), decode_messages(blob), strict=True):
        for name in ("queue_id", "flag", "queue_offset", "commit_log_offset", "sys_flag", "born_timestamp",
                     "store_timestamp", "reconsume_times", "prepared_transaction_offset", "body"):  # fmt: skip
            assert getattr(message, name) == parts[name], name
        assert message.born_host == (parts["born_host"], parts["born_port"])
        assert message.store_host == (parts["store_host"], parts["store_port"])
        assert message.topic.encode() == parts["topic"]
        assert message.properties == decode_properties(parts["properties"].decode("utf-8", "replace"))
        assert message.body_crc == zlib.crc32(parts["body"]) & 0x7FFFFFFF


@fuzz
@given(st.one_of(st.binary(max_size=80), with_bytes_changed(batches.map(encode_batch))))
def test_changed_batches(blob: bytes) -> None:
    """Bytes are a batch that fills them exactly, or a BodyError and nothing else."""
    try:
        records = decode_batch(blob)
    except BodyError:
        return
    sizes = [22 + len(record.body) + len(record.properties.encode()) for record in records]
    if "\ufffd" not in "".join(record.properties for record in records):
        assert sum(sizes) == len(blob)


@fuzz
@given(batches)
def test_batches_go_there_and_back(records: list[BatchRecord]) -> None:
    """A batch is read as it was written."""
    assert decode_batch(encode_batch(records)) == records


@fuzz
@given(st.dictionaries(texts, texts, max_size=5))
def test_properties_go_there_and_back(properties: dict[str, str]) -> None:
    """Every map that a producer may send is read as it was written."""
    try:
        check_user_properties(properties)
    except LocalProtocolError:
        return
    assert decode_properties(encode_properties(properties)) == properties


@fuzz
@given(st.text(alphabet="ab\x01\x02", max_size=20))
def test_any_property_string(text: str) -> None:
    """What a broker parsed and writes again is parsed to the same map."""
    properties = decode_properties(text)
    assert all(name and value for name, value in properties.items())
    assert decode_properties(encode_properties(properties)) == properties


@fuzz
@given(st.sampled_from([4, 16]).flatmap(lambda n: st.binary(min_size=n, max_size=n)), int32s, int64s)
def test_offset_ids_go_there_and_back(host: bytes, port: int, offset: int) -> None:
    """An id is read as it was written."""
    assert decode_offset_message_id(encode_offset_message_id(host, port, offset)) == (host, port, offset)


@fuzz
@given(st.text(alphabet=st.characters(), max_size=30))
def test_the_hash_is_javas(text: str) -> None:
    """h = 31 h + unit over UTF-16, as a signed int."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    assert java_string_hash(text) == struct.unpack(">i", struct.pack(">I", value))[0]


@fuzz
@given(st.lists(st.text(alphabet="ab ", min_size=1, max_size=4), min_size=1, max_size=5))
def test_tags_are_found_in_their_expression(tags: list[str]) -> None:
    """An expression of tags gives these tags, trimmed, in order, each once."""
    wanted = list(dict.fromkeys(stripped for tag in tags if (stripped := tag.strip())))
    if wanted:
        assert list(parse_tags(" || ".join(tags))) == wanted


def _trusting(blob: bytes) -> list[MessageExt]:
    """Decodes as long as the magic is right, and believes every length."""
    layout, messages, position = struct.Struct(">iIiiiqqiq4siq4siiqi"), [], 0
    while position < len(blob):
        fixed = layout.unpack_from(blob, position)
        if fixed[1] != 0xDAA320A7 or fixed[0] <= 0:
            raise BodyError("no message")
        tail = position + 88 + fixed[16]
        messages.append(PyMessageExt(blob, fixed, blob[position + 88 : tail], tail, ""))
        position += fixed[0]
    return messages


def test_a_trusting_reader_is_caught() -> None:
    """The canary: a reader that believes the lengths does not pass."""

    @fuzz_broken
    @given(lying_blobs())
    def check(blob: bytes) -> None:
        check_blob(blob, _trusting)

    with pytest.raises((AssertionError, struct.error, IndexError)):
        check()


@given(send_frames, st.binary(max_size=30), st.integers(-1, 9))
@fuzz
def test_frames_of_sends_lawful_cut_and_changed(frame: tuple[bytes, int], noise: bytes, count: int) -> None:
    """A lawful frame is read; whatever else comes, its lengths add up to its bytes, or it is refused as a whole."""
    body, messages = frame
    queues, heads, texts = decode_sends(body, messages)
    assert len(heads) == messages
    assert texts + sum(head[5] + head[6] for head in heads) == len(body)
    for changed in (body + noise, noise + body, body[: len(noise)], noise):
        try:
            queues, heads, texts = decode_sends(changed, count)
        except BodyError:
            continue
        assert len(heads) == count
        assert texts + sum(head[5] + head[6] for head in heads) == len(changed)
        assert all(head[0] < len(queues) and head[5] >= 0 for head in heads)


@given(st.lists(st.tuples(int32s, int64s, int64s), max_size=5), texts, st.binary(max_size=60), st.integers(0, 9))
@fuzz
def test_results_of_sends_there_and_back(
    rows: list[tuple[int, int, int]], remark: str, noise: bytes, count: int
) -> None:
    """Rows and remarks are what was written; noise is read whole or refused."""
    remarks = [remark.encode("utf-8", "replace").decode()] * sum(1 for code, _, _ in rows if code)
    assert decode_rows(encode_rows(rows, remarks), len(rows)) == (rows, remarks)
    try:
        read, _ = decode_rows(noise, count)
    except BodyError:
        return
    assert len(read) == count
