"""The stored message layout (wire.md 5). The broker encodes a message once; later its bytes are only copied or read.

    totalSize i | magic I | bodyCRC i | queueId i | flag i | queueOffset q | physicalOffset q | sysFlag i
    | bornTimestamp q | bornHost 4s i | storeTimestamp q | storeHost 4s i | reconsumeTimes i
    | preparedTransactionOffset q | bodyLength i | body | topicLength B | topic | propertiesLength h | properties

A host has 4 address bytes, or 16 if its sysFlag bit says IPv6.
"""

import struct
import zlib
from functools import cache
from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import SysFlag
from lockstep.protocol.errors import BodyError
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.compression import decompress
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.protocol.messages.properties import decode_properties
from lockstep.protocol.native import NATIVE

__all__ = [
    "FIXED_PART",
    "MESSAGE_MAGIC",
    "MESSAGE_OVERHEAD_BYTES",
    "PADDING_MAGIC",
    "MessageExt",
    "PyMessageExt",
    "Record",
    "decode_into",
    "decode_messages",
    "encode_stored_message",
    "py_decode_into",
    "text_bytes",
    "unpacked",
]

MESSAGE_MAGIC: Final = 0xDAA320A7
PADDING_MAGIC: Final = 0xCBD43194
MESSAGE_OVERHEAD_BYTES: Final = 91  # with IPv4 hosts

FIXED_PART: Final = struct.Struct(">iIiiiqqiq4siq4siiqi")  # with IPv4 hosts: all before the body
_FIXED_BYTES: Final = FIXED_PART.size
# The places of its values.
(
    _SIZE, _MAGIC, _CRC, _QUEUE_ID, _FLAG, _QUEUE_OFFSET, _LOG_OFFSET, _SYS_FLAG, _BORN_MS, _BORN_HOST, _BORN_PORT,
    _STORED_MS, _STORE_HOST, _STORE_PORT, _RETRIES, _PREPARED_OFFSET, _BODY_BYTES,
) = range(17)  # fmt: skip
_SHORT = struct.Struct(">h")
_SIZES = struct.Struct(">i32xi44xi")  # of the fixed part: size, sysFlag, bodyLength
_COMPRESSED = int(SysFlag.COMPRESSED)
_BORN_V6, _STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)
_ANY_V6 = _BORN_V6 | _STORE_V6
_NAME_END, _PAIR_END = names.NAME_END.encode(), names.PAIR_END.encode()
_SHARDING_KEY_NAMES: Final = frozenset(name.encode() for name in names.SHARDING_KEY_NAMES)
# Part of every name of the sharding key.
_IN_EACH_NAME: Final = b"SHARDING"


class Record(NamedTuple):
    """A message to store. The store adds the offsets and its own address.

    Attributes:
        born_timestamp: Epoch ms by the producer's clock.
        born_host: The producer's address, 4 or 16 bytes.
        store_timestamp: Epoch ms by the broker's clock.
        properties: The encoded property string.
        tags_code: For the consume queue entry: the hash of the tag, or the delivery time in epoch ms.
    """

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    born_port: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: bytes
    tags_code: int


