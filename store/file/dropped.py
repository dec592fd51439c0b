"""Queues of deleted topics: their folder gets another name at once, and their files are deleted later, in steps.

A new topic of the same name finds an empty place. What a crash leaves is deleted at the next start.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lockstep.remoting.storage import Storage
from lockstep.store.file.queue import FileQueue
from lockstep.store.format.files import names_in
from lockstep.store.format.layout import CONSUME_QUEUE

__all__ = ["delete_left_queues", "move_queues", "remove_empty"]

_PREFIX: Final = "dropped-"  # folders beside consumequeue


def move_queues(storage: Storage, root: str, topic: str, queues: Sequence[FileQueue]) -> bool:
    """Rename the folder of a topic with these queues. False: it keeps its name, and the files must be deleted now."""
    number = 1 + max([int(name.removeprefix(_PREFIX)) for name in _left(storage, root)], default=0)
    folder = f"{root}/{_PREFIX}{number}"
    try:
        storage.rename(f"{root}/{CONSUME_QUEUE}/{topic}", folder)
    except FileNotFoundError:
        pass  # the entries of all queues wait in memory
    except OSError:
        return False
    for queue in queues:
        queue.is_deleted = True
        queue.segments.moved(folder, str(queue.queue_id))
    return True


def delete_left_queues(storage: Storage, root: str) -> int:
    """Delete what a crash has left of deleted topics. Returns the number of topics. Raises OSError."""
    left = _left(storage, root)
    for folder in left:
        for queue in names_in(storage, f"{root}/{folder}"):
            for name in names_in(storage, f"{root}/{folder}/{queue}"):
                storage.delete(f"{root}/{folder}/{queue}/{name}")
            storage.delete(f"{root}/{folder}/{queue}")
        storage.delete(f"{root}/{folder}")
    return len(left)


def remove_empty(storage: Storage, root: str) -> None:
    """Remove folders whose queues are all deleted."""
    for folder in _left(storage, root):
        with suppress(OSError):  # another topic is still being deleted
            storage.delete(f"{root}/{folder}")


def _left(storage: Storage, root: str) -> list[str]:
    return [
        name for name in names_in(storage, root) if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdecimal()
    ]
