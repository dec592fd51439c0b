"""Frames recorded from real clients and a real RocketMQ 4.9.8: decode, encode, decode equal; bodies byte-equal.

`FRAMES` says how many frames of each command the recordings hold, so that no test here can pass by covering nothing;
`OTHER_SPELLING` lists every structured body that we write differently from its writer, and why.
"""

import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lockstep.protocol.bodies import (
    ClusterInfo,
    ConsumerIdList,
    LockBatchBody,
    LockOkBody,
    TopicList,
    TopicRouteData,
)
from lockstep.protocol.body_codec import WireBody, decode_body, encode_body
from lockstep.protocol.codecs.json_header import to_text
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.frame import Frame, FrameDecoder
from lockstep.protocol.header_spec import spec_of
from lockstep.protocol.headers import REQUEST_HEADERS, RESPONSE_HEADERS
from lockstep.protocol.heartbeat import HeartbeatData
from lockstep.protocol.message import decode_batch, decode_messages, encode_batch, encode_stored_message
from lockstep.protocol.properties import decode_properties

VECTORS = Path(__file__).parent.parent / "vectors"
CPP, JAVA, JAVA_BINARY, ADMIN, NODE = (
    "cpp-1.0.1-ordered",
    "java-4.9.8-ordered",
    "java-4.9.8-ordered-binary-header",
    "mqadmin-4.9.8",
    "node-ali-ons-3.12",
)
R = RequestCode

# file -> command -> (requests, replies) with JSON headers.
FRAMES: Mapping[str, Mapping[RequestCode, tuple[int, int]]] = {
    CPP: {
        R.SEND_MESSAGE: (5, 5),
        R.PULL_MESSAGE: (9, 6),
        R.QUERY_CONSUMER_OFFSET: (3, 3),
        R.UPDATE_CONSUMER_OFFSET: (17, 17),
        R.HEART_BEAT: (2, 2),
        R.UNREGISTER_CLIENT: (2, 2),
        R.GET_CONSUMER_LIST_BY_GROUP: (6, 6),
        R.NOTIFY_CONSUMER_IDS_CHANGED: (1, 0),
        R.LOCK_BATCH_MQ: (5, 5),
        R.UNLOCK_BATCH_MQ: (1, 1),
        R.GET_ROUTEINFO_BY_TOPIC: (8, 8),
    },
    JAVA: {
        R.PULL_MESSAGE: (13, 10),
        R.QUERY_CONSUMER_OFFSET: (6, 6),
        R.UPDATE_CONSUMER_OFFSET: (15, 0),
        R.HEART_BEAT: (5, 5),
        R.UNREGISTER_CLIENT: (4, 4),
        R.GET_CONSUMER_LIST_BY_GROUP: (6, 6),
        R.NOTIFY_CONSUMER_IDS_CHANGED: (1, 0),
        R.LOCK_BATCH_MQ: (5, 5),
        R.UNLOCK_BATCH_MQ: (1, 1),
        R.GET_ROUTEINFO_BY_TOPIC: (10, 10),
        R.SEND_MESSAGE_V2: (8, 7),
        R.SEND_BATCH_MESSAGE: (1, 1),
    },
    # A broker answers held pulls, and notifies, with JSON headers whatever the request had.
    JAVA_BINARY: {R.PULL_MESSAGE: (0, 7), R.NOTIFY_CONSUMER_IDS_CHANGED: (1, 0)},
    ADMIN: {
        R.PULL_MESSAGE: (1, 1),
        R.UPDATE_CONSUMER_OFFSET: (2, 2),
        R.UPDATE_AND_CREATE_TOPIC: (1, 1),
        R.GET_MAX_OFFSET: (2, 2),
        R.UNREGISTER_CLIENT: (16, 16),
        R.GET_ROUTEINFO_BY_TOPIC: (43, 43),
        R.GET_BROKER_CLUSTER_INFO: (2, 2),
        R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (3, 3),
    },
    NODE: {
        R.PULL_MESSAGE: (9, 6),
        R.QUERY_CONSUMER_OFFSET: (3, 3),
        R.UPDATE_CONSUMER_OFFSET: (18, 18),
        R.HEART_BEAT: (2, 2),
        R.UNREGISTER_CLIENT: (2, 2),
        R.GET_CONSUMER_LIST_BY_GROUP: (7, 7),
        R.NOTIFY_CONSUMER_IDS_CHANGED: (2, 0),
        R.GET_ROUTEINFO_BY_TOPIC: (4, 4),
        R.SEND_MESSAGE_V2: (4, 4),
    },
}
FRAMES_COVERED = 489
BINARY_FRAMES = 116  # their header codec comes with the binary encoding
MESSAGES = {CPP: 4, JAVA: 8, JAVA_BINARY: 5, ADMIN: 1, NODE: 4}
# Members of extFields that carry no meaning without ACL, namespaces and request streams.
IGNORED_FIELDS = frozenset({"AccessKey", "OnsChannel", "Signature", "bname", "ReqT"})
CPP_BOOLEANS = frozenset({"k", "m", "unitMode", "batch"})  # "0" and "1", both false by Java's rule

