"""Protections of a broker that stand between two requests, two groups or two files."""

from typing import Final

from lockstep.simulation.museum.variant import edited
from tests.mutants.protection import Protection

__all__ = ["BROKER"]

# Modules
ANSWERS: Final = "lockstep.broker.fronts.remoting.answers"
SERVICE: Final = "lockstep.broker.messages.delays.service"
CHECKS: Final = "lockstep.broker.ownership.fenced.checks"
INDEX: Final = "lockstep.broker.ownership.fenced.index"
PERIOD: Final = "lockstep.broker.ownership.fenced.period"
WAITERS: Final = "lockstep.broker.ownership.fenced.waiters"
CONFIG_FILES: Final = "lockstep.broker.persistence.config_files"
DISK_WRITERS: Final = "lockstep.broker.persistence.disk_writers"
DURABLE_STORE: Final = "lockstep.broker.persistence.durable_store"
BROKER_FENCED_LOCKS: Final = "lockstep.broker.ownership.fenced.locks"
HELD_PULLS: Final = "lockstep.broker.messages.held_pulls"
LOCKS: Final = "lockstep.broker.ownership.rocketmq_locks"
KERNELS: Final = "lockstep.protocol.kernels"
KERNELS_TOGETHER: Final = "lockstep.protocol.kernels_together"
PLAIN_SENDS: Final = "lockstep.broker.fronts.remoting.plain_sends"
MEMBERS: Final = "lockstep.broker.catalog.members"
MEMBER_NOTICES: Final = "lockstep.broker.core.member_notices"
SEND_SEQUENCES: Final = "lockstep.broker.messages.send_sequences"

WRITTEN: Final = ("tests/broker/persistence/test_table_writer.py",)
FENCED_LOCKS: Final = ("tests/broker/ownership/test_fenced_locks.py",)
FENCE_EPOCHS: Final = ("tests/broker/ownership/test_fence_epochs.py",)

