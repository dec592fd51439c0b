"""Queues of deleted topics: their folder gets another name at once, and their files are deleted later, in steps.

A new topic of the same name finds an empty place. What a crash leaves is deleted at the next start.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lockstep.remoting.host.storage import Storage
from lockstep.remoting.logs import EventLog
from lockstep.store.format.files import names_in
from lockstep.store.format.layout import CONSUME_QUEUE, parse_file_name
from lockstep.store.segments.queue import FileQueue

__all__ = ["delete_left_queues", "move_queues", "remove_empty"]

_PREFIX: Final = "dropped-"  # folders beside consumequeue


def move_queues(storage: Storage, root: str, topic: str, queues: Sequence[FileQueue]) -> bool:
    """Rename the folder of a topic with these queues. False: it keeps its name, and the files must be deleted now."""
    try:
        number = 1 + max([int(name.removeprefix(_PREFIX)) for name in _left(storage, root)], default=0)
        folder = f"{root}/{_PREFIX}{number}"
        storage.rename(f"{root}/{CONSUME_QUEUE}/{topic}", folder)
    except FileNotFoundError:
        # The entries of all queues wait in memory.
        # This folder never exists. The topic's own folder may soon be that of a new topic.
        folder = f"{root}/{_PREFIX}0"
    except OSError:
        return False
    for queue in queues:
        queue.is_deleted = True
        queue.segments.moved(folder, str(queue.queue_id))
    return True


def delete_left_queues(storage: Storage, root: str, events: EventLog) -> int:
    """Delete what a crash has left of deleted topics. Returns how many are gone. Raises OSError for `root` alone."""
    deleted = 0
    for name in _left(storage, root):
        failed = _delete_left(storage, f"{root}/{name}")
        if failed is None:
            deleted += 1
        else:
            events.error("queue_delete_failed", folder=f"{root}/{name}", reason=str(failed))
    return deleted


def _delete_left(storage: Storage, folder: str) -> OSError | None:
    """Delete the queues in a folder, then the folder. Returns why something stays: a file that is not ours, say."""
    failed: OSError | None = None
    try:
        for queue in filter(str.isdecimal, storage.list_dir(folder)):
            try:
                for name in storage.list_dir(f"{folder}/{queue}"):
                    if parse_file_name(name) is not None:
                        storage.delete(f"{folder}/{queue}/{name}")
                storage.delete(f"{folder}/{queue}")
            except OSError as error:
                failed = failed or error
        if failed is None:
            storage.delete(folder)
    except OSError as error:
        failed = error
    return failed


def remove_empty(storage: Storage, root: str) -> None:
    """Remove folders whose queues are all deleted. What cannot be removed now is removed at the next start."""
    with suppress(OSError):
        for folder in _left(storage, root):
            with suppress(OSError):
                # Another topic is still being deleted.
                storage.delete(f"{root}/{folder}")


def _left(storage: Storage, root: str) -> list[str]:
    return [
        name for name in names_in(storage, root) if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).isdecimal()
    ]
