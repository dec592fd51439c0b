"""Kernels: pure functions from bytes to bytes, each one flat loop. What a kernel does not know it refuses.

The usual way makes a command, a header and a record of each send, and those objects are what a send costs. A kernel
goes from the bytes of a read to the bytes of the log and of the answers. It keeps nothing and changes nothing, so a
refusal costs nothing: the same bytes then go the usual way. Its results are those of the usual way, byte by byte.
"""

import struct
import zlib
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

import orjson

from lockstep.protocol.codecs.json_text import SHALLOW_BYTES, is_too_deep
from lockstep.protocol.codes import (
    PROPERTIES_BYTES_MAX,
    PROTOCOL_VERSION,
    RequestCode,
    SysFlag,
)
from lockstep.protocol.filter import tags_code_of
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import FIXED_PART, MESSAGE_MAGIC, MESSAGE_OVERHEAD_BYTES
from lockstep.protocol.native import NATIVE
from lockstep.protocol.tuples import new_tuple

__all__ = [
    "ENTRY",
    "PROPERTIES_LENGTH",
    "UNUSUAL",
    "PlainSends",
    "QueueRun",
    "SendSettings",
    "may_be_plain_send",
    "plain_sends",
    "stored_properties",
    "take_sends",
]

# Of a consume queue (wire.md 5): commit log offset, size in bytes, tag hash or time of delivery.
ENTRY: Final = struct.Struct(">qiq")
_LENGTHS: Final = struct.Struct(">II")
PROPERTIES_LENGTH: Final = struct.Struct(">h")
_SEND: Final = int(RequestCode.SEND_MESSAGE)
_SEND_V2: Final = int(RequestCode.SEND_MESSAGE_V2)
# Every client writes the code first. Other frames are not looked at.
_BEGINNINGS: Final = (b'{"code":%d,' % _SEND, b'{"code":%d,' % _SEND_V2)
# SEND_MESSAGE has long names, SEND_MESSAGE_V2 their letters (wire.md 4.1).
_LETTERS: Final = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
    "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip
# librocketmq signs each request, also for a broker that checks no signature.
_SIGNATURE: Final = frozenset(("AccessKey", "OnsChannel", "Signature"))
_FIELDS: Final = frozenset("abcdefghijklmn")
_MAY_BE_NUMBERS: Final = frozenset("defghjklm")
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_IPV4_HOSTS: Final = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_NUMBERS: Final = itemgetter("d", "e", "f", "h")
_NO_BATCH: Final = ("false", "0")  # "0" is C++'s word for it
_PIECES_MAX: Final = 17
_REFUSED_NAMES: Final = frozenset((names.CLUSTER, names.DELAY, names.TRAN_MSG, *names.TIMERS))
# A number of so many digits fits 32 bits.
_DIGITS_MAX: Final = 9
_TEXTS_ALONE: Final = frozenset((str,))
# Of kinds that are remembered; together some 1 MB.
_KINDS_MAX: Final = 1024
_KIND_LENGTH_MAX: Final = 256
UNUSUAL: Final = (KeyError, TypeError, ValueError, AttributeError, struct.error)
_ANSWER: Final = (
    b'{"code":0,"extFields":{"msgId":"%s%016X","queueId":"%d","queueOffset":"%d","MSG_REGION":"DefaultRegion",'
    b'"TRACE_ON":"true"},"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
) + (b"%d}" % PROTOCOL_VERSION)


class SendSettings(NamedTuple):
    """What is the same for all sends of a broker.

    Attributes:
        cluster_pair: The property CLUSTER of each stored message, with its name.
        message_id_prefix: An offset message id without its last 16 hex digits.
        store_host: The broker's address, 4 bytes.
        store_port: Its port.
        body_bytes_max, header_bytes_max: A longer one is refused.
        count_max: So many frames are taken at once; more would keep other connections waiting.
    """

    cluster_pair: str
    message_id_prefix: bytes
    store_host: bytes
    store_port: int
    body_bytes_max: int
    header_bytes_max: int
    count_max: int


class QueueRun(NamedTuple):
    """Consume queue entries of one queue, ENTRY each, from `first_offset` on."""

    topic: str
    queue_id: int
    first_offset: int
    entries: bytes


class PlainSends(NamedTuple):
    """What becomes of some frames.

    Attributes:
        end: Where the first frame begins that was not taken.
        send_count: How many were taken.
        log: Their messages in the stored layout.
        answers: The frames of their answers.
        queues: Their queue entries.
    """

    end: int
    send_count: int
    log: bytes
    answers: bytes
    queues: list[QueueRun]


