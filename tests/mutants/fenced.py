"""Protections of the fenced lock, broker and client. found.json says which of them random worlds find missing."""

from typing import Final

from lockstep.simulation.museum.variant import edited, put
from tests.mutants.protection import Protection

__all__ = ["FENCED"]

# Modules
BROKER_CHECKS: Final = "lockstep.broker.ownership.fenced.checks"
REFUSED_PULLS: Final = "lockstep.broker.messages.refused_pulls"
INDEX: Final = "lockstep.broker.ownership.fenced.index"
PERIOD: Final = "lockstep.broker.ownership.fenced.period"
STATES: Final = "lockstep.broker.ownership.fenced.states"
DURABLE_STORE: Final = "lockstep.broker.persistence.durable_store"
ANSWERS: Final = "lockstep.broker.fronts.remoting.answers"
COMMIT: Final = "lockstep.broker.core.commit"
PULL: Final = "lockstep.broker.core.pull"
APPEND: Final = "lockstep.broker.core.append"
BROKER_OWNERSHIP: Final = "lockstep.broker.ownership.fenced.ownership"
BROKER_FENCED_LOCKS: Final = "lockstep.broker.ownership.fenced.locks"
ORDERLY: Final = "lockstep.client.consumer.dispatch.orderly"
CLIENT_FENCED_LOCKS: Final = "lockstep.client.consumer.ownership.fenced_locks"
LEASE_WATCH: Final = "lockstep.client.consumer.ownership.lease_watch"
LOCK_STATES: Final = "lockstep.client.consumer.ownership.lock_states"
CLIENT_LOCKS: Final = "lockstep.client.consumer.ownership.locks"
PERIOD_END: Final = "lockstep.client.consumer.ownership.period_end"
HOLD: Final = "lockstep.client.consumer.ownership.hold"

CHECKS: Final = "broker/ownership/fenced/checks.py"
LOCKS: Final = "broker/ownership/fenced/locks.py"
WORLDS: Final = ("tests/simulation/worlds/test_fenced_worlds.py::test_seeds_that_find_a_missing_protection",)

