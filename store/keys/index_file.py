"""One index file: slots, each the head of a chain of items (docs/store.md)."""

from collections.abc import Iterator
from typing import Final

from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.format.index import (
    INDEX_HEADER,
    INDEX_ITEM,
    INDEX_SLOT,
    IndexHeader,
    items_position,
    read_header,
    read_items,
    read_slots,
)

__all__ = ["IndexFile"]

_SECONDS_MAX: Final = 0x7FFFFFFF
_SLOTS_AT_ONCE: Final = 256 * 1024
_EMPTY: Final = IndexHeader(0, 0, 0, 0, 0, 1)


class IndexFile:
    """New items and changed slots wait in memory until `write_out`."""

    def __init__(self, storage: Storage, path: str, slot_count: int, item_count: int) -> None:
        self.path = path
        self.header = _EMPTY
        self._storage = storage
        self._slot_count = slot_count
        self._item_count = item_count
        self._items_at = items_position(slot_count)
        self._file: StoredFile | None = None
        self._new_items = bytearray()
        self._new_slots: dict[int, int] = {}
        self._first_new = 1
        self._dirty = False
        self._is_closed = False

    def make(self) -> None:
        """Raises OSError."""
        self._file = self._storage.open_file(self.path, create=True)
        try:
            self._file.set_size(self._items_at + self._item_count * INDEX_ITEM.size)
            self._file.write_at(0, INDEX_HEADER.pack(*self.header))
        except BaseException:
            self.close()
            raise
        self._dirty = True

    def load(self) -> bool:
        """Read the header. False if this is no index file of these sizes. Raises OSError."""
        file = self._open()
        header = read_header(file)
        if header is None:
            return False
        self.header = header._replace(next_item=max(1, header.next_item))
        self._first_new = self.header.next_item
        fits = file.size_bytes() == self._items_at + self._item_count * INDEX_ITEM.size
        return fits and self.header.next_item <= self._item_count and min(header) >= 0

    def slots_are_ahead(self) -> bool:
        """Does a slot point to an item that the header does not count yet? Raises OSError."""
        if self.is_full:
            return False
        file = self._open()
        firsts = range(0, self._slot_count, _SLOTS_AT_ONCE)
        pieces = (read_slots(file, first, min(_SLOTS_AT_ONCE, self._slot_count - first)) for first in firsts)
        return any(max(slots) >= self.header.next_item for slots in pieces)

    def _open(self) -> StoredFile:
        if self._file is None:
            self._file = self._storage.open_file(self.path)
        return self._file

    @property
    def is_full(self) -> bool:
        return self.header.next_item >= self._item_count

    def put(self, key_hash: int, offset: int, store_timestamp: int) -> None:
        """Add an item. Item 0 is never used, so a file holds one less than its item count. Raises OSError."""
        header = self.header
        slot = key_hash % self._slot_count
        previous = self._slot(slot)
        if previous >= header.next_item or previous < 0:
            previous = 0
        first = header.next_item <= 1
        begin_ms = store_timestamp if first else header.first_timestamp
        seconds = min(max(0, (store_timestamp - begin_ms) // 1000), _SECONDS_MAX)
        self._new_items += INDEX_ITEM.pack(key_hash, offset, seconds, previous)
        self._new_slots[slot] = header.next_item
        self.header = IndexHeader(
            begin_ms,
            store_timestamp,
            offset if first else header.first_offset,
            offset,
            header.slots_used + (not previous),
            header.next_item + 1,
        )

    def _slot(self, slot: int) -> int:
        if slot in self._new_slots:
            return self._new_slots[slot]
        return read_slots(self._open(), slot, 1)[0]

    def write_out(self) -> None:
        """Write the waiting items and slots. Raises OSError; then they wait on."""
        if not self._new_items:
            return
        file = self._open()
        file.write_at(self._items_at + self._first_new * INDEX_ITEM.size, self._new_items)
        for slot, item in self._new_slots.items():
            file.write_at(items_position(slot), INDEX_SLOT.pack(item))
        file.write_at(0, INDEX_HEADER.pack(*self.header))
        self._new_items.clear()
        self._new_slots.clear()
        self._first_new = self.header.next_item
        self._dirty = True

    def offsets_of(self, key_hash: int) -> Iterator[int | None]:
        """Commit log offsets of messages with this key hash, newest first; None for another one in their chain.

        They end when the file is closed meanwhile. Raises OSError.
        """
        if self._is_closed:
            return
        file, item = self._open(), self._slot(key_hash % self._slot_count)
        while 0 < item < self.header.next_item and not self._is_closed:
            (found,) = read_items(file, self._slot_count, item, item + 1)
            yield found.offset if found.key_hash == key_hash else None
            if found.previous >= item:
                # A chain only goes to lower numbers: this one is damaged.
                return
            item = found.previous

    def take_dirty(self) -> StoredFile | None:
        dirty, self._dirty = self._dirty, False
        return self._file if dirty else None

    def close(self) -> None:
        """For good: it may be deleted then, and is not opened again."""
        self._is_closed = True
        file, self._file = self._file, None
        if file is not None:
            file.close()
