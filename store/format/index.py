"""A file of keys: a table of slots by the hash of `TOPIC#KEY`, each the head of a chain of items (docs/store.md)."""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from lockstep.protocol.filter import java_string_hash

__all__ = ["INDEX_HEADER", "INDEX_ITEM", "INDEX_SLOT", "IndexHeader", "IndexItem", "index_keys", "key_hash"]

INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_SLOT: Final = struct.Struct(">i")
INDEX_ITEM: Final = struct.Struct(">iqii")
_INT_MAX: Final = 0x7FFFFFFF
_OWN_UNITS: Final = 12  # of a UNIQ_KEY: its time and counter


class IndexHeader(NamedTuple):
    """`next_item`: 1 in an empty file, as item 0 is never used."""

    first_timestamp: int
    last_timestamp: int
    first_offset: int
    last_offset: int
    slots_used: int
    next_item: int


class IndexItem(NamedTuple):
    key_hash: int
    offset: int
    seconds: int  # behind the file's first timestamp
    previous: int  # item of the same slot; 0 for none


@lru_cache(maxsize=1024)
def _hash_of_begin(topic: str, key_begin: str) -> int:
    """The unique keys of one producer begin with the same 20 characters."""
    return java_string_hash(f"{topic}#{key_begin}")


def key_hash(topic: str, key: str) -> int:
    """The slot is this modulo the number of slots."""
    found = abs(java_string_hash(key[-_OWN_UNITS:], _hash_of_begin(topic, key[:-_OWN_UNITS])))
    return found if found <= _INT_MAX else 0


def index_keys(unique_key: str | None, keys: str | None) -> list[str]:
    """Under what a message is entered, in this order."""
    return [key for key in (unique_key, *(keys or "").split(" ")) if key]
