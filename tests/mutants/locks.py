"""Protections of the queue lock: the broker's table, and what a client believes of it."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["LOCKS"]

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
        "broker/state/locks.py",
        "expired = age_ms > self.max_live_time_ms",
        "expired = age_ms > self.max_live_time_ms // 2",
        LOCK_LIFE,
    ),
    Protection(
        "broker-lock-renewal",
        "A renewal does not lengthen the lock.",
        "broker/state/locks.py",
        "            entry.last_update_ms = now_ms\n",
        "",
        LOCK_LIFE,
    ),
    Protection(
        "broker-lock-owner",
        "A queue that another client holds is granted.",
        "broker/state/locks.py",
        "if entry.client_id == client_id and not expired:",
        "if not expired:",
        ("tests/broker/state/test_lock_manager.py",),
    ),
    Protection(
        "broker-unlock-owner",
        "A client frees the lock of another.",
        "broker/state/locks.py",
        "if entry is None or entry.client_id != client_id:",
        "if entry is None:",
        ("tests/broker/state/test_lock_manager.py",),
    ),
    # The client's belief in it
    Protection(
        "client-lock-expiry",
        "A client goes on after its own view of the lock has run out.",
        "client/consumer/process_queue.py",
        "            self.locked and now_ms - self.last_lock_ms <= (self._trusted_ms or lock_max_live_time_ms)\n",
        "            self.locked\n",
        (*LOCK_LIFE, *TAKEOVER),
    ),
    Protection(
        "client-lock-lost",
        "A renewal that is refused changes nothing at the client.",
        "client/consumer/ownership/locks.py",
        "            process_queue.locked = False\n",
        "            pass\n",
        LOCK_TESTS,
    ),
    Protection(
        "client-lock-from-request",
        "A renewal counts from its answer, not from the moment it was asked for.",
        "client/consumer/ownership/locks.py",
        "self._granted(queue, held.get(queue), grant, reply)",
        "self._granted(queue, held.get(queue), grant._replace(asked_ms=self._runtime.now_ms()), reply)",
        LOCK_TESTS,
    ),
    Protection(
        "client-new-lock-from-request",
        "A new lock counts from its answer, not from the moment it was asked for.",
        "client/consumer/ownership/locks.py",
        "call.granted[queue] = Outcome.GRANTED, grant",
        "call.granted[queue] = Outcome.GRANTED, grant._replace(asked_ms=self._runtime.now_ms())",
        LOCK_TESTS,
    ),
    Protection(
        "client-reacquired-begins-anew",
        "A client that lost its lock and got it back goes on with its old messages and offset.",
        "client/consumer/ownership/locks.py",
        "if process_queue.holds_lock(self._runtime.now_ms(), self._config.lock_surely_held_ms):",
        "if True:",
        (*LOCK_TESTS, *TAKEOVER),
    ),
    Protection(
        "client-locks-after-reconnect",
        "After a reconnect the locks are not renewed before pulls commit.",
        "client/consumer/push_member.py",
        "            await self._locks.lock_all_over(address, endpoint)\n",
        "",
        ("tests/scenarios/brokers/test_broker_restart.py",),
    ),
    Protection(
        "client-unlock-not-reused",
        "A delayed unlock frees a queue that came back.",
        "client/consumer/ownership/locks.py",
        "timer(in_table=queue in self._table)",
        "timer(in_table=False)",
        (*LOCK_TESTS, "tests/scenarios/locks/test_rebalance.py"),
    ),
    Protection(
        "client-unlock-behind-lock",
        "An unlock overtakes a lock request that is under way.",
        "client/consumer/ownership/lock_states.py",
        "(_S.ASKING, _E.UNLOCK): _T(_S.ASKING_UNWANTED),",
        "(_S.ASKING, _E.UNLOCK): _T(_S.ASKING_UNWANTED, _SEND),",
        (*LOCK_TESTS, LOCK_STATES),
    ),
    Protection(
        "client-lock-behind-unlock",
        "A lock is asked for while an unlock may still be handled, and free it.",
        "client/consumer/ownership/lock_states.py",
        "return self.state not in (LockState.UNLOCKING, LockState.UNLOCKING_AGAIN)",
        "return True",
        (UNANSWERED, LOCK_STATES),
    ),
    Protection(
        "client-timer-in-lock-call",
        "The unlock timer of one lock call fires inside another.",
        "client/consumer/ownership/lock_states.py",
        "(_S.UNLOCK_DUE, _E.ASK): _T(_S.ASKING, _STOP),",
        "(_S.UNLOCK_DUE, _E.ASK): _T(_S.ASKING),",
        (UNANSWERED, LOCK_STATES),
    ),
    Protection(
        "client-late-grant-undone",
        "A lock that is granted late stays at the broker for a client that does not want it.",
        "client/consumer/ownership/lock_states.py",
        "(_S.IN_DOUBT, _E.LATE_GRANT): _T(_S.UNLOCKING, _STOP + _SEND),",
        "(_S.IN_DOUBT, _E.LATE_GRANT): _T(_S.FREE, _STOP),",
        (UNANSWERED, LOCK_STATES),
    ),
    Protection(
        "client-reset-waits",
        "A reset gives a queue away under its running listener.",
        "client/consumer/ownership/reset.py",
        "if not await process_queue.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0))",
        "if False",
        (RESETS,),
    ),
    Protection(
        "client-reset-not-overtaken",
        "A rebalance commits what was handled before a reset over the offset that was chosen.",
        "client/consumer/ownership/rebalance.py",
        "if process_queue.resetting or self._locks",
        "if self._locks",
        (RESETS,),
    ),
    Protection(
        "broker-refused-claim",
        "A refused claim lengthens the lock of the owner.",
        "broker/state/locks.py",
        "        return LockAnswer(queue, LockOutcome.REFUSED, entry.client_id, age_ms)",
        "        entry.last_update_ms = now_ms\n"
        "        return LockAnswer(queue, LockOutcome.REFUSED, entry.client_id, age_ms)",
        ("tests/broker/state/test_lock_manager.py",),
    ),
    Protection(
        "broker-takeover-owner",
        "A queue that was taken over still belongs to its last owner.",
        "broker/state/locks.py",
        "            self._put(entries, consumer_group, queue, LockEntry(client_id, now_ms, now_ms))\n            old,",
        "            self._put(entries, consumer_group, queue, LockEntry(entry.client_id, now_ms, now_ms))\n"
        "            old,",
        ("tests/broker/state/test_lock_manager.py",),
    ),
    Protection(
        "broker-unlock-asked",
        "An unlock frees all queues of its client.",
        "broker/state/locks.py",
        "        for queue in queues:\n            entry = entries.get(queue)",
        "        for queue in list(entries):\n            entry = entries.get(queue)",
        ("tests/broker/state/test_lock_manager.py",),
    ),
    Protection(
        "broker-grant-each",
        "A client is told that it has all queues that it asked for when it has some.",
        "broker/processors/lock.py",
        "granted = tuple([answer.queue for answer in answers if answer.outcome.owned])",
        "granted = body.mq_set if any(answer.outcome.owned for answer in answers) else ()",
        ("tests/broker/requests/test_processors.py",),
    ),
    Protection(
        "broker-lock-kept",
        "A lock is forgotten half a second after its last renewal.",
        "broker/state/locks.py",
        "self._expire_before(now_ms - KEPT_LIVES * self.max_live_time_ms, count_max)",
        "self._expire_before(now_ms - 500, count_max)",
        ("tests/broker/state/test_lock_manager.py",),
    ),
    Protection(
        "broker-lock-connection",
        "The end of a connection frees the locks of its clients.",
        "broker/state/broker.py",
        "        yield from self.notices(departure.consumer_group)\n\n    def _on_silent",
        "        if self.fenced is None:\n"
        "            held = self.locks._table.get(departure.consumer_group, {})\n"
        "            self.locks.unlock_batch(departure.consumer_group, departure.client_id, list(held), 0)\n"
        "        yield from self.notices(departure.consumer_group)\n"
        "\n"
        "    def _on_silent",
        ("tests/broker/requests/test_processors.py",),
    ),
    Protection(
        "client-renewal-of-its-broker",
        "A new connection to one broker renews the locks of another broker's queues too.",
        "client/consumer/ownership/locks.py",
        "if self._instance.routes.master_address(broker_name) == address:",
        "if True:",
        LOCK_TESTS,
    ),
    Protection(
        "client-given-up-not-taken",
        "A period begins with the grant of a queue that was given up meanwhile, and whose unlock is sent.",
        "client/consumer/ownership/locks.py",
        "if not lock.is_wanted and call.granted.pop(queue, None) is not None:",
        "if False:",
        LOCK_TESTS,
    ),
    Protection(
        "client-unlock-sent-again",
        "An unlock that got no answer is not sent again, and its queue never asked for again.",
        "client/consumer/ownership/lock_requests.py",
        "        elif error is not None:\n            self._listener.unlock_failed(queues, lapsed=True)\n",
        "        elif error is not None:\n            pass\n",
        (UNANSWERED,),
    ),
)
