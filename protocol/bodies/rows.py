"""Encodes bodies with a large table, a few rows in each step. The caller can do other work between the steps.

The bytes are equal to those of `encode_body`.
"""

import heapq
from collections.abc import Generator, Iterable, Iterator
from io import BytesIO
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

# A frame also holds its header.
BODY_ROWS_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024
# So many rows take up to a millisecond.
ROWS_A_STEP: Final = 64
NAMES_A_STEP: Final = 1024
_SORTED_A_STEP: Final = 2048
_WRITTEN_A_STEP: Final = 256 * 1024  # bytes
# The place of the rows; searched only in the text around them.
_HERE: Final = "\u0001rows\u0001"
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
        self._add_pieces([piece], len(piece), len(members))

    def add_body(self, rows: "BodyRows", wire: dict[str, Any], member: str, *, as_list: bool = False) -> None:
        """Add a row that is itself a body with rows; the other arguments are those of `finish`."""
        before, after = rows._around(wire, member, as_list=as_list)  # noqa: SLF001 - of this class
        size = len(before) + rows._bytes + len(after)  # noqa: SLF001
        pieces = [before, *rows._pieces, after]  # noqa: SLF001
        self._add_pieces(pieces if size > _WRITTEN_A_STEP else [b"".join(pieces)], size, 1)

    def _add_pieces(self, pieces: list[bytes], size: int, count: int) -> None:
        if self._count and not self._msgpack:
            self._pieces.append(b",")
            self._bytes += 1
        self._pieces += pieces
        self._bytes += size
        self._count += count
        if self._bytes > self._bytes_max:
            raise LocalProtocolError(f"the body has over {self._bytes_max} bytes, more than a frame can carry")

    def finish(self, wire: dict[str, Any], member: str, *, as_list: bool = False) -> BodySteps:
        """Encode the body, in steps: `wire` with the rows as a further member."""
        before, after = self._around(wire, member, as_list=as_list)
        # A BytesIO gives its bytes away without a copy.
        body, step_bytes = BytesIO(), 0
        for piece in (before, *self._pieces, after):
            body.write(piece)
            step_bytes += len(piece)
            if step_bytes > _WRITTEN_A_STEP:
                step_bytes = 0
                yield None
        return body.getvalue()

    def _around(self, wire: dict[str, Any], member: str, *, as_list: bool) -> tuple[bytes, bytes]:
        """The bytes before the rows, and those after them."""
        if not self._msgpack:
            before, _, after = dumps({**wire, member: _HERE}).encode("utf-8").partition(dumps(_HERE).encode("utf-8"))
            return (before + b"[", b"]" + after) if as_list else (before + b"{", b"}" + after)
        packer = msgpack.Packer()
        head = packer.pack_array_header(self._count) if as_list else packer.pack_map_header(self._count)
        names = sorted({*wire, member})
        sides = [packer.pack_map_header(len(names))], list[bytes]()
        for name in names:
            side = sides[name > member]
            side.append(encode_part(name, self._serialize_type))
            side.append(head if name == member else encode_part(wire[name], self._serialize_type))
        return b"".join(sides[0]), b"".join(sides[1])


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
    return (yield from body.finish(wire, member))


def encode_list(
    wire: dict[str, Any], member: str, rows: Iterable[Any], serialize_type: int, rows_a_step: int = ROWS_A_STEP
) -> BodySteps:
    """Encode a list of values in their order. The source of `rows` must keep its size until the end."""
    body, left = BodyRows(serialize_type), iter(rows)
    while some := list(islice(left, rows_a_step)):
        body.add(some)
        yield None
    return (yield from body.finish(wire, member, as_list=True))


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