class _Queue:
    """A queue of the sends that are taken."""

    __slots__ = ("entries", "first_offset", "next_offset", "topic")

    def __init__(self, topic: str, next_offset: int) -> None:
        self.topic = topic.encode()
        self.first_offset = self.next_offset = next_offset
        self.entries: list[bytes] = []


def may_be_plain_send(data: bytes, start: int) -> bool:
    """Whether a frame in JSON with the code of a send begins here; a look at a few bytes."""
    return data.startswith(_BEGINNINGS, start + 8) and data[start + 4] == 0


def plain_sends(
    data: bytes,
    start: int,
    settings: SendSettings,
    next_offset: Callable[[str, int], int | None],
    now_ms: int,
    born: tuple[bytes, int],
    log_offset: int,
) -> PlainSends | None:
    """Take the frames from `start` to the first that is no plain send.

    A plain send has a JSON header, code 10 or 310, no field of ours and no flag. It is no batch, no delayed message and
    no part of a transaction.

    Args:
        next_offset: The offset of the next message of a topic's queue; None when a send to it is not plain.
        now_ms: When the messages are stored, epoch ms.
        born: The peer's address, 4 bytes, and port.
        log_offset: The commit log offset of the first message.

    Returns:
        None: the first frame is not taken.

    Source: wire.md 1.1, 1.2, 4.1, 5
    """
    cluster_pair, prefix, store_host, store_port, body_bytes_max, header_bytes_max, count_max = settings
    queues: dict[tuple[str, int], _Queue] = {}
    log: list[bytes] = []
    answers: list[bytes] = []
    position, data_end, count = start, len(data), 0
    try:
        while count < count_max and data_end - position >= 8:
            total, header_bytes = _LENGTHS.unpack_from(data, position)  # a header of another type seems too long
            body_start, end = position + 8 + header_bytes, position + 4 + total
            body_bytes = end - body_start
            if header_bytes > header_bytes_max or end > data_end or not 0 <= body_bytes <= body_bytes_max:
                break
            opaque, kind, born_ms, properties = _plain_header(data[position + 8 : body_start])
            body = data[body_start:end]
            text, code = stored_properties(properties, cluster_pair)
            queue_key, flag, sys_flag, reconsume_times = kind
            queue = queues.get(queue_key) or _begin_queue(queues, queue_key, next_offset)
            topic, queue_offset, queue_id = queue.topic, queue.next_offset, queue_key[1]
            size = MESSAGE_OVERHEAD_BYTES + body_bytes + len(topic) + len(text)
            fixed = FIXED_PART.pack(
                size, MESSAGE_MAGIC, zlib.crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, log_offset, sys_flag,
                born_ms, *born, now_ms, store_host, store_port, reconsume_times, 0, body_bytes,
            )  # fmt: skip
            answer = _ANSWER % (prefix, log_offset, queue_id, queue_offset, opaque)
            # Nothing below fails: a frame is taken as a whole or not at all.
            log += (fixed, body, bytes((len(topic),)), topic, PROPERTIES_LENGTH.pack(len(text)), text)
            answers += (_LENGTHS.pack(len(answer) + 4, len(answer)), answer)
            queue.entries.append(ENTRY.pack(log_offset, size, code))
            queue.next_offset += 1
            log_offset, position, count = log_offset + size, end, count + 1
    except UNUSUAL:
        pass  # the usual way says what is wrong
    runs = [QueueRun(*key, one.first_offset, b"".join(one.entries)) for key, one in queues.items() if one.entries]
    return new_tuple(PlainSends, (position, count, b"".join(log), b"".join(answers), runs)) if count else None


def _begin_queue(
    queues: dict[tuple[str, int], _Queue], key: tuple[str, int], next_offset: Callable[[str, int], int | None]
) -> _Queue:
    """Raises ValueError when a send to this queue is not plain."""
    first_offset = next_offset(*key)
    if first_offset is None:
        raise ValueError
    queue = queues[key] = _Queue(key[0], first_offset)
    return queue


class _Kind(NamedTuple):
    """What many sends of a client have in common, read from their fields."""

    queue_key: tuple[str, int]
    flag: int
    sys_flag: int
    reconsume_times: int


# By the names and the texts of all fields but two: a client's sends differ in few of them. It saves half of the time
# to read a header, and no result depends on it.
_kinds: Final[dict[tuple[str, ...], _Kind]] = {}


