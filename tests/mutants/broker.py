"""Protections of a broker that stand between two requests, two groups or two files."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["BROKER"]

ONE_READ: Final = ("tests/broker/requests/test_send_run.py",)
WRITTEN: Final = ("tests/broker/kept/test_table_writer.py",)

BROKER: Final = (
    Protection(
        "broker-lock-age-of-takeover",
        "A lock that was taken over is forgotten ten lives after the last renewal of the owner before.",
        "broker/state/locks.py",
        "        if queue in entries:\n            del self._by_age[entries[queue]]\n",
        "",
        ("tests/broker/state/test_lock_manager.py",),
    ),
    Protection(
        "sequence-of-present-connection",
        "The broker forgets the send sequence of a producer that has connected again.",
        "broker/state/send_sequences.py",
        "        entry.connection = connection\n        if generation",
        "        if generation",
        ("tests/broker/requests/test_send_sequences.py",),
    ),
    Protection(
        "numbered-sends-one-by-one",
        "Of numbered sends of one read a later one is stored though the store refused an earlier one.",
        "broker/processors/send.py",
        "        and header.send_sequence is None\n",
        "",
        ONE_READ,
    ),
    Protection(
        "sends-before-a-batch",
        "A batch overtakes the sends that came before it with the same read.",
        "broker/state/broker.py",
        "            self.send_run.store()\n        stored = self.store.append_all",
        "            pass\n        stored = self.store.append_all",
        ONE_READ,
    ),
    Protection(
        "sends-before-a-look",
        "A request does not see the messages of sends that came before it with the same read.",
        "broker/persistence/durable_replies.py",
        "        store_waiting(broker, command)\n",
        "",
        ONE_READ,
    ),
    Protection(
        "kept-with-new-topic",
        "A message is acknowledged when its new topic is on the disk, and it is not.",
        "broker/persistence/durable_replies.py",
        "                self._after_log(connection, command, reply)\n                self.flusher.check()\n",
        "                _send(connection, command, reply)\n",
        WRITTEN,
    ),
    Protection(
        "group-kept-before-answer",
        "A group is acknowledged to who made it before it is on the disk.",
        "broker/persistence/durable_replies.py",
        "        self._group_writer.when_written(groups_written)",
        '        groups_written("")',
        WRITTEN,
    ),
    Protection(
        "hold-of-others",
        "When the owner of a queue changes, the held pulls of other groups are never answered.",
        "broker/state/held_pulls.py",
        "        if kept:\n            self._held[key] = kept\n        for pull in taken:",
        "        for pull in taken:",
        ("tests/broker/requests/test_pull_hold.py",),
    ),
    Protection(
        "fence-delay-noticed",
        "Who waits for a queue is told at the end of its lease, and not when the lock delay is over.",
        "broker/state/fenced_locks.py",
        "                delayed_count += not self._end_if_over(lock, now_ms)\n                self._watch(lock)\n",
        "                delayed_count += not self._end_if_over(lock, now_ms)\n",
        ("tests/broker/fence/test_fenced_ends.py",),
    ),
    Protection(
        "fence-release-within-lease",
        "The unlock of an unmodified client lengthens its lease by up to a second.",
        "broker/state/fenced_locks.py",
        "                lock.ends_ms = min(lock.ends_ms, now_ms + _LEGACY_UNLOCK_MS)\n",
        "                lock.ends_ms = now_ms + _LEGACY_UNLOCK_MS\n",
        ("tests/broker/fence/test_fenced_ends.py",),
    ),
    Protection(
        "fence-told-of-each-end",
        "Of two ends of a lock in one turn of the loop, those who waited for the second are not told.",
        "broker/fence/waiters.py",
        "                self._woken[place] |= waiting\n",
        "                pass\n",
        ("tests/broker/fence/test_fenced_locks.py",),
    ),
    Protection(
        "fence-silent-in-its-group",
        "A client that is silent in one group stays its member while it holds a lock of another.",
        "broker/fence/index.py",
        "any(lock.consumer_group == consumer_group and lock.is_live(now_ms)",
        "any(lock.is_live(now_ms)",
        ("tests/broker/fence/test_fenced_requests.py",),
    ),
    Protection(
        "fence-offsets-before-their-epoch",
        "A period loses the offset of its begin because offsets count as written that are not.",
        "broker/persistence/config_files.py",
        "        self._write(OFFSETS, ConsumerOffsetTable(table, log_offset))\n"
        "        if lock_epoch is not None:\n"
        "            self._write(LOCK_OFFSETS, LockOffsets(lock_epoch))",
        "        if lock_epoch is not None:\n"
        "            self._write(LOCK_OFFSETS, LockOffsets(lock_epoch))\n"
        "        self._write(OFFSETS, ConsumerOffsetTable(table, log_offset))",
        ("tests/broker/fence/test_lock_keeper.py",),
    ),
)