def encode_stored_message(
    record: Record, topic: bytes, queue_offset: int, commit_log_offset: int, store_host: bytes, store_port: int
) -> bytes:
    """Encode one message in the stored layout.

    Args:
        topic: The encoded topic, used instead of the record's: stores cache encoded topics.
        store_host: The broker's address, 4 or 16 bytes. An address of 16 bytes sets its IPv6 bit in the sysFlag.

    Raises:
        struct.error: A number does not fit its field.
        ValueError: The topic is too long.

    Source: wire.md 5
    """
    (
        _, queue_id, flag, sys_flag, born_timestamp, born_host, born_port, store_timestamp, reconsume_times,
        prepared_transaction_offset, body, properties, _,
    ) = record  # fmt: skip
    body_bytes, topic_bytes = len(body), len(topic)
    fixed_struct, host_bytes = FIXED_PART, len(born_host) + len(store_host)
    sys_flag &= ~_ANY_V6
    if host_bytes != 8:
        sys_flag |= (_BORN_V6 if len(born_host) == 16 else 0) | (_STORE_V6 if len(store_host) == 16 else 0)
        fixed_struct = _layout(sys_flag)
    fixed = fixed_struct.pack(
        MESSAGE_OVERHEAD_BYTES - 8 + host_bytes + body_bytes + topic_bytes + len(properties),
        MESSAGE_MAGIC,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        queue_offset,
        commit_log_offset,
        sys_flag,
        born_timestamp,
        born_host,
        born_port,
        store_timestamp,
        store_host,
        store_port,
        reconsume_times,
        prepared_transaction_offset,
        body_bytes,
    )
    return b"".join((fixed, body, bytes((topic_bytes,)), topic, _SHORT.pack(len(properties)), properties))