def _plain_header(header: bytes) -> tuple[int, _Kind, int, str]:
    """The opaque, kind, time and properties of a plain send. Raises one of `UNUSUAL` for any other request."""
    parts = orjson.loads(header)
    fields, opaque, code, flag = parts["extFields"], parts["opaque"], parts["code"], parts.get("flag", 0)
    if not (type(code) is type(opaque) is type(flag) is type(parts.get("version", 0)) is int) or flag:
        raise ValueError
    if len(header) > SHALLOW_BYTES and is_too_deep(header):
        raise ValueError
    if code != _SEND_V2:
        if code != _SEND:
            raise ValueError
        fields = _by_letter(fields, long_names=True)
    born_ms, properties = fields.pop("g"), fields.pop("i", "")
    key = (*fields, *fields.values())
    kind = _kinds.get(key)
    if kind is None:
        kind = _new_kind(fields)
        # Of texts alone, because as a key True is 1; and without a signature, which is new each time.
        if fields.keys() <= _FIELDS and _TEXTS_ALONE.issuperset(map(type, key)):
            _remember(key, kind)
    if type(born_ms) is not str:
        born_ms = _as_text("g", born_ms)
    if not (born_ms.isdecimal() and born_ms.isascii()):
        raise ValueError
    return opaque, kind, int(born_ms), properties


def _remember(key: tuple[str, ...], kind: _Kind) -> None:
    if len("".join(key)) <= _KIND_LENGTH_MAX:
        if len(_kinds) == _KINDS_MAX:
            _kinds.clear()
        _kinds[key] = kind


def _new_kind(fields: dict[str, Any]) -> _Kind:
    """Raises one of `UNUSUAL` when the send is not plain."""
    if not fields.keys() <= _FIELDS:
        fields = _by_letter(fields, long_names=False)
    if not _TEXTS_ALONE.issuperset(map(type, fields.values())):
        fields = {name: _as_text(name, value) for name, value in fields.items()}
    numbers = *_NUMBERS(fields), fields.get("j", "0"), fields.get("l", "0")
    digits = "".join(numbers)
    if not (digits.isdecimal() and digits.isascii()) or "" in numbers:
        raise ValueError
    # A number of nine digits fits 32 bits; `FIXED_PART` checks the others. They are stored; these two are only checked.
    if len(fields["d"]) > _DIGITS_MAX or len(fields.get("l", "")) > _DIGITS_MAX:
        raise ValueError
    sys_flag = int(fields["f"])
    if sys_flag & _TRANSACTION or fields.get("m", "false") not in _NO_BATCH:
        raise ValueError
    if not ("a" in fields and "c" in fields):
        raise ValueError
    queue_key = fields["b"], int(fields["e"])
    return _Kind(queue_key, int(fields["h"]), sys_flag & _IPV4_HOSTS, int(fields.get("j", "0")))


def _by_letter(fields: dict[str, Any], *, long_names: bool) -> dict[str, Any]:
    """The fields by the letters of SEND_MESSAGE_V2, without a signature. Raises KeyError for others."""
    known = _LETTERS if long_names else dict.fromkeys(_FIELDS)
    letters = {name: known[name] or name for name in fields if name not in _SIGNATURE}
    return {letter: fields[name] for name, letter in letters.items()}


def _as_text(name: str, value: object) -> str:
    """ali-ons sends numbers and booleans in some fields. Raises TypeError for any other value."""
    if type(value) is str:
        return value
    if type(value) not in (int, bool) or name not in _MAY_BE_NUMBERS:
        raise TypeError
    return str(value).lower()


def stored_properties(text: str, cluster_pair: str) -> tuple[bytes, int]:
    """The properties without WAIT, which is for this broker, with CLUSTER; and the hash of the tag.

    Raises ValueError when they are too long, or a name comes twice or makes the send another kind.
    """
    pieces = text.split(names.PAIR_END)
    if len(pieces) > _PIECES_MAX:
        raise ValueError
    found: dict[str, str] = {}
    for piece in pieces:
        name, _, value = piece.partition(names.NAME_END)
        if name and value:
            if name in found:
                raise ValueError
            found[name] = piece
    if not _REFUSED_NAMES.isdisjoint(found):
        raise ValueError
    tag = found.get(names.TAGS)
    code = 0 if tag is None else tags_code_of(tag.partition(names.NAME_END)[2])
    found.pop(names.WAIT, None)
    kept = [*found.values(), cluster_pair]
    stored = names.PAIR_END.join(kept).encode()
    if len(stored) > PROPERTIES_BYTES_MAX:
        raise ValueError
    return stored, code


def _natively(*arguments: Any) -> PlainSends | None:
    assert NATIVE is not None
    sends = NATIVE.plain_sends(*arguments)
    return None if sends is None else new_tuple(PlainSends, sends)


take_sends = plain_sends if NATIVE is None else _natively
"""`plain_sends` by the arm of this process."""
