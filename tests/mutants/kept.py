"""Protections of what a broker keeps: messages, stored offsets and routes, also when it starts again."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["KEPT"]

KEPT: Final = (
    Protection(
        "kept-before-read",
        "Messages are read before they are on the disk.",
        "broker/persistence/durable_store.py",
        "        config.flush_sync,\n        config.index_slot_count,",
        "        False,\n        config.index_slot_count,",
        ("tests/store/test_flush_rounds.py",),
    ),
    Protection(
        "kept-before-answer",
        "A message is acknowledged before it is on the disk.",
        "broker/persistence/durable_replies.py",
        "        if self._flush_sync and (stored or self._is_repeated(command)):",
        "        if False:",
        ("tests/broker/requests/test_unsafe_answers.py",),
    ),
    Protection(
        "kept-offsets-read",
        "A broker that starts again has forgotten the stored offsets.",
        "broker/persistence/config_files.py",
        "        if offsets is not None:\n            self._restore_offsets",
        "        if False:\n            self._restore_offsets",
        ("tests/broker/kept/test_kept_offsets.py",),
    ),
    Protection(
        "kept-offsets-written",
        "A broker that ends does not write the stored offsets.",
        "broker/persistence/config_files.py",
        "        return [writing, partial(self._write, DELAYS",
        "        return [partial(self._write, DELAYS",
        ("tests/broker/kept/test_restart_trace.py",),
    ),
    Protection(
        "kept-behind-checkpoint",
        "What is behind the checkpoint is cut off after a crash.",
        "store/durability/recovery.py",
        "self._read_log(safe, safe)",
        "safe",
        ("tests/store/test_file_store.py",),
    ),
    Protection(
        "delayed-not-ahead",
        "After the store lost its newest messages, later delayed messages are skipped.",
        "broker/persistence/durable_store.py",
        "        tables.delays.cut()\n",
        "",
        ("tests/broker/kept/test_delay_recovery.py",),
    ),
    Protection(
        "kept-mark-of-a-start",
        "The mark of a running broker is not on the disk: after a power cut a torn log is taken for whole.",
        "store/data_dir.py",
        "create=True).close()\n            self._storage.sync_dir(self.folder)\n",
        "create=True).close()\n",
        ("tests/store/test_data_dir.py",),
    ),
    Protection(
        "read-next-offset",
        "A pull is told to go on behind a message that it did not get.",
        "store/memory/store.py",
        "GetStatus.FOUND, queue_offset + count, min_offset",
        "GetStatus.FOUND, queue_offset + count + (count > 1), min_offset",
        ("tests/store/test_memory_store.py",),
    ),
    Protection(
        "hold-asked-offset",
        "A pull is answered from the last message of its queue on, wherever it asked to begin.",
        "broker/processors/pull.py",
        "        pull.topic, pull.queue_id, pull.queue_offset, pull.max_msg_nums,",
        "        pull.topic, pull.queue_id, max(pull.queue_offset, broker.store.max_offset(*pull[2:4]) - 1),"
        " pull.max_msg_nums,",
        ("tests/broker/requests/test_pull.py",),
    ),
    Protection(
        "members-expire",
        "A member that sends no heartbeats stays in its group.",
        "broker/state/broker.py",
        "        late = self.consumers.expired(now_ms, timeout_ms) + ",
        "        late = [] + ",
        ("tests/broker/ports/test_server.py",),
    ),
    Protection(
        "delayed-once",
        "After a crash a delayed message is delivered again.",
        "broker/persistence/durable_store.py",
        "        delivered = count_delivered(store, tables.delays, self.tables.delays_log_offset)\n",
        "        delivered = 0\n",
        ("tests/broker/kept/test_delay_recovery.py",),
    ),
    Protection(
        "half-ended-once",
        "After a crash a transaction that was committed is open again.",
        "broker/persistence/durable_store.py",
        "self._mark_last_commit(now_ms) if self.data_dir.crashed else None",
        "None",
        ("tests/broker/kept/test_kept_transactions.py",),
    ),
    Protection(
        "routes-of-the-living",
        "A broker that is gone stays in the routes.",
        "broker/name_server/name_server.py",
        "now_ms - live.last_update_ms > self.config.broker_expired_timeout_ms",
        "False",
        ("tests/broker/name_server/test_name_server.py",),
    ),
)
