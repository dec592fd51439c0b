"""Frames recorded from real clients and a real RocketMQ 4.9.8: decode, encode, decode equal; bodies byte-equal.

`FRAMES` says how many frames of each command the recordings hold, so that no test here can pass by covering nothing;
`OTHER_SPELLING` lists every structured body that we write differently from its writer, and why.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lockstep.protocol.bodies.admin import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    TopicStatsTable,
)
from lockstep.protocol.bodies.broker import (
    ClusterInfo,
    ConsumerIdList,
    TopicList,
    TopicRouteData,
)
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.heartbeat import HeartbeatData
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codecs.json_header import to_text
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import REQUEST_HEADERS, RESPONSE_HEADERS
from lockstep.protocol.headers.spec import spec_of
from tests.protocol.recorded import (
    ADMIN,
    CPP,
    FRAMES,
    GO,
    GROUPS,
    JAVA_BINARY,
    NODE,
    VECTORS,
    each_file,
    each_group,
    frames_of,
    group_of,
    recorded_in,
)
from tests.rows import by_row

R = RequestCode
FRAMES_COVERED = 757  # every frame there is
BINARY_FRAMES = 116
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
    (R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "request"): SubscriptionGroupConfig,
    (R.GET_TOPIC_STATS_INFO, "reply"): TopicStatsTable,
    (R.GET_CONSUME_STATS, "reply"): ConsumeStats,
    (R.QUERY_TOPIC_CONSUME_BY_WHO, "reply"): GroupList,
    (R.VIEW_BROKER_STATS_DATA, "reply"): BrokerStatsData,
    (R.GET_BROKER_CONSUME_STATS, "reply"): ConsumeStatsList,
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
    (GO, R.LOCK_BATCH_MQ, "request"): (_DEFAULTS, None),
    (GO, R.UNLOCK_BATCH_MQ, "request"): (_DEFAULTS, None),
    (GO, R.HEART_BEAT, "request"): (_DEFAULTS, None),
    (GO, R.GET_ROUTEINFO_BY_TOPIC, "reply"): (_UNQUOTED, _with_quoted_key),
    (NODE, R.HEART_BEAT, "request"): (_DEFAULTS, None),
    (NODE, R.GET_ROUTEINFO_BY_TOPIC, "reply"): (_UNQUOTED, _with_quoted_key),
    (ADMIN, R.GET_BROKER_CLUSTER_INFO, "reply"): ("cluster info is never strict JSON in 4.9.8", _with_quoted_key),
}


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


def _envelope(command: RemotingCommand, blank: str | None = None) -> tuple[Any, ...]:
    remark = None if command.remark == blank else command.remark
    return command.code, command.version, command.opaque, command.flag, remark, command.body


@each_file
def test_every_covered_frame_is_counted(file: str) -> None:
    """The files hold exactly the frames that FRAMES promises, no command more and none fewer."""
    found = Counter((r.request_code, r.direction) for r in recorded_in(file))
    promised: Counter[tuple[int, str]] = Counter()
    for code, (requests, replies) in FRAMES[file].items():
        promised.update({(int(code), "request"): requests, (int(code), "reply"): replies})
    assert found == +promised


def test_the_number_of_covered_frames() -> None:
    """All recordings are there, and together they cover what they covered when this was written."""
    assert sum(len(recorded_in(file)) for file in FRAMES) == FRAMES_COVERED
    assert {path.stem for path in VECTORS.glob("*.jsonl")} == set(FRAMES)


@each_group
@pytest.mark.parametrize("serialize_type", list(SerializeType), ids=lambda t: t.name)
def test_decode_encode_decode_is_equal(
    file: str, code: RequestCode, direction: str, serialize_type: SerializeType
) -> None:
    """A recorded command, written by us in any encoding and read again, is the same command."""
    for command in group_of(file, code, direction):
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
        blank = "" if serialize_type == SerializeType.ROCKETMQ else None  # there, an empty text is an absent one
        assert _envelope(again) == _envelope(command, blank)
        assert again.serialize_type == serialize_type
        if header_class and header is not None:
            wanted = tuple(None if value == blank else value for value in header)
            assert again.decode_header(header_class) == wanted
        else:
            wanted_fields = {name: value for name, value in (command.ext_fields or {}).items() if value != blank}
            assert (again.ext_fields or {}) == wanted_fields


@each_group
def test_no_field_of_a_header_is_lost(file: str, code: RequestCode, direction: str) -> None:
    """A typed header holds every extFields member but the named ones, and writes it with the same text."""
    for command in group_of(file, code, direction):
        header_class = _header_class(code, command)
        texts = {name: to_text(value) for name, value in (command.ext_fields or {}).items()}
        unknown = IGNORED_FIELDS | (CPP_BOOLEANS if file == CPP else frozenset())
        wanted = {name: text for name, text in texts.items() if name not in unknown}
        if header_class is None:
            assert not wanted
            continue
        written = spec_of(header_class).to_texts(command.decode_header(header_class))
        assert {name: written.get(name) for name in wanted} == wanted


@by_row("file, code, direction", [group for group in GROUPS if (group.values[1], group.values[2]) in BODIES])
def test_structured_bodies(file: str, code: RequestCode, direction: str) -> None:
    """A body read and written again has the bytes it came with, or exactly those that OTHER_SPELLING explains."""
    body_class = BODIES[code, direction]
    _, spelling = OTHER_SPELLING.get((file, code, direction), ("", lambda body: body))
    compared = 0
    for command in group_of(file, code, direction):
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
        for command in group_of(file, code, direction):
            if command.body:
                body = decode_body(BODIES[code, direction], command.body, SerializeType.JSON)
                assert encode_body(body, SerializeType.JSON) != command.body


def test_binary_headers_are_reproduced_to_the_byte() -> None:
    """A header of Java's, written by us with its fields in their order, differs only in the byte of the language."""
    binary = [frame for _, frame in frames_of(JAVA_BINARY) if frame.serialize_type == SerializeType.ROCKETMQ]
    assert len(binary) == BINARY_FRAMES
    for frame in binary:
        command = decode_command(frame)
        assert command.language == LanguageCode.JAVA
        written = encode_command(command)[8:]
        assert written[:2] + bytes([LanguageCode.JAVA]) + written[3:] == frame.header
