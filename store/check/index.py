"""Are files of keys whole? Each item held against its message, chains and slots against the items (docs/store.md).

Items stand in the order of the log, so both are gone through side by side, and little is kept in memory.
"""

import sys
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from lockstep.protocol.properties import KEYS, UNIQ_KEY, decode_properties
from lockstep.remoting.storage import Storage, StoredFile
from lockstep.store.check.files import Damage, is_blank, list_or_none
from lockstep.store.format.index import (
    INDEX_HEADER,
    INDEX_ITEM,
    INDEX_SLOT,
    IndexHeader,
    IndexItem,
    index_keys,
    key_hash,
)
from lockstep.store.format.layout import INDEX
from lockstep.store.format.record import LogRecord

__all__ = ["IndexCheck"]

_ITEMS_AT_ONCE: Final = 50_000
_ITEMS_A_SLOT: Final = 4  # as RocketMQ's settings have it, whatever the size
_SEARCHED_BYTES_MAX: Final = 16 * 1024 * 1024


class _Item(NamedTuple):
    file: str
    position: int
    key_hash: int
    offset: int


class IndexCheck:
    """Call `see` with every message of the log in its order, then `rest`. Raises OSError.

    `crashed`: the files may be behind, and what a broker finds so it makes anew.
    """

    def __init__(self, storage: Storage, root: str, first_offset: int, *, crashed: bool) -> None:
        self._storage = storage
        self._root = root
        self._first_offset = first_offset
        self._crashed = crashed
        self._found: list[Damage] = []
        self._items = self._all_items()
        self._next = next(self._items, None)

    def see(self, record: LogRecord) -> Iterator[Damage]:
        """What is wrong with items up to those of this message."""
        hashes: frozenset[int] | None = None
        while self._next is not None and self._next.offset <= record.offset:
            item = self._next
            if item.offset < record.offset:
                yield from self._without_message(item)
            else:
                hashes = _hashes(record) if hashes is None else hashes
                if item.key_hash not in hashes:
                    text = f"an item says that the message at {item.offset} has a key which it has not"
                    yield Damage(item.file, item.position, text, self._crashed)
            self._next = next(self._items, None)
        yield from self._take_found()

    def rest(self) -> Iterator[Damage]:
        """Behind the last message."""
        while self._next is not None:
            yield from self._without_message(self._next)
            self._next = next(self._items, None)
        yield from self._take_found()

    def _take_found(self) -> list[Damage]:
        found, self._found = self._found, []
        return found

    def _without_message(self, item: _Item) -> Iterator[Damage]:
        if not 0 <= item.offset < self._first_offset:  # else it is deleted
            text = f"an item points at {item.offset} of the log, where no message is"
            yield Damage(item.file, item.position, text, self._crashed)

    # One file ------------------------------------------------------------------------------------------------

    def _all_items(self) -> Iterator[_Item]:
        for name in list_or_none(self._storage, f"{self._root}/{INDEX}"):
            file = self._storage.open_file(f"{self._root}/{INDEX}/{name}", read_only=True)
            try:
                yield from self._items_of(f"{INDEX}/{name}", file)
            finally:
                file.close()

    def _bad(self, name: str, position: int, text: str) -> None:
        self._found.append(Damage(name, position, text, self._crashed))

    def _items_of(self, name: str, file: StoredFile) -> Iterator[_Item]:
        page = file.read_at(0, INDEX_HEADER.size)
        if len(page) < INDEX_HEADER.size:
            self._found.append(Damage(name, len(page), "ends within its header", unfinished=True))
            return
        header = IndexHeader(*INDEX_HEADER.unpack(page))
        room = (file.size_bytes() - INDEX_HEADER.size) // INDEX_ITEM.size
        if not 0 <= header.next_item <= room + 1 or header.first_offset > header.last_offset:
            self._found.append(Damage(name, 0, f"its header cannot be: {header}"))
            return
        if header.next_item <= 1:
            return
        slot_count = _slot_count(file, header)
        if slot_count:
            yield from self._chained(name, file, header, slot_count)
        else:
            self._bad(name, 0, "its slots and items fit no number of slots")

    def _chained(self, name: str, file: StoredFile, header: IndexHeader, slot_count: int) -> Iterator[_Item]:
        """Its items, each looked at together with the slot that it belongs to."""
        items_at = INDEX_HEADER.size + slot_count * INDEX_SLOT.size
        heads = array("i", bytes(4 * slot_count))
        last_offset = 0
        for number, item in _numbered(file, items_at, header.next_item):
            position = items_at + number * INDEX_ITEM.size
            slot = item.key_hash % slot_count
            if item.offset < last_offset:
                self._bad(name, position, f"item {number} points at {item.offset}, the one before it at {last_offset}")
            elif item.previous != heads[slot]:
                text = f"item {number} follows item {item.previous} of its slot, and not {heads[slot]}"
                self._bad(name, position, text)
            heads[slot] = number
            if item.offset >= last_offset:
                last_offset = item.offset
                yield _Item(name, position, item.key_hash, item.offset)
        self._check_slots(name, file, heads)

    def _check_slots(self, name: str, file: StoredFile, heads: "array[int]") -> None:
        found = array("i", file.read_at(INDEX_HEADER.size, len(heads) * INDEX_SLOT.size))
        if sys.byteorder == "little":
            found.byteswap()
        if found != heads:
            for slot, (head, wanted) in enumerate(zip(found, heads, strict=True)):
                if head != wanted:
                    position = INDEX_HEADER.size + slot * INDEX_SLOT.size
                    self._bad(name, position, f"slot {slot} begins with item {head}, and should with {wanted}")


