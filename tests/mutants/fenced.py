"""Protections of the fenced lock, broker and client. docs/testing.md says which of them random worlds find missing."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["FENCED"]

CHECKS: Final = "broker/fence/checks.py"
LOCKS: Final = "broker/state/fenced_locks.py"
WORLDS: Final = ("tests/simulation/worlds/test_fenced_worlds.py::test_seeds_that_find_a_missing_protection",)

FENCED: Final = (
    # The broker's checks
    Protection(
        "fence-commit-epoch",
        "A commit of a period that another has followed is stored.",
        CHECKS,
        "denial = self._of_owner(connection, claim, now_ms) if alone else None",
        "denial: Denial | None = None",
        ("tests/broker/test_fence_epochs.py",),
    ),
    Protection(
        "fence-pull-epoch",
        "A pull of a period that another has followed is served.",
        CHECKS,
        "        denial = self._of_owner(connection, claim, now_ms, needs_lease=act in _NEED_LEASE)\n",
        "        if act is Act.PULL:\n"
        "            return None\n"
        "        denial = self._of_owner(connection, claim, now_ms, needs_lease=act in _NEED_LEASE)\n",
        WORLDS,
    ),
    Protection(
        "fence-held-pull",
        "A pull that was held when its owner changed is answered with messages.",
        "broker/fence/fenced_pulls.py",
        "        denial = self._denial(pull, now_ms)\n        if denial is None:\n            return False\n",
        "        return False\n",
        WORLDS,
    ),
    Protection(
        "fence-dead-letter-epoch",
        "A dead letter of a period that another has followed is stored.",
        "broker/processors/send.py",
        "    check_owner(broker, connection, claim, Act.DEAD_LETTER, now_ms)\n",
        "",
        ("tests/broker/test_fence_epochs.py",),
    ),
    Protection(
        "fence-unmodified",
        "An unmodified client may pull and commit a queue of another client.",
        CHECKS,
        "        if lock is None or (is_its_client and not lock.fenced) or self._broadcasts(group):\n",
        "        if True:\n",
        WORLDS,
    ),
    Protection(
        "fence-commit-of-refused-pull",
        "The offset in a refused pull of an unmodified client is stored.",
        "broker/processors/pull.py",
        "            raise Refusal(denial.code, denial.remark)\n        return fence.pulls.refuse(",
        "            raise Refusal(denial.code, denial.remark)\n"
        "        if header.sys_flag & _COMMIT:\n"
        "            of_group = header.consumer_group, header.topic, header.queue_id\n"
        "            broker.offsets.commit(*of_group, header.commit_offset)\n"
        "        return fence.pulls.refuse(",
        ("tests/broker/test_fence_unmodified.py",),
    ),
    Protection(
        "fence-commits-forward",
        "The owner may store any offset, also one below the stored one or over a reset.",
        CHECKS,
        "            denial = self._of_offset(claim, offset, stored, now_ms)\n",
        "            denial = None\n",
        WORLDS,
    ),
    Protection(
        "fence-reset-mark",
        "A commit that was under way undoes an administrator's reset.",
        CHECKS,
        "        is_marked = self.resets.forbids(_key(claim), offset, now_ms)\n",
        "        is_marked = False\n",
        WORLDS,
    ),
    # Periods and leases in the broker
    Protection(
        "fence-epoch-of-renewal",
        "A renewal begins a new epoch.",
        "broker/fence/index.py",
        "            to_youngest(lock)\n",
        "            to_youngest(lock)\n            lock.epoch += 1\n",
        WORLDS,
    ),
    Protection(
        "fence-lease",
        "A queue is given to another client while the lease of its owner runs.",
        LOCKS,
        "        if lock.state is LockState.ENDED:\n            return self._grant",
        "        if True:\n            return self._grant",
        WORLDS,
    ),
    Protection(
        "fence-client-id-claims",
        "A claim without the epoch is granted to the client id of the owner.",
        LOCKS,
        "        if same and not lock.fenced and not asker.fenced:\n",
        "        if same:\n",
        WORLDS,
    ),
    Protection(
        "fence-stale-unlock",
        "A late unlock of an earlier period frees the queue of its owner.",
        LOCKS,
        "            fence = self._check(lock, client_id, epoch, now_ms)\n",
        "            fence = FenceAnswer.OK\n",
        WORLDS,
    ),
    Protection(
        "fence-lock-delay",
        "A queue is given away as soon as the connection of its owner ends, while its calls run.",
        "broker/fence/period.py",
        "delay_ends_ms = now_ms + settings.delay_ms if self.fenced else self.renewed_ms + settings.delay_legacy_ms",
        "delay_ends_ms = now_ms",
        WORLDS,
    ),
    # The table on the disk
    Protection(
        "fence-table",
        "A broker that starts again has forgotten who owns which queue.",
        "broker/persistence/durable_store.py",
        "            locks.restore(kept.locks.values(), kept.boot, now_ms)\n",
        "            locks.restore([], kept.boot, now_ms)\n",
        WORLDS,
    ),
    Protection(
        "fence-grace",
        "A broker that lost its table gives queues away while their owners hold them.",
        "broker/persistence/durable_store.py",
        "        if lost and grace_ms:\n",
        "        if False:\n",
        WORLDS,
    ),
    Protection(
        "fence-boot",
        "After a clock was set back, a broker that starts again gives epochs below those of its last run.",
        LOCKS,
        "        self.epochs.go_above_boot(boot)\n",
        "",
        WORLDS,
    ),
    Protection(
        "fence-kept-grant",
        "A grant is answered before it is on the disk: after a power cut nobody knows of it.",
        "broker/processors/kept_answer.py",
        "    if keeper is None or keeper.is_kept:\n",
        "    if True:\n",
        ("tests/broker/test_lock_keeper.py",),
    ),
    # The client
    Protection(
        "fence-lease-from-request",
        "A client counts its lease from the answer of the broker, not from its request.",
        "client/consumer/ownership/locks.py",
        "                grant = Grant(asked_ms, *reply.grants[queue])\n",
        "                grant = Grant(self._runtime.now_ms(), *reply.grants[queue])\n",
        ("tests/client/test_fenced_locks.py",),
    ),
    Protection(
        "fence-own-lease",
        "A client begins calls after its lease has ended.",
        "client/consumer/process_queue.py",
        "            self.locked and now_ms - self.last_lock_ms <= (self._trusted_ms or lock_max_live_time_ms)\n",
        "            self.locked\n",
        WORLDS,
    ),
    Protection(
        "fence-drain",
        "A queue is given away while a call of it runs.",
        "client/consumer/ownership/period_end.py",
        "        while not await process_queue.listener_idle(_LISTENER_WAIT_MS):\n",
        "        while False:\n",
        WORLDS,
    ),
    Protection(
        "fence-last-commit",
        "A queue is given away before what was handled is committed: it is handled twice.",
        "client/consumer/ownership/period_end.py",
        "    EndCause.HANDOVER: PeriodEnd(cancels=False, stores=True, unlocks=True, asks=True),\n",
        "    EndCause.HANDOVER: PeriodEnd(cancels=False, stores=False, unlocks=True, asks=True),\n",
        ("tests/scenarios/test_fenced.py",),
    ),
)
