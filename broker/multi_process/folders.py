"""The folder of each broker's store, below `--data-dir`; no start may leave a store aside."""

from collections.abc import Sequence
from typing import Final

from lockstep.remoting.host.storage import Storage
from lockstep.store.errors import StoreUnusable
from lockstep.store.format.files import names_in
from lockstep.store.format.layout import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX

__all__ = ["store_folders"]

_INSIDE: Final = frozenset({COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX})  # folders of a store
# One of them is in each store, the first after the first message.
_MARKS: Final = frozenset({COMMIT_LOG, CONFIG})


def store_folders(storage: Storage, data_dir: str, names: Sequence[str]) -> list[str]:
    """The folder of each broker, in the order of `names`.

    A single broker has `data_dir` itself. Several have a folder each in it, with the broker's name. When `data_dir`
    was of a single broker, it stays the folder of the first one.

    Raises:
        StoreUnusable: `data_dir` has the store of another broker too, which this start would leave aside.
        OSError: It cannot be read.
    """
    root = data_dir.rstrip("/") or "/"
    inside = _names(storage, root)
    others = [name for name in inside if name not in _INSIDE]
    stores = [name for name in others if not _MARKS.isdisjoint(_names(storage, f"{root}/{name}"))]
    alone = len(names) == 1
    first_at_root = alone or not _MARKS.isdisjoint(inside)
    named = names[1:] if first_at_root else names
    aside = [name for name in stores if name not in named]
    if aside:
        raise StoreUnusable(
            f"{root} has the store of {', '.join(aside)} too, which this start would leave aside; "
            "give --brokers and --broker-name as at the last start"
        )
    return [*([root] if first_at_root else []), *(f"{root}/{name}" for name in named)]


def _names(storage: Storage, folder: str) -> list[str]:
    try:
        return names_in(storage, folder)
    except NotADirectoryError:
        return []
