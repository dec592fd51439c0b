"""The compressed body of REGISTER_BROKER, an option of Java brokers (wire.md 2.7).

A zlib stream of: length and DataVersion as JSON; number of topics; for each a length and the text
"topic readNums writeNums perm filterType"; length and filter server list. Lengths are int32.
"""

import struct
import zlib
from collections.abc import Collection, Generator, Iterator
from typing import Final

from lockstep.protocol.bodies.broker import DataVersion, TopicConfig, TopicConfigs
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError

__all__ = ["decode_compressed_registration"]

_INT: Final = struct.Struct(">i")
_PLAIN_BYTES_MAX: Final = 4 * 1024 * 1024  # about a hundred thousand topics
_VERSION_BYTES_MAX: Final = 1024  # two or three numbers
_TOPICS_A_STEP: Final = 256


class _PlainTopics(Collection[TopicConfig]):
    """Up to 200,000 topics, each a plain tuple until it is asked for.

    A full run of the garbage collector visits each TopicConfig, 40 ms for so many. It leaves out plain tuples of texts
    and numbers.
    """

    def __init__(self, fields: list[tuple[str, int, int, int]]) -> None:
        self._fields = fields

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[TopicConfig]:
        return (TopicConfig(*fields) for fields in self._fields)

    def __contains__(self, topic: object) -> bool:
        return any(topic == config for config in self)


def decode_compressed_registration(body: bytes) -> Generator[None, None, TopicConfigs]:
    """Decode the body, some topics a step. Raises BodyError."""
    unzipper = zlib.decompressobj()
    try:
        plain = unzipper.decompress(body, _PLAIN_BYTES_MAX)
    except zlib.error as error:
        raise BodyError(f"the compressed registration is not zlib: {error}") from None
    if not unzipper.eof:
        raise BodyError(f"the compressed registration is cut short or longer than {_PLAIN_BYTES_MAX} bytes")
    text, position = _text(plain, 0)
    if len(text) > _VERSION_BYTES_MAX:
        raise BodyError(f"the version has {len(text)} bytes; at most {_VERSION_BYTES_MAX} are allowed")
    version = decode_body(DataVersion, text, SerializeType.JSON)
    count, position = _int(plain, position)
    topics = []
    for number in range(1, count + 1):
        text, position = _text(plain, position)
        topics.append(_topic(text))
        if number % _TOPICS_A_STEP == 0:
            yield None
    return TopicConfigs(version, _PlainTopics(topics))


def _int(plain: bytes, position: int) -> tuple[int, int]:
    if position + _INT.size > len(plain):
        raise BodyError("the compressed registration ends inside a length")
    return _INT.unpack_from(plain, position)[0], position + _INT.size


def _text(plain: bytes, position: int) -> tuple[bytes, int]:
    length, start = _int(plain, position)
    if length < 0 or start + length > len(plain):
        raise BodyError(f"the compressed registration ends inside a text of {length} bytes at {start}")
    return plain[start : start + length], start + length


def _topic(text: bytes) -> tuple[str, int, int, int]:
    try:
        name, read_nums, write_nums, perm = text.decode("utf-8").split(" ")[:4]
        return name, int(read_nums), int(write_nums), int(perm)
    except ValueError:
        raise BodyError(f"{text!r:.80} is not 'topic readNums writeNums perm filterType'") from None
