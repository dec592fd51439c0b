"""Messages of apache.rocketmq.v2 as the broker stores them, and back."""

import functools
import hashlib
import ipaddress
import zlib
from typing import Any, Final

from lockstep.broker.fronts.grpc.failures import Failure
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.errors import BodyError
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.compression import decompress
from lockstep.protocol.messages.message import MessageExt
from lockstep.remoting.settings import Address

__all__ = [
    "Delivered",
    "duration_ms",
    "enum_name",
    "group_of",
    "plain_body",
    "properties_of",
    "set_duration",
    "set_timestamp",
    "to_message",
    "type_of",
]

_BORN_HOST: Final = "__BORNHOST"
_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
_TRANSACTION_ID: Final = "__transactionId__"
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1
_GZIP: Final = 16 + zlib.MAX_WBITS
# Readers see these, although names like them are reserved for senders.
_SHOWN: Final = frozenset((names.TRANSACTION_CHECK_TIMES, names.CHECK_IMMUNITY_TIME_IN_SECONDS))
_HIDDEN: Final = (
    names.RESERVED_PROPERTIES
    | names.TIMED
    | {
        _BORN_HOST,
        _BORN_TIMESTAMP,
        names.POP_CK,
        names.FIRST_POP_TIME,
        names.ORIGIN_GROUP,
        names.TIMER_OUT_MS,
    }
) - _SHOWN


