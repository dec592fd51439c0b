"""The bodies of SEND_TOGETHER and COMMIT_TOGETHER: many sends, or many commits, in one frame (docs/wire.md 17).

A send frame has three parts, so that each is read by one call of `struct` and not by one call a message:

    queues: count H, then each: queueId i | generation q | topicLength B | topic
    heads, one a message: index of its queue H | sequence q | bornTimestamp q | flag i | sysFlag i | bodyLength i |
        propertiesLength H
    texts, one a message: body | properties
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from lockstep.protocol.errors import BatchTooLong, BodyError, LocalProtocolError, short_text
from lockstep.protocol.tuples import new_tuple

__all__ = [
    "COMMITS_MAX",
    "HEAD",
    "NO_EPOCH",
    "NO_NUMBERS",
    "PROPERTIES_MAX",
    "ROW",
    "SENDS_BYTES_MAX",
    "SENDS_MAX",
    "Commit",
    "FrameQueue",
    "SendHead",
    "SendRow",
    "decode_commits",
    "decode_queues",
    "decode_rows",
    "decode_sends",
    "encode_commits",
    "encode_rows",
    "encode_sends",
]

# A broker serves a frame in one go, some 50 ms at worst: each message may have a queue and a topic of its own. These
# are no settings, or a client could make frames that a broker refuses.
SENDS_MAX: Final = 1000
SENDS_BYTES_MAX: Final = 2 * 1024 * 1024
# Of each message: to read half a million tiny ones would keep the loop for 80 ms.
PROPERTIES_MAX: Final = 64
COMMITS_MAX: Final = 1000
# Characters; the length has 16 bits.
_REMARK_MAX: Final = 1000
NO_NUMBERS: Final = -1  # the generation of a queue without send sequence
NO_EPOCH: Final = -1  # of a commit without a fenced lock
_COUNT = struct.Struct(">H")
_QUEUE = struct.Struct(">iqB")
HEAD = struct.Struct(">HqqiiiH")
ROW = struct.Struct(">iqq")
_COMMIT = struct.Struct(">iqqB")


class FrameQueue(NamedTuple):
    """The queue of some messages of a frame. `generation`: of their send sequence, or NO_NUMBERS."""

    topic: str
    queue_id: int
    generation: int


class SendHead(NamedTuple):
    """A message of a frame without its texts. `queue`: the index of its FrameQueue."""

    queue: int
    sequence: int
    born_timestamp: int
    flag: int
    sys_flag: int
    body_bytes: int
    properties_bytes: int


class SendRow(NamedTuple):
    """What came of one message: a response code and, if it is stored, where."""

    code: int
    queue_offset: int
    commit_log_offset: int


def encode_sends(queues: Sequence[FrameQueue], heads: Sequence[tuple[int, ...]], texts: Sequence[bytes]) -> bytes:
    """Encode a frame.

    Args:
        queues: Each queue and generation once.
        heads: As SendHead.
        texts: Body and properties of each message, one after the other.

    Raises:
        struct.error: A number does not fit its field.
    """
    parts = [_COUNT.pack(len(queues))]
    for topic, queue_id, generation in queues:
        name = topic.encode("utf-8", "replace")
        parts += (_QUEUE.pack(queue_id, generation, len(name)), name)
    pack = HEAD.pack
    parts += [pack(*head) for head in heads]
    parts += texts
    return b"".join(parts)


def decode_queues(body: bytes, count: int) -> tuple[list[FrameQueue], int]:
    """Decode the queues of a frame.

    Args:
        count: How many messages the header says.

    Returns:
        The queues, and where the first head begins.

    Raises:
        BatchTooLong: More messages than SENDS_MAX, or more bytes than SENDS_BYTES_MAX.
        BodyError: The lengths do not fit the body, or there is no message.
    """
    if count > SENDS_MAX:
        raise BatchTooLong(f"a frame may hold at most {SENDS_MAX} messages, not {count}")
    if len(body) > SENDS_BYTES_MAX:
        raise BatchTooLong(f"a frame of messages may have at most {SENDS_BYTES_MAX} bytes, not {len(body)}")
    if count < 1:
        raise BodyError("a frame holds at least one message")
    try:
        (queue_count,) = _COUNT.unpack_from(body)
        if not 0 < queue_count <= count:
            raise BodyError(f"a frame of {count} messages has 1 to {count} queues, not {queue_count}")
        position, queues = _COUNT.size, list[FrameQueue]()
        for _ in range(queue_count):
            queue_id, generation, length = _QUEUE.unpack_from(body, position)
            start = position + _QUEUE.size
            position = start + length
            queues.append(FrameQueue(body[start:position].decode("utf-8", "replace"), queue_id, generation))
    except struct.error as error:
        raise BodyError(f"the queues of a frame: {error}") from None
    if position + count * HEAD.size > len(body):
        raise BodyError(f"{count} heads do not fit a body of {len(body)} bytes")
    return queues, position


def decode_sends(body: bytes, count: int) -> tuple[list[FrameQueue], list[tuple[int, ...]], int]:
    """Decode queues and heads of a frame.

    Returns:
        The queues; the heads, as SendHead; and where the first text begins.

    Raises:
        BatchTooLong, BodyError: As `decode_queues`; also when the lengths do not add up, or a queue does not exist.
    """
    queues, position = decode_queues(body, count)
    texts = position + count * HEAD.size
    heads = list(HEAD.iter_unpack(memoryview(body)[position:texts]))
    end = texts
    for queue, _, _, _, _, body_bytes, properties_bytes in heads:
        if queue >= len(queues) or body_bytes < 0:
            raise BodyError(f"a message with queue {queue} of {len(queues)} and {body_bytes} bytes")
        end += body_bytes + properties_bytes
    if end != len(body):
        raise BodyError(f"a frame has {len(body)} bytes, and its lengths add up to {end}")
    return queues, heads, texts


def encode_rows(rows: Sequence[tuple[int, int, int]], remarks: Sequence[str]) -> bytes:
    """Encode the results of a frame.

    Args:
        rows: As SendRow, one a message.
        remarks: One for each row whose code is not SUCCESS, in their order; a long one is cut.
    """
    pack = ROW.pack
    parts = [pack(*row) for row in rows]
    for remark in remarks:
        text = remark[:_REMARK_MAX].encode("utf-8", "replace")
        parts += (_COUNT.pack(len(text)), text)
    return b"".join(parts)


def decode_rows(body: bytes, count: int) -> tuple[list[SendRow], list[str]]:
    """Decode the results of a frame of `count` messages. Raises BodyError."""
    position = count * ROW.size
    if position > len(body):
        raise BodyError(f"{count} results do not fit a body of {len(body)} bytes")
    rows = [new_tuple(SendRow, row) for row in ROW.iter_unpack(memoryview(body)[:position])]
    remarks = []
    try:
        for row in rows:
            if row[0]:
                (length,) = _COUNT.unpack_from(body, position)
                start = position + _COUNT.size
                position = start + length
                remarks.append(body[start:position].decode("utf-8", "replace"))
    except struct.error as error:
        raise BodyError(f"the remarks of a frame's results: {error}") from None
    if position != len(body):
        raise BodyError(f"results have {len(body)} bytes, and their lengths add up to {position}")
    return rows, remarks


class Commit(NamedTuple):
    """An offset to store. `epoch`: that of the fenced lock of the queue, or NO_EPOCH."""

    topic: str
    queue_id: int
    offset: int
    epoch: int


def encode_commits(commits: Sequence[Commit]) -> bytes:
    """Encode the body of COMMIT_TOGETHER: each commit as queueId i | offset q | epoch q | topicLength B | topic.

    Raises:
        LocalProtocolError: A queue, an offset or an epoch fits no field, or the topic is too long.
    """
    parts = list[bytes]()
    for topic, queue_id, offset, epoch in commits:
        name = topic.encode("utf-8", "replace")
        try:
            parts += (_COMMIT.pack(queue_id, offset, epoch, len(name)), name)
        except struct.error:
            what = f"the commit of offset {offset} for queue {queue_id} of topic {short_text(topic)}"
            raise LocalProtocolError(
                f"{what} cannot be sent: a queue has 32 bits, an offset 64, a topic 255 bytes"
            ) from None
    return b"".join(parts)


def decode_commits(body: bytes, count: int) -> list[Commit]:
    """Decode the body of COMMIT_TOGETHER. Raises BodyError unless it has `count` commits, 1 to COMMITS_MAX."""
    if count > COMMITS_MAX:
        raise BodyError(f"a frame may hold at most {COMMITS_MAX} commits, not {count}")
    if not 0 < count <= len(body) // _COMMIT.size:
        raise BodyError(f"a body of {len(body)} bytes does not hold {count} commits")
    position, commits = 0, list[Commit]()
    try:
        for _ in range(count):
            queue_id, offset, epoch, length = _COMMIT.unpack_from(body, position)
            start = position + _COMMIT.size
            position = start + length
            topic = body[start:position].decode("utf-8", "replace")
            commits.append(new_tuple(Commit, (topic, queue_id, offset, epoch)))
    except struct.error as error:
        raise BodyError(f"the commits of a frame: {error}") from None
    if position != len(body):
        raise BodyError(f"a frame has {len(body)} bytes, and its commits add up to {position}")
    return commits
