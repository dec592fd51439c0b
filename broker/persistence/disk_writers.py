"""What brings the log and the tables of a broker to the disk while it serves, and tells when they are there."""

from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.persistence.config_writer import OnWritten, TableWriter
from lockstep.broker.persistence.durable_store import DurableStore
from lockstep.broker.persistence.lock_table import DiskLockPersistence
from lockstep.remoting.host.runtime import Runtime
from lockstep.store.durability.flusher import FlushSettings, StoreFlusher
from lockstep.store.file.retention import Retention, RetentionLimits

__all__ = ["DiskWriters"]

_MS_PER_HOUR: Final = 3_600_000


class DiskWriters:
    """One writer for the log, and one for each table.

    Attributes:
        flusher: Writes the log, the offsets and the delays.
        topics, groups: Write these tables after each change.
        lock_persistence: Keeps the periods of ownership; None: they are in memory only.
    """

    def __init__(
        self, runtime: Runtime, config: Callable[[], BrokerConfig], kept: DurableStore, on_visible: Callable[[], None]
    ) -> None:
        """
        Args:
            config: Returns the present config: limits of the store may change at run time.
            on_visible: Called after messages have become readable.
        """
        self._config = config
        tables, log, now = kept.tables, kept.store.events, config()
        settings = FlushSettings(
            now.flush_sync, now.flush_interval_ms, now.flush_offsets_interval_ms, now.checkpoint_interval_ms
        )
        self.flusher = StoreFlusher(runtime, kept.store, settings, Retention(self._limits), tables.writings, on_visible)
        self.topics = TableWriter(runtime, tables.topics, log)
        self.groups = TableWriter(runtime, tables.groups, log)
        self._writers = [self.topics, self.groups]
        self.lock_persistence: DiskLockPersistence | None = None
        self._lock_file = kept.lock_file
        if kept.lock_file is not None:
            lock_writer = TableWriter(runtime, kept.lock_file.table, log)
            self._writers.append(lock_writer)
            self.lock_persistence = DiskLockPersistence(kept.lock_file, kept.offsets, lock_writer)
        self._topics = tables.topics
        self._flush_sync = now.flush_sync
        if now.flush_sync:
            kept.when_synced = self.flusher.when_safe

    def _limits(self) -> RetentionLimits:
        config = self._config()
        hours = tuple(int(hour) for hour in config.delete_when.split(";"))
        reserved_ms = config.reserved_hours * _MS_PER_HOUR
        return RetentionLimits(reserved_ms, hours, config.data_bytes_max, config.disk_used_ratio_max)

    # Start and end -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Write the present state of the tables before the first request is served."""
        self.flusher.start()
        for writer in self._writers:
            await writer.start()

    async def flush(self) -> None:
        """Wait until no answer waits for the disk."""
        for writer in self._writers:
            await writer.flush()
        await self.flusher.flush()

    async def stop(self) -> None:
        """Write everything, release the folder and close the store."""
        for writer in self._writers:
            await writer.stop()
        if self._lock_file is not None:
            self._lock_file.close()
        await self.flusher.stop()

    # Messages ------------------------------------------------------------------------------------------------

    def keep_at_once(self) -> bool:
        """Whether a message that is stored now is kept at once, as far as the settings ask for it.

        Not while topics are being written: without its topic a message is not found after a restart. With --flush sync
        its own sync comes first. Groups do not count: a client that has made one makes it again.
        """
        return not self._flush_sync and self._topics.is_written

    def when_kept(self, then: OnWritten) -> None:
        """Call `then` when all messages stored so far are kept, or with the reason why they are not."""
        if not self._topics.is_written:
            self.topics.when_written(partial(self._with_topics, then))
        elif self._flush_sync:
            # The round begins at the end of the read, for all of its messages.
            self.flusher.when_safe(then)
        else:
            then("")

    def _with_topics(self, then: OnWritten, reason: str) -> None:
        if reason or not self._flush_sync:
            then(reason)
        else:
            self.flusher.when_safe(then)
            self.flusher.check()