BODIES: Mapping[tuple[RequestCode, str], type[WireBody]] = {
    (R.HEART_BEAT, "request"): HeartbeatData,
    (R.LOCK_BATCH_MQ, "request"): LockBatchBody,
    (R.LOCK_BATCH_MQ, "reply"): LockOkBody,
    (R.UNLOCK_BATCH_MQ, "request"): LockBatchBody,
    (R.GET_CONSUMER_LIST_BY_GROUP, "reply"): ConsumerIdList,
    (R.GET_ROUTEINFO_BY_TOPIC, "reply"): TopicRouteData,
    (R.GET_BROKER_CLUSTER_INFO, "reply"): ClusterInfo,
    (R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "reply"): TopicList,
}


def _without_newline(body: bytes) -> bytes:
    assert body.endswith(b"\n")
    return body[:-1]


def _with_quoted_key(body: bytes) -> bytes:
    assert b"{0:" in body
    return body.replace(b"{0:", b'{"0":')


_NEWLINE = "C++ ends a body with a newline; we do not"
_UNQUOTED = "fastjson left integer keys unquoted: the request's version was below 4.9.4; we always quote"
_DEFAULTS = (
    "the writer leaves out members that Java writes, has another order or ordinals for enums; we write Java's form"
)

# Bodies that are not byte-equal: the reason, and the bytes we do write; None where only the values can be compared.
OTHER_SPELLING: Mapping[tuple[str, RequestCode, str], tuple[str, Callable[[bytes], bytes] | None]] = {
    (CPP, R.LOCK_BATCH_MQ, "request"): (_NEWLINE, _without_newline),
    (CPP, R.UNLOCK_BATCH_MQ, "request"): (_NEWLINE, _without_newline),
    (CPP, R.HEART_BEAT, "request"): (_DEFAULTS, None),
    (CPP, R.GET_ROUTEINFO_BY_TOPIC, "reply"): (_UNQUOTED, _with_quoted_key),
    (NODE, R.HEART_BEAT, "request"): (_DEFAULTS, None),
    (NODE, R.GET_ROUTEINFO_BY_TOPIC, "reply"): (_UNQUOTED, _with_quoted_key),
    (ADMIN, R.GET_BROKER_CLUSTER_INFO, "reply"): ("cluster info is never strict JSON in 4.9.8", _with_quoted_key),
}

GROUPS = [
    pytest.param(file, code, direction, id=f"{file}:{code.name}:{direction}")
    for file, commands in FRAMES.items()
    for code, counts in commands.items()
    for direction, count in zip(("request", "reply"), counts, strict=True)
    if count
]
each_group = pytest.mark.parametrize(("file", "code", "direction"), GROUPS)
each_file = pytest.mark.parametrize("file", FRAMES)


class Recorded(NamedTuple):
    request_code: int
    direction: str
    command: RemotingCommand


@cache
def _frames(file: str) -> tuple[tuple[str, Frame], ...]:
    """Each line of a file as (link, frame); every line must be exactly one frame."""
    frames = []
    for line in (VECTORS / f"{file}.jsonl").read_text("ascii").splitlines():
        row = json.loads(line)
        decoder = FrameDecoder()
        decoder.feed(bytes.fromhex(row["hex"]))
        frame = decoder.next_frame()
        assert frame is not None
        assert decoder.buffered_bytes == 0
        frames.append((row["link"], frame))
    return tuple(frames)