def _hashes(record: LogRecord) -> frozenset[int]:
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    keys = index_keys(properties.get(UNIQ_KEY), properties.get(KEYS))
    return frozenset(key_hash(record.topic, key) for key in keys)


def _numbered(file: StoredFile, items_at: int, end: int) -> Iterator[tuple[int, IndexItem]]:
    for first in range(1, end, _ITEMS_AT_ONCE):
        count = min(_ITEMS_AT_ONCE, end - first)
        data = file.read_at(items_at + first * INDEX_ITEM.size, count * INDEX_ITEM.size)
        whole = data[: len(data) - len(data) % INDEX_ITEM.size]
        for number, fields in enumerate(INDEX_ITEM.iter_unpack(whole), first):
            yield number, IndexItem(*fields)


def _slot_count(file: StoredFile, header: IndexHeader) -> int:
    """How many slots the file has, which nothing in it says: by its size, else as its last item's slot tells.

    0 when no number fits.
    """
    words = (file.size_bytes() - INDEX_HEADER.size) // INDEX_SLOT.size
    words_an_item = INDEX_ITEM.size // INDEX_SLOT.size
    slot_count, rest = divmod(words, 1 + _ITEMS_A_SLOT * words_an_item)
    if not rest:
        return slot_count
    if file.size_bytes() > _SEARCHED_BYTES_MAX:
        return 0
    data = file.read_at(0, file.size_bytes())
    for slots in range(words % words_an_item or words_an_item, words, words_an_item):
        items_at = INDEX_HEADER.size + slots * INDEX_SLOT.size
        last_at = items_at + (header.next_item - 1) * INDEX_ITEM.size
        if last_at + INDEX_ITEM.size > len(data):
            return 0
        last = IndexItem(*INDEX_ITEM.unpack_from(data, last_at))
        first_at = items_at + INDEX_ITEM.size  # the one before it is never used
        has_first = not is_blank(data[first_at : first_at + INDEX_ITEM.size])
        if last.offset == header.last_offset and is_blank(data[items_at:first_at]) and has_first:
            (head,) = INDEX_SLOT.unpack_from(data, INDEX_HEADER.size + last.key_hash % slots * INDEX_SLOT.size)
            if head == header.next_item - 1:
                return slots
    return 0