class MessageExt:
    """A message that a consumer receives. Topic and properties are decoded on first use.

    Attributes:
        reconsume_times: The number of earlier attempts; each local retry increases it.
        body_bytes: The length of the body before a listener changed it.
        bounds: Set by a pull: (min offset, max offset) of the queue at that moment. They are also the properties
            MIN_OFFSET and MAX_OFFSET (wire.md 4.2).
    """

    __slots__ = ("_buffer", "_fixed", "_properties", "_tail", "_topic", "body", "body_bytes", "bounds", "broker_name",
                 "queue_offset", "reconsume_times")  # fmt: skip

    body: bytes
    body_bytes: int
    queue_offset: int
    reconsume_times: int
    broker_name: str
    bounds: tuple[int, int] | None

    def __init__(self, buffer: bytes, fixed: tuple[Any, ...], body: bytes, tail: int, broker_name: str) -> None:
        self._buffer = buffer
        self._fixed = fixed
        self._tail = tail  # position of topicLength
        self._topic: str | None = None
        self._properties: dict[str, str] | None = None
        self.body = body
        self.body_bytes = len(body)
        self.bounds = None
        self.broker_name = broker_name
        self.queue_offset = fixed[_QUEUE_OFFSET]
        self.reconsume_times = fixed[_RETRIES]

    @property
    def topic(self) -> str:
        if self._topic is None:
            start = self._tail + 1
            self._topic = self._buffer[start : start + self._buffer[self._tail]].decode("utf-8", "replace")
        return self._topic

    @topic.setter
    def topic(self, topic: str) -> None:
        # A retried message gets its original topic again (wire.md 10.2).
        self._topic = topic

    @property
    def first_topic(self) -> str:
        """The topic to which the producer sent the message, even after retries, as brokers name it."""
        first = self.properties.get(names.RETRY_TOPIC)
        if first is None:
            start = self._tail + 1
            first = self._buffer[start : start + self._buffer[self._tail]].decode("utf-8", "replace")
        return first

    @property
    def properties(self) -> dict[str, str]:
        if self._properties is None:
            start = self._tail + 1 + self._buffer[self._tail]
            (length,) = _SHORT.unpack_from(self._buffer, start)
            text = self._buffer[start + 2 : start + 2 + length]
            self._properties = decode_properties(text.decode("utf-8", "replace"))
            if self.bounds is not None:
                self._properties[names.MIN_OFFSET] = str(self.bounds[0])
                self._properties[names.MAX_OFFSET] = str(self.bounds[1])
        return self._properties

    @property
    def body_error(self) -> str | None:
        """Why the body cannot be unpacked: then `body` is the stored one. None: `body` is the producer's."""
        return None

    @property
    def stored_body(self) -> bytes:
        """The stored body, which is compressed if the sysFlag says so."""
        return self._buffer[self._tail - self._fixed[_BODY_BYTES] : self._tail]

    @property
    def stored_bytes(self) -> int:
        size: int = self._fixed[_SIZE]
        return size

    @property
    def body_crc(self) -> int:
        crc: int = self._fixed[_CRC]
        return crc

    @property
    def queue_id(self) -> int:
        queue_id: int = self._fixed[_QUEUE_ID]
        return queue_id

    @property
    def flag(self) -> int:
        flag: int = self._fixed[_FLAG]
        return flag

    @property
    def commit_log_offset(self) -> int:
        offset: int = self._fixed[_LOG_OFFSET]
        return offset

    @property
    def sys_flag(self) -> int:
        flag: int = self._fixed[_SYS_FLAG]
        return flag

    @property
    def born_timestamp(self) -> int:
        """Epoch milliseconds by the producer's clock."""
        timestamp: int = self._fixed[_BORN_MS]
        return timestamp

    @property
    def born_host(self) -> tuple[bytes, int]:
        return self._fixed[_BORN_HOST], self._fixed[_BORN_PORT]

    @property
    def store_timestamp(self) -> int:
        """Epoch milliseconds by the broker's clock."""
        timestamp: int = self._fixed[_STORED_MS]
        return timestamp

    @property
    def store_host(self) -> tuple[bytes, int]:
        return self._fixed[_STORE_HOST], self._fixed[_STORE_PORT]

    @property
    def prepared_transaction_offset(self) -> int:
        offset: int = self._fixed[_PREPARED_OFFSET]
        return offset

    @property
    def offset_message_id(self) -> str:
        return encode_offset_message_id(self._fixed[_STORE_HOST], self._fixed[_STORE_PORT], self._fixed[_LOG_OFFSET])

    @property
    def msg_id(self) -> str:
        """The producer's UNIQ_KEY; without one, the offset message id. Like Java's getMsgId."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def transaction_id(self) -> str:
        """The producer's UNIQ_KEY of a half message or of a committed message (wire.md 4.6)."""
        return self.properties.get(names.UNIQ_KEY, "")

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> str | None:
        return self.properties.get(names.KEYS)

    @property
    def sharding_key(self) -> str | None:
        """The sharding key, found without decoding all properties: consumption by key reads it for every message."""
        if self._properties is None:
            buffer = self._buffer
            start = self._tail + 3 + buffer[self._tail]
            end = start + (buffer[start - 2] << 8 | buffer[start - 1])
            found = buffer.find(_IN_EACH_NAME, start, end)
            if found < 0:
                return None
            name_end = buffer.find(_NAME_END, found, end)
            if buffer.find(_IN_EACH_NAME, found + 8, end) < 0:
                # Otherwise there may be several names.
                name = buffer[max(buffer.rfind(_PAIR_END, start, found) + 1, start) : name_end]
                stop = buffer.find(_PAIR_END, name_end, end)
                text = buffer[name_end + 1 : stop if stop >= 0 else end]
                if text and name_end >= 0 and name in _SHARDING_KEY_NAMES:
                    return text.decode("utf-8", "replace")
        return names.sharding_key_of(self.properties)

    def unreadable(self, why: str) -> "MessageExt":
        """The same message with this `body_error`."""
        return _Unreadable(self._buffer, self._fixed, self.body, self._tail, self.broker_name, why)

    def __repr__(self) -> str:
        return f"<MessageExt {self.topic}:{self.queue_id}@{self.queue_offset} {self.msg_id} {len(self.body)}B>"


class _Unreadable(MessageExt):
    __slots__ = ("_body_error",)

    def __init__(self, buffer: bytes, fixed: tuple[Any, ...], body: bytes, tail: int, broker_name: str, why: str):
        super().__init__(buffer, fixed, body, tail, broker_name)
        self._body_error = why

    @property
    def body_error(self) -> str | None:
        return self._body_error


