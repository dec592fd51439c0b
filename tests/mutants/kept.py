"""Protections of what a broker keeps: messages, stored offsets and routes, also when it starts again."""

from typing import Final

from lockstep.simulation.museum.variant import edited
from tests.mutants.protection import Protection

__all__ = ["KEPT"]

# Modules
NAME_SERVER: Final = "lockstep.broker.name_server.name_server"
CONFIG_FILES: Final = "lockstep.broker.persistence.config_files"
DISK_WRITERS: Final = "lockstep.broker.persistence.disk_writers"
DURABLE_STORE: Final = "lockstep.broker.persistence.durable_store"
READ: Final = "lockstep.broker.core.read"
BROKER: Final = "lockstep.broker.core.broker"
DATA_DIR: Final = "lockstep.store.data_dir"
CHECKPOINT: Final = "lockstep.store.durability.checkpoint"
FLUSHER: Final = "lockstep.store.durability.flusher"
RECOVERY: Final = "lockstep.store.durability.recovery"
READER: Final = "lockstep.store.file.reader"
STORE_STORE: Final = "lockstep.store.file.store"
RECORD: Final = "lockstep.store.format.record"
MEMORY_STORE: Final = "lockstep.store.memory.store"

KEPT: Final = (
    Protection(
        "kept-before-read",
        "Messages are read before they are on the disk.",
        edited(DURABLE_STORE, "new_file_store", "config.flush_sync", "False"),
        ("tests/store/test_flush_rounds.py",),
    ),
    Protection(
        "kept-before-answer",
        "A message is acknowledged before it is on the disk.",
        edited(DISK_WRITERS, "DiskWriters.keep_at_once", "not self._flush_sync", "True"),
        ("tests/broker/fronts/test_unsafe_answers.py",),
    ),
    Protection(
        "kept-offsets-read",
        "A broker that starts again has forgotten the stored offsets.",
        edited(CONFIG_FILES, "ConfigFiles.load", "offsets is not None", "False"),
        ("tests/broker/persistence/test_kept_offsets.py",),
    ),
    Protection(
        "kept-offsets-written",
        "A broker that ends does not write the stored offsets.",
        edited(
            CONFIG_FILES,
            "ConfigFiles.writings",
            "[writing, partial(self._write, DELAYS, self._delay_offsets()), *self._timers(), *self._deliveries()]",
            "[partial(self._write, DELAYS, self._delay_offsets()), *self._timers(), *self._deliveries()]",
        ),
        ("tests/broker/persistence/test_restart_trace.py",),
    ),
    Protection(
        "kept-behind-checkpoint",
        "What is behind the checkpoint is cut off after a crash.",
        edited(RECOVERY, "Recovery.run", "self._read_log(safe, safe)", "safe"),
        ("tests/store/test_file_store.py",),
    ),
    Protection(
        "delayed-not-ahead",
        "After the store lost its newest messages, later delayed messages are skipped.",
        edited(DURABLE_STORE, "DurableStore._open", "tables.delays.cut()", ""),
        ("tests/broker/persistence/test_delay_recovery.py",),
    ),
    Protection(
        "kept-mark-of-a-start",
        "The mark of a running broker is not on the disk: after a power cut a torn log is taken for whole.",
        edited(DATA_DIR, "DataDir.open", "self._storage.sync_dir(self.folder)", ""),
        ("tests/store/test_data_dir.py",),
    ),
    Protection(
        "read-next-offset",
        "A pull is told to go on behind a message that it did not get.",
        edited(MEMORY_STORE, "MemoryStore.get", "queue_offset + count", "queue_offset + count + (count > 1)"),
        ("tests/store/test_memory_store.py",),
    ),
    Protection(
        "hold-asked-offset",
        "A pull is answered from the last message of its queue on, wherever it asked to begin.",
        edited(
            READ,
            "read",
            "broker.messages.store.get",
            "lambda topic, queue_id, offset, *rest, **more: broker.messages.store.get(topic, queue_id, "
            "max(offset, broker.messages.store.max_offset(topic, queue_id) - 1), *rest, **more)",
        ),
        ("tests/broker/fronts/test_pull.py",),
    ),
    Protection(
        "members-expire",
        "A member that sends no heartbeats stays in its group.",
        edited(BROKER, "Broker.scan", "self.members.consumers.expired(now_ms, timeout_ms)", "[]"),
        ("tests/broker/ports/test_server.py",),
    ),
    Protection(
        "delayed-once",
        "After a crash a delayed message is delivered again.",
        edited(
            DURABLE_STORE,
            "DurableStore._open",
            "count_delivered(store, tables.delays, self.tables.delays_log_offset)",
            "0",
        ),
        ("tests/broker/persistence/test_delay_recovery.py",),
    ),
    Protection(
        "half-ended-once",
        "After a crash a transaction that was committed is open again.",
        edited(
            DURABLE_STORE,
            "DurableStore._open",
            "self._mark_last_commit(now_ms) if self.data_dir.crashed else None",
            "None",
        ),
        ("tests/broker/persistence/test_kept_transactions.py",),
    ),
    Protection(
        "routes-of-the-living",
        "A broker that is gone stays in the routes.",
        edited(
            NAME_SERVER,
            "NameServer.scan",
            "now_ms - live.last_update_ms > self.config.broker_expired_timeout_ms",
            "False",
        ),
        ("tests/broker/name_server/test_name_server.py",),
    ),
    Protection(
        "recovery-torn-properties",
        "A message whose properties did not reach the disk before a crash is served.",
        edited(
            RECOVERY,
            "Recovery._read_log",
            "offset >= suspect_from and is_torn(record, segments.position_in_file(offset))",
            "False",
        ),
        ("tests/store/test_file_store.py",),
    ),
    Protection(
        "recovery-nothing-behind-torn",
        "What stands behind a torn write is served after a crash, with a hole before it.",
        edited(RECOVERY, "Recovery._behind_damage", "self._data_dir.crashed", "False"),
        ("tests/store/test_file_store.py",),
    ),
    Protection(
        "recovery-reads-on-behind-damage",
        "Damage below the checkpoint loses all messages behind it after a crash.",
        edited(RECOVERY, "Recovery._behind_damage", "position < safe", "False"),
        ("tests/store/test_file_store.py",),
    ),
    Protection(
        "recovery-not-below-checkpoint",
        "New messages get places of the log that lost ones had.",
        edited(
            RECOVERY,
            "Recovery._read_log",
            ("if torn or not scan.reason:\n    return max(scan.position, safe)"),
            ("if torn or not scan.reason:\n    return scan.position"),
        ),
        ("tests/store/test_file_store.py",),
    ),
    Protection(
        "failed-sync-of-all-files",
        "After a failed sync only the last file of the log is synced again.",
        edited(FLUSHER, "StoreFlusher._begin", ("if self._failed:\n    log.mark_unsynced(log.synced_offset)"), ""),
        ("tests/store/test_flush_rounds.py",),
    ),
    Protection(
        "failed-sync-torn-properties",
        "A message whose properties a failed sync has lost is acknowledged.",
        edited(FLUSHER, "_write_again", "is_torn(record, segments.position_in_file(record.offset))", "False"),
        ("tests/store/test_flush_rounds.py",),
    ),
    Protection(
        "log-names-on-the-disk",
        "A new file of the log is lost with the power, with acknowledged messages in it.",
        edited(FLUSHER, "_sync_log", ("for folder in work.log_folders:\n    storage.sync_dir(folder)"), ""),
        ("tests/store/test_flush_rounds.py",),
    ),
    Protection(
        "clean-end-with-checkpoint",
        "An end whose checkpoint failed counts as clean, and loses what is behind the checkpoint.",
        edited(FLUSHER, "StoreFlusher._end", "written == store.log.max_offset", "True"),
        ("tests/store/test_flush_rounds.py",),
    ),
    Protection(
        "checkpoint-of-safe-queues",
        "A checkpoint counts entries whose sync failed.",
        edited(CHECKPOINT, "CheckpointWriter._sync_some", "self.queues_safe", "True"),
        ("tests/store/test_flush_rounds.py",),
    ),
    Protection(
        "failed-batch-not-readable",
        "The next message is hidden by an entry of a batch that failed.",
        edited(
            STORE_STORE,
            "FileStore._undo",
            ("while self._waiting and self._waiting[-1].commit_log_offset >= first:\n    self._waiting.pop()"),
            "",
        ),
        ("tests/store/test_store_flusher.py",),
    ),
    Protection(
        "run-refused-like-one",
        "Messages of one frame are stored while the disk is in doubt.",
        edited(STORE_STORE, "FileStore.append_all", "not self.refusal", "True"),
        ("tests/store/test_store_flusher.py",),
    ),
    Protection(
        "entry-of-its-queue",
        "A damaged entry gives a consumer the message of another queue, or of another offset.",
        edited(READER, "QueueReader._checked", "queue.has(reason, first + i)", "True"),
        ("tests/store/test_file_store.py",),
    ),
    Protection(
        "record-at-its-place",
        "What is left of an older log is taken for a message of this one.",
        edited(RECORD, "parse_record", "stands_at != offset", "False"),
        ("tests/store/test_log_record.py",),
    ),
)
