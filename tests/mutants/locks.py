"""Protections of the queue lock: the broker's table, and what a client believes of it."""

from typing import Final

from lockstep.simulation.museum.variant import edited, put
from tests.mutants.protection import Protection

__all__ = ["LOCKS"]

# Modules
ROCKETMQ: Final = "lockstep.broker.ownership.rocketmq"
BROKER: Final = "lockstep.broker.core.broker"
BROKER_LOCKS: Final = "lockstep.broker.ownership.rocketmq_locks"
LOCK_REQUESTS: Final = "lockstep.client.consumer.ownership.lock_requests"
CLIENT_LOCK_STATES: Final = "lockstep.client.consumer.ownership.lock_states"
CLIENT_LOCKS: Final = "lockstep.client.consumer.ownership.locks"
REBALANCE: Final = "lockstep.client.consumer.ownership.rebalance"
RESET: Final = "lockstep.client.consumer.ownership.reset"
HOLD: Final = "lockstep.client.consumer.ownership.hold"
PUSH_MEMBER: Final = "lockstep.client.consumer.push_member"

TAKEOVER: Final = ("tests/scenarios/locks/test_takeover.py", "tests/scenarios/locks/test_partitions.py")
LOCK_LIFE: Final = ("tests/scenarios/locks/test_lock_life.py",)
LOCK_TESTS: Final = ("tests/client/ownership/test_queue_locks.py",)
LOCK_STATES: Final = "tests/client/ownership/test_lock_states.py"
UNANSWERED: Final = "tests/client/ownership/test_unanswered_locks.py"
RESETS: Final = "tests/client/ownership/test_offset_reset.py"