def decode_messages(buffer: bytes, broker_name: str = "", *, unzip: bool = True) -> list[MessageExt]:
    """Decode consecutive messages, as in the reply to a pull. A message with an unreadable body has a `body_error`.

    Without `unzip`, compressed bodies stay compressed: a broker stores them again. Raises BodyError if the bytes are
    not messages.
    """
    messages: list[MessageExt] = []
    packed: list[int] = []
    problem = decode_into(messages, packed, buffer, broker_name)
    if problem is not None:
        raise BodyError(problem)
    if unzip:
        for place in packed:
            messages[place] = unpacked(messages[place])
    return messages


def unpacked(message: MessageExt) -> MessageExt:
    """The message with an unpacked body. If unpacking fails, it has a `body_error`."""
    try:
        message.body = decompress(message.body, message.sys_flag)
    except BodyError as error:
        return message.unreadable(str(error))
    message.body_bytes = len(message.body)
    return message


def decode_into(messages: list[MessageExt], packed: list[int], buffer: bytes, broker_name: str) -> str | None:
    """Append the messages of the buffer with their stored bodies; add the indexes of compressed ones to `packed`.

    Returns the error of the first damaged record, or None.
    """
    position, end = 0, len(buffer)
    unpack, unpack_short = FIXED_PART.unpack_from, _SHORT.unpack_from
    try:
        while position < end:
            fixed = unpack(buffer, position)
            size, magic, sys_flag, body_bytes = fixed[_SIZE], fixed[_MAGIC], fixed[_SYS_FLAG], fixed[_BODY_BYTES]
            if magic != MESSAGE_MAGIC:
                return f"byte {position}: magic {magic:#x} is not a message's {MESSAGE_MAGIC:#x}"
            body_start = position + _FIXED_BYTES
            if sys_flag & _ANY_V6:
                fixed, body_start = _unpack_v6(buffer, position, sys_flag)
                body_bytes = fixed[_BODY_BYTES]
            tail = body_start + body_bytes
            if size < MESSAGE_OVERHEAD_BYTES or body_bytes < 0 or not tail < position + size <= end:
                return f"byte {position}: a message of {size} bytes with a body of {body_bytes} does not fit"
            text_start = tail + 3 + buffer[tail]
            (properties_bytes,) = unpack_short(buffer, text_start - 2)
            if properties_bytes < 0 or text_start + properties_bytes != position + size:
                return f"byte {position}: topic and properties do not end where the message of {size} bytes does"
            if sys_flag & _COMPRESSED:
                packed.append(len(messages))
            messages.append(PyMessageExt(buffer, fixed, buffer[body_start:tail], tail, broker_name))
            position += size
    except struct.error as error:
        return f"byte {position}: {error}"
    return None


def text_bytes(stored: bytes) -> int:
    """How long the topic and the properties of a stored message are together."""
    size, sys_flag, body_bytes = _SIZES.unpack_from(stored)
    if sys_flag & _ANY_V6:
        fixed, _ = _unpack_v6(stored, 0, sys_flag)
        body_bytes = fixed[_BODY_BYTES]
    text: int = size - body_bytes - MESSAGE_OVERHEAD_BYTES
    return text


def _unpack_v6(buffer: bytes, position: int, sys_flag: int) -> tuple[tuple[Any, ...], int]:
    layout = _layout(sys_flag)
    return layout.unpack_from(buffer, position), position + layout.size


@cache
def _layout_of(born_bytes: int, store_bytes: int) -> struct.Struct:
    return struct.Struct(f">iIiiiqqiq{born_bytes}siq{store_bytes}siiqi")


def _layout(sys_flag: int) -> struct.Struct:
    return _layout_of(16 if sys_flag & _BORN_V6 else 4, 16 if sys_flag & _STORE_V6 else 4)


# The twins of what the native part has.
PyMessageExt, py_decode_into = MessageExt, decode_into
if NATIVE is not None:
    MessageExt = NATIVE.MessageExt  # type: ignore[misc]
    decode_into = NATIVE.decode_into