FENCED: Final = (
    # The broker's checks
    Protection(
        "fence-commit-epoch",
        "A commit of a period that another has followed is stored.",
        edited(
            BROKER_CHECKS,
            "FenceChecks.deny_commit",
            "denial = self._of_owner(connection, claim, now_ms) if alone else None",
            "denial: Denial | None = None",
        ),
        ("tests/broker/ownership/test_fence_epochs.py",),
    ),
    Protection(
        "fence-pull-epoch",
        "A pull of a period that another has followed is served.",
        edited(
            BROKER_CHECKS,
            "FenceChecks.deny",
            "denial = self._of_owner(connection, claim, now_ms, needs_lease=act in _NEED_LEASE)",
            (
                "if act is Act.PULL:\n"
                "    return None\n"
                "denial = self._of_owner(connection, claim, now_ms, needs_lease=act in _NEED_LEASE)"
            ),
        ),
        WORLDS,
    ),
    Protection(
        "fence-held-pull",
        "A pull that was held when its owner changed is answered with messages.",
        edited(REFUSED_PULLS, "RefusedPulls.has_ended", "self._denial(pull, now_ms)", "None"),
        WORLDS,
    ),
    Protection(
        "fence-dead-letter-epoch",
        "A dead letter of a period that another has followed is stored.",
        edited(APPEND, "_check_dead_letter", "check_owner(broker, peer, claim, Act.DEAD_LETTER, now_ms)", ""),
        ("tests/broker/ownership/test_fence_epochs.py",),
    ),
    Protection(
        "fence-unmodified",
        "An unmodified client may pull and commit a queue of another client.",
        edited(
            BROKER_CHECKS,
            "FenceChecks._of_owner",
            "lock is None or (is_its_client and not lock.fenced) or self._is_broadcasting(group)",
            "True",
        ),
        WORLDS,
    ),
    Protection(
        "fence-commit-of-refused-pull",
        "The offset in a refused pull of an unmodified client is stored.",
        edited(
            PULL,
            "pull",
            "refused_pulls = broker.messages.refused_pulls",
            (
                "refused_pulls = broker.messages.refused_pulls\n"
                "if asked.commit_offset is not None:\n"
                "    of_group = (asked.consumer_group, asked.topic, asked.queue_id)\n"
                "    broker.catalog.offsets.commit(*of_group, asked.commit_offset)"
            ),
        ),
        ("tests/broker/ownership/test_fence_unmodified.py",),
    ),
    Protection(
        "fence-commits-forward",
        "The owner may store any offset, also one below the stored one or over a reset.",
        edited(BROKER_CHECKS, "FenceChecks.deny_commit", "self._of_offset(claim, offset, stored, now_ms)", "None"),
        WORLDS,
    ),
    Protection(
        "fence-reset-mark",
        "A commit that was under way undoes an administrator's reset.",
        edited(BROKER_CHECKS, "FenceChecks._of_offset", "self.resets.forbids(_key(claim), offset, now_ms)", "False"),
        WORLDS,
    ),
    # Periods and leases in the broker
    Protection(
        "fence-epoch-of-renewal",
        "A renewal begins a new epoch.",
        edited(INDEX, "LockIndex.renew", "to_youngest(lock)", ("to_youngest(lock)\nlock.epoch += 1")),
        WORLDS,
    ),
    Protection(
        "fence-lease",
        "A queue is given to another client while the lease of its owner runs.",
        edited(BROKER_FENCED_LOCKS, "FencedLocks._claim", "lock.state is LockState.ENDED", "True"),
        WORLDS,
    ),
    Protection(
        "fence-client-id-claims",
        "A claim without the epoch is granted to the client id of the owner.",
        edited(BROKER_FENCED_LOCKS, "FencedLocks._claim", "same and not lock.fenced and not asker.fenced", "same"),
        WORLDS,
    ),
    Protection(
        "fence-stale-unlock",
        "A late unlock of an earlier period frees the queue of its owner.",
        edited(
            BROKER_FENCED_LOCKS,
            "FencedLocks.unlock_batch",
            "self._check(lock, client_id, epoch, now_ms)",
            "FenceAnswer.OK",
        ),
        WORLDS,
    ),
    Protection(
        "fence-lock-delay",
        "A queue is given away as soon as the connection of its owner ends, while its calls run.",
        edited(
            PERIOD,
            "FencedLock.ends_after_delay",
            "now_ms + settings.delay_ms if self.fenced else self.renewed_ms + settings.delay_legacy_ms",
            "now_ms",
        ),
        WORLDS,
    ),
    # The table on the disk
    Protection(
        "fence-table",
        "A broker that starts again has forgotten who owns which queue.",
        edited(DURABLE_STORE, "DurableStore._restore_locks", "kept.locks.values()", "[]"),
        WORLDS,
    ),
    Protection(
        "fence-grace",
        "A broker that lost its table gives queues away while their owners hold them.",
        edited(DURABLE_STORE, "DurableStore._restore_locks", "lost and grace_ms", "False"),
        WORLDS,
    ),
    Protection(
        "fence-boot",
        "After a clock was set back, a broker that starts again gives epochs below those of its last run.",
        edited(BROKER_FENCED_LOCKS, "FencedLocks.restore", "self.epochs.go_above_boot(boot)", ""),
        WORLDS,
    ),
    Protection(
        "fence-kept-grant",
        "A grant is answered before it is on the disk: after a power cut nobody knows of it.",
        edited(ANSWERS, "Answers._leaves_now", "self._broker.ownership.is_durable", "True"),
        ("tests/broker/ownership/test_lock_persistence.py",),
    ),
    # The client
    Protection(
        "fence-lease-from-request",
        "A client counts its lease from the answer of the broker, not from its request.",
        edited(
            CLIENT_LOCKS,
            "QueueLocks._lock_part",
            "Grant(asked_ms, *reply.grants[queue])",
            "Grant(self._runtime.now_ms(), *reply.grants[queue])",
        ),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-own-lease",
        "A client begins calls after its lease has ended.",
        edited(
            HOLD,
            "Hold.is_trusted",
            "now_ms - self.last_lock_ms <= self._trusted_ms",
            "True",
        ),
        WORLDS,
    ),
    Protection(
        "fence-drain",
        "A queue is given away while a call of it runs.",
        edited(
            PERIOD_END, "PeriodEnds._finish", "not await process_queue.life.listener_idle(_LISTENER_WAIT_MS)", "False"
        ),
        WORLDS,
    ),
    Protection(
        "fence-last-commit",
        "A queue is given away before what was handled is committed: it is handled twice.",
        put(PERIOD_END, "CAUSES[EndCause.HANDOVER]", "PeriodEnd(cancels=False, stores=False, unlocks=True, asks=True)"),
        ("tests/scenarios/locks/test_fenced.py",),
    ),
    Protection(
        "fence-margin",
        "A fenced lock is trusted to the end of its lease, without a margin for drift.",
        edited(HOLD, "FencedHold.granted", "lease_ms - lease_ms // _MARGIN_PARTS", "lease_ms"),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-stored-before-unlock",
        "A queue is unlocked before the broker has answered that its last offset is stored.",
        edited(
            PERIOD_END,
            "PeriodEnds._finish",
            "await self._acts.store_last(process_queue)",
            "self.start(self._acts.store_last(process_queue), 'store')",
        ),
        ("tests/client/ownership/test_period_end.py",),
    ),
    Protection(
        "fence-drains-first",
        "Calls of a queue begin while it is handed over.",
        edited(
            PERIOD_END,
            "PeriodEnds.begin",
            "process_queue.life.draining = True",
            "process_queue.life.draining = end.cancels",
        ),
        ("tests/client/ownership/test_period_end.py",),
    ),
    Protection(
        "fence-acquired-told",
        "A period begins without a call of the user's on_acquired.",
        edited(
            CLIENT_FENCED_LOCKS,
            "FencedLocks.acquired",
            "self._on_acquired is None or not process_queue.hold.epoch",
            "True",
        ),
        ("tests/scenarios/locks/test_fenced.py",),
    ),
    Protection(
        "fence-reset-epoch",
        "The owner's reset begins no new epoch.",
        edited(
            BROKER_FENCED_LOCKS,
            "FencedLocks.begin_epoch",
            "lock.epoch, lock.acquired_ms = (self.epochs.next(), now_ms)",
            "lock.acquired_ms = now_ms",
        ),
        ("tests/broker/ownership/test_fence_resets.py",),
    ),
    Protection(
        "fence-commit-beyond-end",
        "A commit beyond the end of the queue is stored: new messages get offsets below it.",
        edited(
            BROKER_CHECKS,
            "FenceChecks.deny_commit",
            "stored < offset <= self._end_of(claim.topic, claim.queue_id)",
            "stored < offset",
        ),
        ("tests/broker/ownership/test_fence_resets.py",),
    ),
    Protection(
        "fence-table-of-takeovers",
        "A queue that was taken over is free at the broker's next start.",
        edited(
            BROKER_OWNERSHIP,
            "FencedOwnership.owner_changed",
            "self.persistence is not None and change.new is not None and lock is not None",
            "self.persistence is not None and change.cause.name == 'GRANTED' and lock is not None",
        ),
        ("tests/broker/ownership/test_lock_persistence.py",),
    ),
    Protection(
        "fence-bound-connection",
        "Any connection speaks for the unmodified owner of a queue.",
        edited(BROKER_CHECKS, "FenceChecks._of_owner", "self.clients.has(connection, group, lock.client_id)", "True"),
        ("tests/broker/ownership/test_fence_unmodified.py",),
    ),
    Protection(
        "fence-offsets-of-periods",
        "After a power cut an owner begins below the offset at which its period began.",
        edited(DURABLE_STORE, "DurableStore._open", "kept_locks is not None and self.data_dir.crashed", "False"),
        ("tests/broker/ownership/test_lock_persistence.py",),
    ),
    Protection(
        "fence-trust-cut",
        "A client goes on with calls after the connection of its lock has ended.",
        edited(CLIENT_FENCED_LOCKS, "FencedLocks.connection_ended", "process_queue.hold.locked = False", ""),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-lease-end-noticed",
        "A client does not notice the end of its lease.",
        edited(LEASE_WATCH, "LeaseWatch._look_at", "now_ms >= hold.lease_end_ms", "False"),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-pull-lease",
        "A pull is served after the lease has ended.",
        put(BROKER_CHECKS, "_NEED_LEASE", "(Act.RESET,)"),
        ("tests/broker/ownership/test_fence_epochs.py",),
    ),
    Protection(
        "fence-legacy-release",
        "The unlock of an unmodified client frees the queue before its last commit.",
        put(STATES, "TRANSITIONS[_S.HELD, _E.LEGACY_UNLOCK]", "_T(_S.FREE, _C.UNLOCKED)"),
        ("tests/broker/ownership/test_fence_unmodified.py",),
    ),
    Protection(
        "fence-old-connection",
        "The end of an old connection begins the lock delay of a lock that was renewed over a new one.",
        edited(INDEX, "LockIndex.renew", "lock.connection is not connection", "lock.connection is None"),
        ("tests/broker/ownership/test_fenced_ends.py",),
    ),
    Protection(
        "fence-reclaim-in-grace",
        "A lock that is gone is granted again under its old epoch at any time.",
        edited(BROKER_FENCED_LOCKS, "FencedLocks._renew_or_reclaim", "self.in_grace(now_ms)", "True"),
        ("tests/broker/ownership/test_fenced_restarts.py",),
    ),
    Protection(
        "fence-cancelled-comes-again",
        "A message whose call was cancelled counts as handled.",
        edited(ORDERLY, "ConsumeMessageOrderlyService._consume_batch", "begun = False", "status = _Status.SUCCESS"),
        ("tests/client/dispatch/test_fenced_calls.py",),
    ),
    Protection(
        "fence-reset-owner",
        "A reset of a period that another has followed is stored.",
        edited(COMMIT, "begin_at", "_refuse_if(ownership.deny_reset(peer, claim, now_ms))", ""),
        ("tests/broker/ownership/test_fence_epochs.py",),
    ),
    Protection(
        "fence-answer-of-ended-connection",
        "The answer of a connection that has ended renews a lock.",
        edited(CLIENT_FENCED_LOCKS, "FencedLocks._granted", "reply.endpoint.is_open", "True"),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-grant-of-ended-connection",
        "A period begins with a grant over a connection that has ended.",
        edited(
            CLIENT_FENCED_LOCKS,
            "FencedLocks._is_usable",
            "connected and self._runtime.now_ms() < grant.asked_ms + grant.lease_ms",
            "self._runtime.now_ms() < grant.asked_ms + grant.lease_ms",
        ),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-ended-epoch",
        "A lock request presents the epoch of a period that has ended here.",
        edited(
            CLIENT_FENCED_LOCKS,
            "FencedLocks._epoch_to_renew",
            "epoch if runs or epoch != self._ended.get(queue) else 0",
            "epoch",
        ),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-late-refusal",
        "A late refusal of an earlier epoch makes a client forget the lock that it has now.",
        edited(LOCK_STATES, "QueueLock.fenced", "epoch == self.epoch", "True"),
        ("tests/client/ownership/test_fenced_locks.py",),
    ),
    Protection(
        "fence-older-end",
        "The end of an old period takes the next one out of the table.",
        edited(PERIOD_END, "PeriodEnds._release", "member.table.get(queue) is process_queue", "queue in member.table"),
        ("tests/client/ownership/test_period_end.py",),
    ),
)
