"""Checks index files: each item against its message, chains and slots against the items (docs/store.md).

Items have the order of the log. So both are read side by side, and little is kept in memory.
"""

from array import array
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.check.files import Damage
from lockstep.store.format.files import names_in
from lockstep.store.format.index import (
    INDEX_HEADER,
    INDEX_ITEM,
    INDEX_SLOT,
    IndexHeader,
    items_position,
    key_hash,
    keys_of,
    read_header,
    read_items,
    read_slots,
)
from lockstep.store.format.layout import INDEX
from lockstep.store.format.record import LogRecord

__all__ = ["IndexCheck"]

_ITEMS_A_SLOT: Final = 4  # by RocketMQ's default settings
_SEARCHED_BYTES_MAX: Final = 16 * 1024 * 1024


class _Item(NamedTuple):
    file: str
    position: int
    key_hash: int
    offset: int


class IndexCheck:
    """Call `see` with each message of the log in order, then `rest`, and `close` also after an error. Raises OSError.

    Args:
        crashed: Damage counts as unfinished, since a broker rebuilds the files after a crash.
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
        """Damage of the items up to those of this message."""
        hashes: set[int] | None = None
        while self._next is not None and self._next.offset <= record.offset:
            item = self._next
            if item.offset < record.offset:
                yield from self._without_message(item)
            else:
                if hashes is None:
                    hashes = {key_hash(record.topic, key) for key in keys_of(record.properties)}
                if item.key_hash not in hashes:
                    text = f"an item says that the message at {item.offset} has a key that it does not have"
                    yield Damage(item.file, item.position, text, self._crashed)
            self._next = next(self._items, None)
        yield from self._take_found()

    def rest(self) -> Iterator[Damage]:
        """Damage of the items behind the last message."""
        while self._next is not None:
            yield from self._without_message(self._next)
            self._next = next(self._items, None)
        yield from self._take_found()

    def close(self) -> None:
        """Close the file that is read."""
        self._items.close()

    def _take_found(self) -> list[Damage]:
        found, self._found = self._found, []
        return found

    def _without_message(self, item: _Item) -> Iterator[Damage]:
        if not 0 <= item.offset < self._first_offset:  # else the message expired
            text = f"an item points at {item.offset} of the log, where no message is"
            yield Damage(item.file, item.position, text, self._crashed)

    # One file ------------------------------------------------------------------------------------------------

    def _all_items(self) -> Generator[_Item, None, None]:
        for name in names_in(self._storage, f"{self._root}/{INDEX}"):
            file = self._storage.open_file(f"{self._root}/{INDEX}/{name}", read_only=True)
            try:
                yield from self._items_of(f"{INDEX}/{name}", file)
            finally:
                file.close()

    def _report(self, name: str, position: int, text: str) -> None:
        self._found.append(Damage(name, position, text, self._crashed))

    def _items_of(self, name: str, file: StoredFile) -> Iterator[_Item]:
        header = read_header(file)
        if header is None:
            self._found.append(Damage(name, file.size_bytes(), "ends within its header", unfinished=True))
            return
        items_max = (file.size_bytes() - INDEX_HEADER.size) // INDEX_ITEM.size
        if not 0 <= header.next_item <= items_max + 1 or header.first_offset > header.last_offset:
            self._found.append(Damage(name, 0, f"its header is impossible: {header}"))
            return
        if header.next_item <= 1:
            return
        slot_count = _slot_count(file, header)
        if slot_count:
            yield from self._chained(name, file, header, slot_count)
        else:
            self._report(name, 0, "its slots and items fit no number of slots")

    def _chained(self, name: str, file: StoredFile, header: IndexHeader, slot_count: int) -> Iterator[_Item]:
        """Its items, each checked against the chain of its slot."""
        heads = array("i", bytes(4 * slot_count))
        last_offset = 0
        for number, item in enumerate(read_items(file, slot_count, 1, header.next_item), 1):
            position = items_position(slot_count) + number * INDEX_ITEM.size
            slot = item.key_hash % slot_count
            if item.offset < last_offset:
                text = f"item {number} points at {item.offset}, the one before it at {last_offset}"
                self._report(name, position, text)
            elif item.previous != heads[slot]:
                text = f"item {number} follows item {item.previous} of its slot, and not {heads[slot]}"
                self._report(name, position, text)
            heads[slot] = number
            if item.offset >= last_offset:
                last_offset = item.offset
                yield _Item(name, position, item.key_hash, item.offset)
        found = read_slots(file, 0, slot_count)
        if found != heads:
            for slot, (head, wanted) in enumerate(zip(found, heads, strict=True)):
                if head != wanted:
                    text = f"slot {slot} begins with item {head}, and should with {wanted}"
                    self._report(name, items_position(slot), text)


def _slot_count(file: StoredFile, header: IndexHeader) -> int:
    """The number of slots, which the file does not tell: by its size, else by the slot of its last item.

    0 when no number fits.
    """
    words = (file.size_bytes() - INDEX_HEADER.size) // INDEX_SLOT.size
    words_an_item = INDEX_ITEM.size // INDEX_SLOT.size
    slot_count, rest = divmod(words, 1 + _ITEMS_A_SLOT * words_an_item)
    if not rest:
        return slot_count
    if file.size_bytes() > _SEARCHED_BYTES_MAX:
        return 0
    for slots in range(words % words_an_item or words_an_item, words, words_an_item):
        if items_position(slots) + header.next_item * INDEX_ITEM.size > file.size_bytes():
            return 0
        unused, first = read_items(file, slots, 0, 2)
        if not any(unused) and any(first):
            (last,) = read_items(file, slots, header.next_item - 1, header.next_item)
            (head,) = read_slots(file, last.key_hash % slots, 1)
            if last.offset == header.last_offset and head == header.next_item - 1:
                return slots
    return 0
