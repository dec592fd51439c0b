"""Protections of a broker that stand between two requests, two groups or two files."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["BROKER"]

ONE_READ: Final = ("tests/broker/requests/test_send_run.py",)
WRITTEN: Final = ("tests/broker/kept/test_table_writer.py",)
FENCED_LOCKS: Final = ("tests/broker/fence/test_fenced_locks.py",)
FENCE_EPOCHS: Final = ("tests/broker/fence/test_fence_epochs.py",)

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
    Protection(
        "fence-ended-stays-ended",
        "A request that was read before the end of a lease renews it when others have been told already.",
        "broker/fence/period.py",
        "return now_ms < self.ends_ms and self.state is not _ENDED",
        "return now_ms < self.ends_ms",
        FENCED_LOCKS,
    ),
    Protection(
        "fence-many-renewed-in-time",
        "A request that renews many queues at once renews a period that has ended.",
        "broker/fence/index.py",
        "if lock.state is not _HELD or now_ms >= lock.ends_ms:",
        "if lock.state is not _HELD:",
        FENCED_LOCKS,
    ),
    Protection(
        "fence-told-leave-room",
        "Clients that were told still count as waiting, and others find no room to wait.",
        "broker/fence/waiters.py",
        "            self._count -= len(waiting)\n",
        "",
        FENCED_LOCKS,
    ),
    Protection(
        "fence-nothing-begun-after-end",
        "A pull that was read before the end of a lease is served when others have been told already.",
        "broker/fence/checks.py",
        "            and lock.state is _HELD\n",
        "",
        FENCE_EPOCHS,
    ),
    Protection(
        "fence-epoch-of-its-client",
        "Any client may do what the owner may, if it presents the epoch.",
        "broker/fence/checks.py",
        "            and lock.client_id == claim.lock_client_id\n",
        "",
        FENCE_EPOCHS,
    ),
    Protection(
        "fence-commit-of-its-client",
        "Any client may commit what the owner may, if it presents the epoch.",
        "broker/fence/checks.py",
        "if lock is not None and lock.epoch == claim.lock_epoch and lock.client_id == claim.lock_client_id:",
        "if lock is not None and lock.epoch == claim.lock_epoch:",
        FENCE_EPOCHS,
    ),
    Protection(
        "members-told-of-new-name",
        "The members are not told when a client of a known connection has another id.",
        "broker/state/members.py",
        "joined = known is None or known.client_id != channel.client_id",
        "joined = known is None",
        ("tests/broker/state/test_consumer_manager.py",),
    ),
    Protection(
        "nothing-after-lost-send",
        "Number 0 of a generation is stored again after a later number of it was lost.",
        "broker/state/send_sequences.py",
        "        expected = entry.next_sequence\n",
        "        expected = max(entry.next_sequence, 0)\n",
        ("tests/broker/requests/test_send_sequences.py",),
    ),
    Protection(
        "delayed-not-passed-over",
        "A delayed message that is still searched for is passed over and never delivered.",
        "broker/delays/service.py",
        "                    is_damaged = True\n                    break\n",
        "                    is_damaged = True\n"
        "                    self._offsets[level] = offset + 1\n"
        "                    continue\n",
        ("tests/broker/state/test_delay_service.py",),
    ),
    Protection(
        "delayed-by-repaired-entry",
        "A delayed message whose entry was damaged comes before its time.",
        "broker/delays/service.py",
        "                if not self._is_due(level, now_ms):\n                    break\n",
        "",
        ("tests/broker/kept/test_delay_recovery.py",),
    ),
    Protection(
        "delayed-late-on-disk",
        "A delayed message that reaches the disk after its time waits for the next one.",
        "broker/persistence/durable_store.py",
        "            self._broker_tables.delays.waits(code)\n",
        "            pass\n",
        ("tests/broker/kept/test_delay_recovery.py",),
    ),
)
