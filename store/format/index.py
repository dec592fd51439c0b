"""The format of index files: slots by the hash of `TOPIC#KEY`, each the head of a chain of items (docs/store.md)."""

import struct
import sys
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from lockstep.protocol.filter import java_string_hash
from lockstep.protocol.messages.properties import KEYS, UNIQ_KEY, decode_properties
from lockstep.remoting.host.storage import StoredFile

__all__ = [
    "INDEX_HEADER",
    "INDEX_ITEM",
    "INDEX_SLOT",
    "IndexHeader",
    "IndexItem",
    "items_position",
    "key_hash",
    "keys_of",
    "read_header",
    "read_items",
    "read_slots",
]

INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_SLOT: Final = struct.Struct(">i")
INDEX_ITEM: Final = struct.Struct(">iqii")
_INT_MAX: Final = 0x7FFFFFFF
_OWN_UNITS: Final = 12  # the length of time and counter in a UNIQ_KEY
_ITEMS_AT_ONCE: Final = 50_000


class IndexHeader(NamedTuple):
    """`next_item`: the number of the next item; 1 in an empty file, as item 0 is never used."""

    first_timestamp: int
    last_timestamp: int
    first_offset: int
    last_offset: int
    slots_used: int
    next_item: int


class IndexItem(NamedTuple):
    key_hash: int
    offset: int
    seconds: int  # since the file's first timestamp
    previous: int  # previous item of the same slot; 0 for none


@lru_cache(maxsize=1024)
def _hash_of_begin(topic: str, key_begin: str) -> int:
    """The unique keys of one producer begin with the same 20 characters."""
    return java_string_hash(f"{topic}#{key_begin}")


def key_hash(topic: str, key: str) -> int:
    """The slot is this modulo the number of slots."""
    found = abs(java_string_hash(key[-_OWN_UNITS:], _hash_of_begin(topic, key[:-_OWN_UNITS])))
    return found if found <= _INT_MAX else 0


def keys_of(properties: bytes) -> list[str]:
    """The keys under which a message is indexed, in this order: its UNIQ_KEY, then each word of KEYS."""
    found = decode_properties(properties.decode("utf-8", "replace"))
    return [key for key in (found.get(UNIQ_KEY), *found.get(KEYS, "").split(" ")) if key]


def items_position(slot_count: int) -> int:
    """Where item 0 stands in a file."""
    return INDEX_HEADER.size + slot_count * INDEX_SLOT.size


def read_header(file: StoredFile) -> IndexHeader | None:
    """None when the file is shorter than a header. Raises OSError."""
    head = file.read_at(0, INDEX_HEADER.size)
    return IndexHeader(*INDEX_HEADER.unpack(head)) if len(head) == INDEX_HEADER.size else None


def read_slots(file: StoredFile, first: int, count: int) -> "array[int]":
    """The newest item of each of these slots. Raises OSError."""
    slots = array("i", file.read_at(items_position(first), count * INDEX_SLOT.size))
    if sys.byteorder == "little":
        slots.byteswap()
    return slots


def read_items(file: StoredFile, slot_count: int, first: int, end: int) -> Iterator[IndexItem]:
    """Items [first, end), as far as the file has them. Raises OSError."""
    for at in range(first, end, _ITEMS_AT_ONCE):
        count = min(_ITEMS_AT_ONCE, end - at)
        data = file.read_at(items_position(slot_count) + at * INDEX_ITEM.size, count * INDEX_ITEM.size)
        for fields in INDEX_ITEM.iter_unpack(data[: len(data) - len(data) % INDEX_ITEM.size]):
            yield IndexItem(*fields)