@cache
def _recorded(file: str) -> tuple[Recorded, ...]:
    """The frames with JSON headers of the commands that are built, each with the code of its request."""
    asked: dict[tuple[str, int], int] = {}
    recorded = []
    for link, frame in _frames(file):
        if frame.serialize_type == SerializeType.ROCKETMQ:
            code, _, _, opaque, flag = struct.unpack_from(">hBhii", frame.header)
            if not flag & 1:
                asked[link, opaque] = code
            continue
        command = decode_command(frame)
        if not command.is_reply:
            asked[link, command.opaque] = command.code
        code = asked[link, command.opaque] if command.is_reply else command.code
        if code in {int(request_code) for request_code in RequestCode}:
            recorded.append(Recorded(code, "reply" if command.is_reply else "request", command))
    return tuple(recorded)


def _group(file: str, code: RequestCode, direction: str) -> list[RemotingCommand]:
    commands = [r.command for r in _recorded(file) if (r.request_code, r.direction) == (code, direction)]
    assert len(commands) == FRAMES[file][code][direction == "reply"]
    return commands


def _header_class(code: int, command: RemotingCommand) -> type[tuple[Any, ...]] | None:
    if not command.is_reply:
        return REQUEST_HEADERS.get(code)
    with_header = (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
    return RESPONSE_HEADERS.get(code) if command.code in with_header else None


def _through_the_wire(command: RemotingCommand) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(encode_command(command) + command.body)
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.buffered_bytes == 0
    return decode_command(frame)


def _envelope(command: RemotingCommand) -> tuple[Any, ...]:
    return command.code, command.version, command.opaque, command.flag, command.remark, command.body


@each_file
def test_every_covered_frame_is_counted(file: str) -> None:
    """The files hold exactly the frames that FRAMES promises, no command more and none fewer."""
    found = Counter((r.request_code, r.direction) for r in _recorded(file))
    promised: Counter[tuple[int, str]] = Counter()
    for code, (requests, replies) in FRAMES[file].items():
        promised.update({(int(code), "request"): requests, (int(code), "reply"): replies})
    assert found == +promised


def test_the_number_of_covered_frames() -> None:
    """All five recordings are there, and together they cover what they covered when this was written."""
    assert sum(len(_recorded(file)) for file in FRAMES) == FRAMES_COVERED
    assert {path.stem for path in VECTORS.glob("*.jsonl")} == set(FRAMES)


@each_group
@pytest.mark.parametrize("serialize_type", [SerializeType.JSON, SerializeType.MSGPACK], ids=lambda t: t.name)
def test_decode_encode_decode_is_equal(
    file: str, code: RequestCode, direction: str, serialize_type: SerializeType
) -> None:
    """A recorded command, written by us in either encoding and read again, is the same command."""
    for command in _group(file, code, direction):
        header_class = _header_class(code, command)
        header = command.decode_header(header_class) if header_class else None
        again = _through_the_wire(
            RemotingCommand(
                command.code,
                header,
                command.body,
                remark=command.remark,
                ext_fields=None if header_class else command.ext_fields,
                flag=command.flag,
                opaque=command.opaque,
                version=command.version,
                serialize_type=serialize_type,
            )
        )
        assert _envelope(again) == _envelope(command)
        assert again.serialize_type == serialize_type
        if header_class:
            assert again.decode_header(header_class) == header
        else:
            assert again.ext_fields == command.ext_fields


@each_group
def test_no_field_of_a_header_is_lost(file: str, code: RequestCode, direction: str) -> None:
    """A typed header holds every extFields member but the named ones, and writes it with the same text."""
    for command in _group(file, code, direction):
        header_class = _header_class(code, command)
        texts = {name: to_text(value) for name, value in (command.ext_fields or {}).items()}
        unknown = IGNORED_FIELDS | (CPP_BOOLEANS if file == CPP else frozenset())
        wanted = {name: text for name, text in texts.items() if name not in unknown}
        if header_class is None:
            assert not wanted
            continue
        written = spec_of(header_class).to_texts(command.decode_header(header_class))
        assert {name: written.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("file", "code", "direction"), [group for group in GROUPS if (group.values[1], group.values[2]) in BODIES]
)
def test_structured_bodies(file: str, code: RequestCode, direction: str) -> None:
    """A body read and written again has the bytes it came with, or exactly those that OTHER_SPELLING explains."""
    body_class = BODIES[code, direction]
    _, spelling = OTHER_SPELLING.get((file, code, direction), ("", lambda body: body))
    compared = 0
    for command in _group(file, code, direction):
        if command.is_reply and command.code != ResponseCode.SUCCESS:
            assert command.body == b""
            continue
        body = decode_body(body_class, command.body, SerializeType.JSON)
        written = encode_body(body, SerializeType.JSON)
        if spelling is not None:
            assert written == spelling(command.body)
        assert decode_body(body_class, written, SerializeType.JSON) == body
        packed = encode_body(body, SerializeType.MSGPACK)
        assert decode_body(body_class, packed, SerializeType.MSGPACK) == body
        compared += 1
    assert compared


def test_other_spelling_names_only_bodies_that_differ() -> None:
    """An exception that is no longer needed must leave the table."""
    for file, code, direction in OTHER_SPELLING:
        for command in _group(file, code, direction):
            if command.body:
                body = decode_body(BODIES[code, direction], command.body, SerializeType.JSON)
                assert encode_body(body, SerializeType.JSON) != command.body


def _record_parts(record: bytes) -> tuple[bytes, bytes, bytes]:
    """Body as stored, topic and property string of an IPv4 record, read by the layout of wire.md 5."""
    (body_bytes,) = struct.unpack_from(">i", record, 84)
    body_end = 88 + body_bytes
    topic_end = body_end + 1 + record[body_end]
    return record[88:body_end], record[body_end + 1 : topic_end], record[topic_end + 2 :]


@each_file
def test_stored_messages_are_reproduced_to_the_byte(file: str) -> None:
    """A pulled record, taken apart and put together again, has the broker's bytes, and its CRC is that of its body.

    All recorded hosts are IPv4, the only kind that is written here; IPv6 records are read only (test_message).
    A broker stores WAIT twice for batched messages, so the property string is passed through, not rebuilt.
    """
    seen = 0
    for recorded in _recorded(file):
        if recorded.request_code != R.PULL_MESSAGE or not recorded.command.body:
            continue
        blob, position = recorded.command.body, 0
        for message in decode_messages(blob, "broker-a"):
            record = blob[position : position + message.stored_bytes]
            position += message.stored_bytes
            body, topic, properties = _record_parts(record)
            born_host, store_host = message.born_host, message.store_host
            assert record == encode_stored_message(
                queue_id=message.queue_id,
                flag=message.flag,
                queue_offset=message.queue_offset,
                commit_log_offset=message.commit_log_offset,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=born_host[0],
                born_port=born_host[1],
                store_timestamp=message.store_timestamp,
                store_host=store_host[0],
                store_port=store_host[1],
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
                body=body,
                topic=topic,
                properties=properties,
            )
            assert message.body_crc == zlib.crc32(body) & 0x7FFFFFFF
            assert message.body == (zlib.decompress(body) if message.sys_flag & 1 else body)
            assert message.topic == topic.decode()
            assert message.properties == decode_properties(properties.decode())
            seen += 1
        assert position == len(blob)
    assert seen == MESSAGES[file]


def test_the_batch_is_reproduced_to_the_byte() -> None:
    """The body of SEND_BATCH_MESSAGE, read and written again, is what Java sent."""
    (command,) = _group(JAVA, R.SEND_BATCH_MESSAGE, "request")
    records = decode_batch(command.body)
    assert [record.body for record in records] == [b"b1", b"b2"]
    assert encode_batch(records) == command.body


def test_frames_with_binary_headers_are_refused_one_by_one() -> None:
    """A header of type 1 is a HeaderError, not a FrameError: the connection stays readable."""
    binary = [frame for _, frame in _frames(JAVA_BINARY) if frame.serialize_type == SerializeType.ROCKETMQ]
    assert len(binary) == BINARY_FRAMES
    for frame in binary:
        with pytest.raises(HeaderError, match="type 1"):
            decode_command(frame)
