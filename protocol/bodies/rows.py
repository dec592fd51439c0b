"""Encodes bodies with a large table, a few rows in each step. The caller can do other work between the steps.

The bytes are equal to those of `encode_body`.
"""

import heapq
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import msgpack

from lockstep.protocol.bodies.codec import encode_part
from lockstep.protocol.bodies.fastjson import ObjectKeyed, dumps
from lockstep.protocol.codes import FRAME_BYTES_MAX, SerializeType
from lockstep.protocol.errors import LocalProtocolError

__all__ = [
    "BODY_ROWS_BYTES_MAX",
    "NAMES_A_STEP",
    "ROWS_A_STEP",
    "BodyRows",
    "BodySteps",
    "encode_list",
    "encode_names",
    "encode_table",
]

R = TypeVar("R")

BODY_ROWS_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024  # a frame also holds its header
ROWS_A_STEP: Final = 64  # they take up to a millisecond
NAMES_A_STEP: Final = 1024
_SORTED_A_STEP: Final = 2048
_HERE: Final = "\u0001rows\u0001"  # the place of the rows; searched only in the text around them
_MSGPACK: Final = int(SerializeType.MSGPACK)

BodySteps = Generator[None, None, bytes]


class BodyRows:
    """Collects encoded rows, then encodes the body around them. Raises LocalProtocolError above `bytes_max`."""

    def __init__(self, serialize_type: int, bytes_max: int = BODY_ROWS_BYTES_MAX) -> None:
        self._msgpack = serialize_type == _MSGPACK
        self._serialize_type = serialize_type
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._count = 0

    def add(self, rows: dict[str, Any] | list[Any] | ObjectKeyed) -> None:
        """Add rows: items of a list, or members of an object in alphabetical order, with texts or objects as names."""
        members = rows.entries if isinstance(rows, ObjectKeyed) else rows
        if not members:
            return
        if self._msgpack:
            values = members if isinstance(members, list) else [part for row in members.items() for part in row]
            piece = b"".join(encode_part(value, self._serialize_type) for value in values)
        else:
            piece = encode_part(rows, self._serialize_type)[1:-1]
        self.add_written(piece, len(members))

    def add_written(self, piece: bytes, count: int = 1) -> None:
        """Add encoded rows."""
        self._pieces.append(piece)
        self._count += count
        self._bytes += len(piece) + 1
        if self._bytes > self._bytes_max:
            raise LocalProtocolError(f"the body has over {self._bytes_max} bytes, more than a frame can carry")

    def finish(self, wire: dict[str, Any], member: str, *, as_list: bool = False) -> bytes:
        """The encoded body: `wire` with the rows as a further member."""
        if self._msgpack:
            packer = msgpack.Packer()
            head = packer.pack_array_header(self._count) if as_list else packer.pack_map_header(self._count)
            table = head + b"".join(self._pieces)
            parts = [packer.pack_map_header(len(wire) + 1)]
            for name in sorted((*wire, member)):
                parts.append(encode_part(name, self._serialize_type))
                parts.append(table if name == member else encode_part(wire[name], self._serialize_type))
            return b"".join(parts)
        before, _, after = dumps({**wire, member: _HERE}).encode("utf-8").partition(dumps(_HERE).encode("utf-8"))
        opening, closing = (b"[", b"]") if as_list else (b"{", b"}")
        return b"".join((before, opening, b",".join(self._pieces), closing, after))


def encode_table(
    wire: dict[str, Any],
    member: str,
    rows: Iterable[tuple[str, Any]],
    serialize_type: int,
    bytes_max: int = BODY_ROWS_BYTES_MAX,
) -> BodySteps:
    """Encode a table of (name, row with `to_wire`). The source of `rows` must keep its size until the end."""
    body = BodyRows(serialize_type, bytes_max)
    by_name = yield from _sorted(iter(rows))
    while some := list(islice(by_name, ROWS_A_STEP)):
        body.add({name: row.to_wire() for name, row in some})
        yield None
    return body.finish(wire, member)


def encode_list(
    wire: dict[str, Any], member: str, rows: Iterable[Any], serialize_type: int, rows_a_step: int = ROWS_A_STEP
) -> BodySteps:
    """Encode a list of values in their order. The source of `rows` must keep its size until the end."""
    body, left = BodyRows(serialize_type), iter(rows)
    while some := list(islice(left, rows_a_step)):
        body.add(some)
        yield None
    return body.finish(wire, member, as_list=True)


def encode_names(member: str, names: Iterable[str], serialize_type: int) -> BodySteps:
    """Encode a sorted list of names. The source of `names` must keep its size until the end."""
    by_name = yield from _sorted((name, None) for name in names)
    return (yield from encode_list({}, member, (name for name, _ in by_name), serialize_type))


def _sorted(rows: Iterator[tuple[str, R]]) -> Generator[None, None, Iterator[tuple[str, R]]]:
    """Sort the rows by name, in steps."""
    parts = []
    while part := list(islice(rows, _SORTED_A_STEP)):
        parts.append(sorted(part, key=_name))
        yield None
    return heapq.merge(*parts, key=_name)


def _name(row: tuple[str, Any]) -> str:
    return row[0]