LOCKS: Final = (
    # The broker's lock
    Protection(
        "broker-lock-life",
        "The broker gives a queue away at half the life of its lock.",
        edited(BROKER_LOCKS, "RebalanceLockManager._try_lock", "self.max_live_time_ms", "self.max_live_time_ms // 2"),
        LOCK_LIFE,
    ),
    Protection(
        "broker-lock-renewal",
        "A renewal does not lengthen the lock.",
        edited(BROKER_LOCKS, "RebalanceLockManager.renew_all", "entry.last_update_ms = now_ms", ""),
        LOCK_LIFE,
    ),
    Protection(
        "broker-lock-owner",
        "A queue that another client holds is granted.",
        edited(
            BROKER_LOCKS,
            "RebalanceLockManager._try_lock",
            "entry.client_id == client_id and not expired",
            "not expired",
        ),
        ("tests/broker/ownership/test_lock_manager.py",),
    ),
    Protection(
        "broker-unlock-owner",
        "A client frees the lock of another.",
        edited(BROKER_LOCKS, "RebalanceLockManager.unlock_batch", "entry.client_id != client_id", "False"),
        ("tests/broker/ownership/test_lock_manager.py",),
    ),
    # The client's belief in it
    Protection(
        "client-lock-expiry",
        "A client goes on after its own view of the lock has run out.",
        edited(
            HOLD,
            "Hold.is_trusted",
            "now_ms - self.last_lock_ms <= self._trusted_ms",
            "True",
        ),
        (*LOCK_LIFE, *TAKEOVER),
    ),
    Protection(
        "client-lock-lost",
        "A renewal that is refused changes nothing at the client.",
        edited(CLIENT_LOCKS, "QueueLocks._lost", "process_queue.hold.locked = False", ""),
        LOCK_TESTS,
    ),
    Protection(
        "client-lock-from-request",
        "A renewal counts from its answer, not from the moment it was asked for.",
        edited(
            CLIENT_LOCKS,
            "QueueLocks._lock_part",
            "self._granted(queue, held.get(queue), grant, reply)",
            "self._granted(queue, held.get(queue), grant._replace(asked_ms=self._runtime.now_ms()), reply)",
        ),
        LOCK_TESTS,
    ),
    Protection(
        "client-new-lock-from-request",
        "A new lock counts from its answer, not from the moment it was asked for.",
        edited(
            CLIENT_LOCKS,
            "QueueLocks._lock_part",
            "(Outcome.GRANTED, grant)",
            "(Outcome.GRANTED, grant._replace(asked_ms=self._runtime.now_ms()))",
        ),
        LOCK_TESTS,
    ),
    Protection(
        "client-reacquired-begins-anew",
        "A client that lost its lock and got it back goes on with its old messages and offset.",
        edited(
            CLIENT_LOCKS,
            "QueueLocks._granted",
            "process_queue.hold.is_younger(self._runtime.now_ms(), self._config.lock_surely_held_ms)",
            "True",
        ),
        (*LOCK_TESTS, *TAKEOVER),
    ),
    Protection(
        "client-locks-after-reconnect",
        "After a reconnect the locks are not renewed before pulls commit.",
        edited(PUSH_MEMBER, "PushMember._broker_connected", "await self._locks.lock_all_over(address, endpoint)", ""),
        ("tests/scenarios/brokers/test_broker_restart.py",),
    ),
    Protection(
        "client-unlock-not-reused",
        "A delayed unlock frees a queue that came back.",
        edited(CLIENT_LOCKS, "QueueLocks._timer_fired", "queue in self._table", "False"),
        (*LOCK_TESTS, "tests/scenarios/locks/test_rebalance.py"),
    ),
    Protection(
        "client-unlock-behind-lock",
        "An unlock overtakes a lock request that is under way.",
        put(CLIENT_LOCK_STATES, "TRANSITIONS[_S.ASKING, _E.UNLOCK]", "_T(_S.ASKING_UNWANTED, _SEND)"),
        (*LOCK_TESTS, LOCK_STATES),
    ),
    Protection(
        "client-lock-behind-unlock",
        "A lock is asked for while an unlock may still be handled, and free it.",
        edited(
            CLIENT_LOCK_STATES,
            "QueueLock.may_ask",
            "self.state not in (LockState.UNLOCKING, LockState.UNLOCKING_AGAIN)",
            "True",
        ),
        (UNANSWERED, LOCK_STATES),
    ),
    Protection(
        "client-timer-in-lock-call",
        "The unlock timer of one lock call fires inside another.",
        put(CLIENT_LOCK_STATES, "TRANSITIONS[_S.UNLOCK_DUE, _E.ASK]", "_T(_S.ASKING)"),
        (UNANSWERED, LOCK_STATES),
    ),
    Protection(
        "client-late-grant-undone",
        "A lock that is granted late stays at the broker for a client that does not want it.",
        put(CLIENT_LOCK_STATES, "TRANSITIONS[_S.IN_DOUBT, _E.LATE_GRANT]", "_T(_S.FREE, _STOP)"),
        (UNANSWERED, LOCK_STATES),
    ),
    Protection(
        "client-reset-waits",
        "A reset gives a queue away under its running listener.",
        edited(
            RESET,
            "OffsetReset._when_idle",
            "not await process_queue.life.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0))",
            "False",
        ),
        (RESETS,),
    ),
    Protection(
        "client-reset-not-overtaken",
        "A rebalance commits what was handled before a reset over the offset that was chosen.",
        edited(REBALANCE, "Rebalance._remove", "process_queue.life.resetting", "False"),
        (RESETS,),
    ),
    Protection(
        "broker-refused-claim",
        "A refused claim lengthens the lock of the owner.",
        edited(
            BROKER_LOCKS,
            "RebalanceLockManager._try_lock",
            "return LockAnswer(queue, LockOutcome.REFUSED, entry.client_id, age_ms)",
            ("entry.last_update_ms = now_ms\nreturn LockAnswer(queue, LockOutcome.REFUSED, entry.client_id, age_ms)"),
        ),
        ("tests/broker/ownership/test_lock_manager.py",),
    ),
    Protection(
        "broker-takeover-owner",
        "A queue that was taken over still belongs to its last owner.",
        edited(
            BROKER_LOCKS,
            "RebalanceLockManager._try_lock",
            (
                "self._put(entries, consumer_group, queue, LockEntry(client_id, now_ms, now_ms))\n"
                "old, seen_ms, cause = (entry.client_id, entry.last_update_ms, ChangeCause.TAKEN_OVER)"
            ),
            (
                "self._put(entries, consumer_group, queue, LockEntry(entry.client_id, now_ms, now_ms))\n"
                "old, seen_ms, cause = (entry.client_id, entry.last_update_ms, ChangeCause.TAKEN_OVER)"
            ),
        ),
        ("tests/broker/ownership/test_lock_manager.py",),
    ),
    Protection(
        "broker-unlock-asked",
        "An unlock frees all queues of its client.",
        edited(BROKER_LOCKS, "RebalanceLockManager.unlock_batch", "queues", "list(entries)"),
        ("tests/broker/ownership/test_lock_manager.py",),
    ),
    Protection(
        "broker-grant-each",
        "A client is told that it has all queues that it asked for when it has some.",
        edited(
            ROCKETMQ,
            "RocketMQOwnership.lock",
            "[answer.queue for answer in answers if answer.outcome.owned]",
            "asked.mq_set if any((answer.outcome.owned for answer in answers)) else ()",
        ),
        ("tests/broker/fronts/test_processors.py",),
    ),
    Protection(
        "broker-lock-kept",
        "A lock is forgotten half a second after its last renewal.",
        edited(BROKER_LOCKS, "RebalanceLockManager.expire", "KEPT_LIVES * self.max_live_time_ms", "500"),
        ("tests/broker/ownership/test_lock_manager.py",),
    ),
    Protection(
        "broker-lock-connection",
        "The end of a connection frees the locks of its clients.",
        edited(
            BROKER,
            "Broker.on_departure",
            "yield from self.notices(departure.consumer_group)",
            (
                "if hasattr(self.ownership.table, '_table'):\n"
                "    held = self.ownership.table._table.get(departure.consumer_group, {})\n"
                "    self.ownership.table.unlock_batch(departure.consumer_group, departure.client_id, list(held), 0)\n"
                "yield from self.notices(departure.consumer_group)"
            ),
        ),
        ("tests/broker/fronts/test_processors.py",),
    ),
    Protection(
        "client-renewal-of-its-broker",
        "A new connection to one broker renews the locks of another broker's queues too.",
        edited(
            CLIENT_LOCKS,
            "QueueLocks.lock_all_over",
            "self._instance.routes.master_address(broker_name) == address",
            "True",
        ),
        LOCK_TESTS,
    ),
    Protection(
        "client-given-up-not-taken",
        "A period begins with the grant of a queue that was given up meanwhile, and whose unlock is sent.",
        edited(
            CLIENT_LOCKS, "QueueLocks._end", "not lock.is_wanted and call.granted.pop(queue, None) is not None", "False"
        ),
        LOCK_TESTS,
    ),
    Protection(
        "client-unlock-sent-again",
        "An unlock that got no answer is not sent again, and its queue never asked for again.",
        edited(LOCK_REQUESTS, "LockRequests._unlocked", "self._listener.unlock_failed(queues, lapsed=True)", ""),
        (UNANSWERED,),
    ),
)