def duration_ms(value: pb.Duration | pb.Timestamp) -> int:
    """Milliseconds, cut; of a time since the epoch, too. At most what 64 bits hold, as a message is stored."""
    return max(-_INT64_MAX, min(int(value.seconds * 1000 + value.nanos // 1_000_000), _INT64_MAX))


def enum_name(kind: Any, number: int) -> str:
    """The name of a value of an enumeration; the number where it is none: a client may send any."""
    return str(kind.Name(number)) if number in kind.values() else str(number)


def set_duration(target: pb.Duration, ms: int) -> None:
    target.seconds, target.nanos = ms // 1000, ms % 1000 * 1_000_000


def set_timestamp(target: pb.Timestamp, ms: int) -> None:
    target.seconds, target.nanos = ms // 1000, ms % 1000 * 1_000_000


# What is sent ----------------------------------------------------------------------------------------------------


def type_of(message: pb.Message) -> pb.MessageType:
    """The type that its content makes it, whatever its field says, as in RocketMQ."""
    system = message.system_properties
    if system.HasField("lite_topic"):
        return pb.LITE
    if system.HasField("priority"):
        return pb.PRIORITY
    if system.message_type == pb.TRANSACTION:
        return pb.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return pb.DELAY
    return pb.FIFO if group_of(message) else pb.NORMAL


def group_of(message: pb.Message) -> str:
    """The message group; "": it has none. Who names it as a property means the same."""
    return str(message.system_properties.message_group or message.user_properties.get(names.SHARDING_KEY, ""))


def properties_of(message: pb.Message, topic: str) -> dict[str, str]:
    """The properties that are stored with a message."""
    system = message.system_properties
    properties = dict(message.user_properties)
    properties[names.UNIQ_KEY] = system.message_id
    if system.tag:
        properties[names.TAGS] = system.tag
    if system.keys:
        properties[names.KEYS] = " ".join(system.keys)
    if system.message_group:
        properties[names.SHARDING_KEY] = system.message_group
    if system.HasField("trace_context"):
        properties[_TRACE_CONTEXT] = system.trace_context
    if system.HasField("delivery_timestamp"):
        properties[names.TIMER_DELIVER_MS] = str(duration_ms(system.delivery_timestamp))
    if system.born_host:
        properties[_BORN_HOST] = system.born_host
    if system.HasField("born_timestamp"):
        properties[_BORN_TIMESTAMP] = str(duration_ms(system.born_timestamp))
    properties[names.PGROUP] = topic
    return properties


def plain_body(message: pb.Message, bytes_max: int) -> bytes:
    """The body as its sender had it: clients of RocketMQ 4 read no gzip. Raises Failure.

    One over the limit is cut, one byte above it.
    """
    if message.system_properties.body_encoding != pb.GZIP or not message.body:
        return message.body
    unzip = zlib.decompressobj(_GZIP)
    try:
        body = unzip.decompress(message.body, bytes_max + 1)
    except zlib.error as error:
        raise Failure(pb.MESSAGE_CORRUPTED, f"the body is no gzip: {error}") from None
    if len(body) <= bytes_max and (not unzip.eof or unzip.unused_data):
        raise Failure(pb.MESSAGE_CORRUPTED, "the body is not one whole gzip")
    return body


# What is received ------------------------------------------------------------------------------------------------


class Delivered:
    """What a delivery adds to the messages of one answer.

    Attributes:
        unzipped_bytes_left: So many bytes of bodies may still be unpacked: a few kilobytes may stand for 64 MiB.

    Args:
        body_bytes_max: A body that unpacks to more is a bomb: it stays as it is stored.
    """

    def __init__(self, topic: str, unzipped_bytes_left: int, body_bytes_max: int) -> None:
        self.topic = topic
        self.unzipped_bytes_left = unzipped_bytes_left
        self._body_bytes_max = body_bytes_max

    def body_of(self, stored: MessageExt) -> tuple[bytes, pb.Encoding]:
        """The body and its encoding."""
        if not stored.sys_flag & _COMPRESSED:
            return stored.body, pb.IDENTITY
        try:
            body = decompress(stored.body, stored.sys_flag, min(self.unzipped_bytes_left, self._body_bytes_max))
        except BodyError:
            return stored.body, pb.GZIP
        self.unzipped_bytes_left -= len(body)
        return body, pb.IDENTITY


def to_message(stored: MessageExt, delivered: Delivered, handle: str, attempt: int) -> pb.Message:
    """A stored message as clients get it.

    Args:
        handle: The receipt handle of the delivery; empty: it is none.
        attempt: The first one is 1.
    """
    made = pb.Message()
    made.topic.name = delivered.topic
    properties, system = stored.properties, made.system_properties
    made.body, system.body_encoding = delivered.body_of(stored)
    for name, value in properties.items():
        if name not in _HIDDEN:
            made.user_properties[name] = value
    system.message_id = stored.msg_id
    system.body_digest.type = pb.MD5
    # No secret hangs on it: clients compare it to find damaged bodies.
    system.body_digest.checksum = hashlib.md5(made.body, usedforsecurity=False).hexdigest().upper()
    set_timestamp(system.born_timestamp, stored.born_timestamp)
    system.born_host = properties.get(_BORN_HOST) or _ip(stored.born_host[0])
    set_timestamp(system.store_timestamp, stored.store_timestamp)
    system.store_host = _host(*stored.store_host)
    system.queue_id, system.queue_offset = stored.queue_id, stored.queue_offset
    system.delivery_attempt = min(attempt, _INT32_MAX)
    system.message_type = _stored_type(properties)
    if handle:
        system.receipt_handle = handle
    if names.TRAN_MSG in properties:
        made.user_properties[_TRANSACTION_ID] = stored.msg_id
    if names.TAGS in properties:
        system.tag = properties[names.TAGS]
    if names.KEYS in properties:
        system.keys.extend(properties[names.KEYS].split(" "))
    if group := names.sharding_key_of(properties):
        system.message_group = group
    if _TRACE_CONTEXT in properties:
        system.trace_context = properties[_TRACE_CONTEXT]
    if _is_time(properties.get(names.TIMER_DELIVER_MS, "")):
        set_timestamp(system.delivery_timestamp, int(properties[names.TIMER_DELIVER_MS]))
    return made


def _stored_type(properties: dict[str, str]) -> pb.MessageType:
    if names.TRAN_MSG in properties:
        return pb.TRANSACTION
    if names.DELAY in properties or not names.TIMED.isdisjoint(properties):
        return pb.DELAY
    return pb.FIFO if names.sharding_key_of(properties) else pb.NORMAL


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 13


# The broker's own and those of few senders, in each message.
@functools.lru_cache(256)
def _host(address: bytes, port: int) -> str:
    return str(Address(_ip(address), port))


@functools.lru_cache(256)
def _ip(address: bytes) -> str:
    return str(ipaddress.ip_address(address))