BROKER: Final = (
    Protection(
        "broker-lock-age-of-takeover",
        "A lock that was taken over is forgotten ten lives after the last renewal of the owner before.",
        edited(LOCKS, "RebalanceLockManager._put", "queue in entries", "False"),
        ("tests/broker/ownership/test_lock_manager.py",),
    ),
    Protection(
        "sequence-of-present-connection",
        "The broker forgets the send sequence of a producer that has connected again.",
        edited(SEND_SEQUENCES, "SendSequences.refusal", "entry.connection = connection", ""),
        ("tests/broker/messages/test_send_sequences.py",),
    ),
    Protection(
        "plain-sends-without-a-delay",
        "A delayed message, or a half message of a transaction, can be read at once.",
        edited(KERNELS, "stored_properties", "not _REFUSED_NAMES.isdisjoint(found)", "False"),
        ("tests/broker/fronts/test_plain_sends.py",),
    ),
    Protection(
        "frames-without-a-delay",
        "A delayed message that is sent with others can be read at once.",
        edited(KERNELS_TOGETHER, "frame_properties", 'b"DEL" not in own', "True"),
        ("tests/broker/fronts/test_send_together.py",),
    ),
    Protection(
        "frames-in-their-turn",
        "A message that is sent with others is stored twice, or overtakes one of its producer.",
        edited(KERNELS_TOGETHER, "plain_frame", "number != queue.next_number != NO_NUMBERS", "False"),
        ("tests/broker/fronts/test_send_together.py",),
    ),
    Protection(
        "plain-sends-after-their-topic",
        "A message is acknowledged while the file of its topic is being written.",
        edited(PLAIN_SENDS, "PlainSendLane._taken", "self._leave_now()", "True"),
        ("tests/broker/fronts/test_plain_sends.py",),
    ),
    Protection(
        "kept-with-new-topic",
        "A message is acknowledged when its new topic is on the disk, and it is not.",
        edited(DISK_WRITERS, "DiskWriters._with_topics", "not self._flush_sync", "True"),
        WRITTEN,
    ),
    Protection(
        "group-kept-before-answer",
        "A group is acknowledged to who made it before it is on the disk.",
        edited(ANSWERS, "Answers._wait", "writers.groups.when_written(leave)", "leave('')"),
        WRITTEN,
    ),
    Protection(
        "hold-of-others",
        "When the owner of a queue changes, the held pulls of other groups are never answered.",
        edited(HELD_PULLS, "PullHold.take", ("if kept:\n    self._held[key] = kept"), ""),
        ("tests/broker/fronts/test_pull_hold.py",),
    ),
    Protection(
        "fence-delay-noticed",
        "Who waits for a queue is told at the end of its lease, and not when the lock delay is over.",
        edited(BROKER_FENCED_LOCKS, "FencedLocks.connection_ended", "self._watch(lock)", ""),
        ("tests/broker/ownership/test_fenced_ends.py",),
    ),
    Protection(
        "fence-release-within-lease",
        "The unlock of an unmodified client lengthens its lease by up to a second.",
        edited(
            BROKER_FENCED_LOCKS,
            "FencedLocks.unlock_batch",
            "min(lock.ends_ms, now_ms + _LEGACY_UNLOCK_MS)",
            "now_ms + _LEGACY_UNLOCK_MS",
        ),
        ("tests/broker/ownership/test_fenced_ends.py",),
    ),
    Protection(
        "fence-told-of-each-end",
        "Of two ends of a lock in one turn of the loop, those who waited for the second are not told.",
        edited(WAITERS, "LockWaiters.wake", "self._woken[place] |= waiting", ""),
        ("tests/broker/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-silent-in-its-group",
        "A client that is silent in one group stays its member while it holds a lock of another.",
        edited(INDEX, "LockIndex.any_live", "lock.consumer_group == consumer_group", "True"),
        ("tests/broker/ownership/test_fenced_requests.py",),
    ),
    Protection(
        "fence-offsets-before-their-epoch",
        "A period loses the offset of its begin because offsets count as written that are not.",
        edited(
            CONFIG_FILES,
            "ConfigFiles._write_offsets",
            (
                "self._write(OFFSETS, ConsumerOffsetTable(table, log_offset))\n"
                "if lock_epoch is not None:\n"
                "    self._write(LOCK_OFFSETS, LockOffsets(lock_epoch))"
            ),
            (
                "if lock_epoch is not None:\n"
                "    self._write(LOCK_OFFSETS, LockOffsets(lock_epoch))\n"
                "self._write(OFFSETS, ConsumerOffsetTable(table, log_offset))"
            ),
        ),
        ("tests/broker/ownership/test_lock_persistence.py",),
    ),
    Protection(
        "fence-ended-stays-ended",
        "A request that was read before the end of a lease renews it when others have been told already.",
        edited(PERIOD, "FencedLock.is_live", "self.state is not _ENDED", "True"),
        FENCED_LOCKS,
    ),
    Protection(
        "fence-many-renewed-in-time",
        "A request that renews many queues at once renews a period that has ended.",
        edited(INDEX, "LockIndex.held", "now_ms >= lock.ends_ms", "False"),
        FENCED_LOCKS,
    ),
    Protection(
        "fence-told-leave-room",
        "Clients that were told still count as waiting, and others find no room to wait.",
        edited(WAITERS, "LockWaiters.wake", "self._count -= len(waiting)", ""),
        FENCED_LOCKS,
    ),
    Protection(
        "fence-nothing-begun-after-end",
        "A pull that was read before the end of a lease is served when others have been told already.",
        edited(CHECKS, "FenceChecks.deny", "lock.state is _HELD", "True"),
        FENCE_EPOCHS,
    ),
    Protection(
        "fence-epoch-of-its-client",
        "Any client may do what the owner may, if it presents the epoch.",
        edited(CHECKS, "FenceChecks.deny", "lock.client_id == claim.lock_client_id", "True"),
        FENCE_EPOCHS,
    ),
    Protection(
        "fence-commit-of-its-client",
        "Any client may commit what the owner may, if it presents the epoch.",
        edited(CHECKS, "FenceChecks.deny_commit", "lock.client_id == claim.lock_client_id", "True"),
        FENCE_EPOCHS,
    ),
    Protection(
        "members-told-of-new-name",
        "The members are not told when a client of a known connection has another id.",
        edited(MEMBERS, "ConsumerManager.register", "known.client_id != channel.client_id", "False"),
        ("tests/broker/catalog/test_consumer_manager.py",),
    ),
    Protection(
        "members-told-of-later-changes",
        "The members are not told of a change that comes while they are told of another.",
        edited(
            MEMBER_NOTICES,
            "MemberNotices.tell",
            "self._due.get(consumer_group)",
            "self._due.get(consumer_group, self._running.get(consumer_group))",
        ),
        ("tests/broker/test_member_notices.py",),
    ),
    Protection(
        "nothing-after-lost-send",
        "Number 0 of a generation is stored again after a later number of it was lost.",
        edited(
            SEND_SEQUENCES,
            "SendSequences.refusal",
            "expected = entry.next_sequence",
            "expected = max(entry.next_sequence, 0)",
        ),
        ("tests/broker/messages/test_send_sequences.py",),
    ),
    Protection(
        "delayed-not-passed-over",
        "A delayed message that is still searched for is passed over and never delivered.",
        edited(
            SERVICE,
            "DelayService.due",
            ("is_damaged = True\nbreak"),
            ("is_damaged = True\nself._offsets[level] = offset + 1\ncontinue"),
        ),
        ("tests/broker/messages/test_delay_service.py",),
    ),
    Protection(
        "delayed-by-repaired-entry",
        "A delayed message whose entry was damaged comes before its time.",
        edited(SERVICE, "DelayService.due", "not self._is_due(level, now_ms)", "False"),
        ("tests/broker/persistence/test_delay_recovery.py",),
    ),
    Protection(
        "delayed-late-on-disk",
        "A delayed message that reaches the disk after its time waits for the next one.",
        edited(DURABLE_STORE, "DurableStore._on_arrived", "self._broker_tables.delays.waits(code)", ""),
        ("tests/broker/persistence/test_delay_recovery.py",),
    ),
)
