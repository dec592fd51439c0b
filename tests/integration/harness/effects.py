"""A service's database of the effects of one topic, guarded by a fence row for each queue (docs/fencing.md)."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from lockstep.client import MessageExt, MessageQueue

__all__ = ["Effect", "Effects"]

_TABLES = """
CREATE TABLE IF NOT EXISTS fence (topic, queue_id, epoch INTEGER NOT NULL, PRIMARY KEY (topic, queue_id));
CREATE TABLE IF NOT EXISTS effect (number INTEGER PRIMARY KEY, queue_id, offset, epoch, UNIQUE (queue_id, offset));
CREATE TABLE IF NOT EXISTS refused (number INTEGER PRIMARY KEY, queue_id, offset, epoch);
"""
_RAISE = """
INSERT INTO fence VALUES (?, ?, ?)
ON CONFLICT (topic, queue_id) DO UPDATE SET epoch = excluded.epoch WHERE excluded.epoch > epoch
"""


class Effect(NamedTuple):
    queue_id: int
    offset: int
    epoch: int


class Effects:
    """Shared by processes: each call has a transaction of its own. A repeat of a message changes nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        with self._transaction() as database:
            for statement in _TABLES.split(";"):
                database.execute(statement)

    def begin_period(self, queue: MessageQueue, epoch: int) -> None:
        """Raise the fence of the queue: no earlier period writes an effect from now on."""
        with self._transaction() as database:
            database.execute(_RAISE, (queue.topic, queue.queue_id, epoch))

    def write(self, messages: Sequence[MessageExt], epoch: int) -> None:
        """Write the effects of messages, or that the fence refused them."""
        with self._transaction() as database:
            for message in messages:
                place = (message.topic, message.queue_id)
                fence = database.execute("SELECT epoch FROM fence WHERE (topic, queue_id) = (?, ?)", place).fetchone()
                table = "effect" if fence == (epoch,) else "refused"
                row = (message.queue_id, message.queue_offset, epoch)
                database.execute(f"INSERT OR IGNORE INTO {table} (queue_id, offset, epoch) VALUES (?, ?, ?)", row)

    def written(self) -> list[Effect]:
        """All effects, in the order in which they happened."""
        return self._rows("effect")

    def refused(self) -> list[Effect]:
        return self._rows("refused")

    def _rows(self, table: str) -> list[Effect]:
        with self._transaction() as database:
            rows = database.execute(f"SELECT queue_id, offset, epoch FROM {table} ORDER BY number")
            return [Effect(*row) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")
        finally:
            database.close()
