"""The kernel of SEND_TOGETHER: the messages of a frame, from its bytes to the bytes of the log and of the answer.

As the kernels of `lockstep.protocol.kernels`: it changes nothing, and what it does not know it refuses.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, SysFlag
from lockstep.protocol.filter import tags_code_of
from lockstep.protocol.kernels import (
    ENTRY,
    PROPERTIES_LENGTH,
    UNUSUAL,
    PlainSends,
    QueueRun,
    SendSettings,
    stored_properties,
)
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import FIXED_PART, MESSAGE_MAGIC, MESSAGE_OVERHEAD_BYTES
from lockstep.protocol.messages.properties import decode_properties
from lockstep.protocol.messages.together import HEAD, NO_NUMBERS, PROPERTIES_MAX, ROW
from lockstep.protocol.native import NATIVE
from lockstep.protocol.tuples import new_tuple

__all__ = ["NumberedQueue", "frame_properties", "plain_frame", "take_frame"]

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_IPV4_HOSTS: Final = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_PAIR_END: Final = names.PAIR_END.encode()
# The end that our producers write; the broker takes it off, as RocketMQ does.
_WAIT_END: Final = _PAIR_END + f"{names.WAIT}{names.NAME_END}true".encode()
_TAGS: Final = f"{names.TAGS}{names.NAME_END}".encode()
# A pair has four bytes at least.
_MANY_BYTES: Final = 4 * PROPERTIES_MAX


class NumberedQueue(NamedTuple):
    """A queue of a frame.

    Attributes:
        next_number: Which number of its send sequence comes next, or NO_NUMBERS.
        next_offset: The queue offset of its next message.
    """

    topic: str
    queue_id: int
    next_number: int
    next_offset: int


class _Queue:
    __slots__ = ("entries", "next_number", "next_offset", "queue_id", "topic")

    def __init__(self, queue: NumberedQueue) -> None:
        self.topic = queue.topic.encode()
        self.queue_id = queue.queue_id
        self.next_number = queue.next_number
        self.next_offset = queue.next_offset
        self.entries: list[bytes] = []

    def run(self, queue: NumberedQueue) -> QueueRun:
        return QueueRun(queue.topic, queue.queue_id, queue.next_offset, b"".join(self.entries))


def frame_properties(text: bytes, cluster_pair: str, cluster_end: bytes) -> tuple[bytes, int] | None:
    """The properties as they are stored, without WAIT and with CLUSTER, and the hash of the tag.

    Args:
        cluster_pair: CLUSTER and its value.
        cluster_end: The same behind the end of a pair, as bytes.

    Returns:
        None: they are too many, too long or no text; a name comes twice; or the message is sent by itself.
    """
    if len(text) > _MANY_BYTES and text.count(_PAIR_END) > PROPERTIES_MAX:
        return None
    own = text.removesuffix(_WAIT_END)
    # Names are looked for as bytes: a value that has one in it goes the longer way.
    if b"CLUSTER" not in own and b"WAIT" not in own and b"DEL" not in own and b"TRAN_MSG" not in own and own.isascii():
        stored = own + cluster_end if own else cluster_end[1:]
        tags = decode_properties(own.decode("ascii")).get(names.TAGS) if _TAGS in own else None
        return (stored, tags_code_of(tags) if tags else 0) if len(stored) <= PROPERTIES_BYTES_MAX else None
    try:
        decoded = text.decode()
        return None if names.START_DELIVER_TIME in decoded else stored_properties(decoded, cluster_pair)
    except ValueError:
        return None


def plain_frame(
    body: bytes,
    heads_begin: int,
    count: int,
    settings: SendSettings,
    queues: Sequence[NumberedQueue],
    now_ms: int,
    born: tuple[bytes, int],
    log_offset: int,
) -> PlainSends | None:
    """Take all messages of a frame.

    Args:
        heads_begin: Where in `body` the heads of `count` messages begin, behind the queues.
        queues: Those of the frame, each once.
        now_ms: When the messages are stored, epoch ms.
        born: The peer's address, 4 bytes, and port.
        log_offset: The commit log offset of the first message.

    Returns:
        `answers` are the rows of the answer's body. None: some message is not plain, or not in its turn.

    Source: wire.md 5, 17.1
    """
    cluster_pair, _, store_host, store_port, body_bytes_max, _, _ = settings
    cluster_end = f"{names.PAIR_END}{cluster_pair}".encode()
    states = [_Queue(queue) for queue in queues]
    log: list[bytes] = []
    rows: list[bytes] = []
    position = heads_begin + count * HEAD.size
    try:
        heads = HEAD.iter_unpack(memoryview(body)[heads_begin:position])
        for index, number, born_ms, flag, sys_flag, body_bytes, text_bytes in heads:
            queue, body_end = states[index], position + body_bytes
            content, text = body[position:body_end], body[body_end : body_end + text_bytes]
            position = body_end + text_bytes
            if number != queue.next_number != NO_NUMBERS or sys_flag & _TRANSACTION:
                return None
            properties = frame_properties(text, cluster_pair, cluster_end)
            if properties is None or not 0 <= body_bytes <= body_bytes_max:
                return None
            stored, topic, queue_offset = properties[0], queue.topic, queue.next_offset
            size = MESSAGE_OVERHEAD_BYTES + body_bytes + len(topic) + len(stored)
            fixed = FIXED_PART.pack(
                size, MESSAGE_MAGIC, zlib.crc32(content) & 0x7FFFFFFF, queue.queue_id, flag, queue_offset, log_offset,
                sys_flag & _IPV4_HOSTS, born_ms, *born, now_ms, store_host, store_port, 0, 0, body_bytes,
            )  # fmt: skip
            log += (fixed, content, bytes((len(topic),)), topic, PROPERTIES_LENGTH.pack(len(stored)), stored)
            rows.append(ROW.pack(0, queue_offset, log_offset))
            queue.entries.append(ENTRY.pack(log_offset, size, properties[1]))
            queue.next_number += queue.next_number != NO_NUMBERS
            queue.next_offset += 1
            log_offset += size
    except (*UNUSUAL, IndexError):
        return None
    if position != len(body) or not all(state.entries for state in states):
        return None
    runs = [state.run(queue) for queue, state in zip(queues, states, strict=True)]
    return new_tuple(PlainSends, (position, count, b"".join(log), b"".join(rows), runs))


def _natively(*arguments: Any) -> PlainSends | None:
    assert NATIVE is not None
    sends = NATIVE.plain_frame(*arguments)
    return None if sends is None else new_tuple(PlainSends, sends)


take_frame = plain_frame if NATIVE is None else _natively
"""`plain_frame` by the arm of this process."""
