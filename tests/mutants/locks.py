"""Protections of the queue lock: the broker's table, and what a client believes of it."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["LOCKS"]

TAKEOVER: Final = ("tests/scenarios/test_takeover.py", "tests/scenarios/test_partitions.py")
LOCK_LIFE: Final = ("tests/scenarios/test_lock_life.py",)
LOCK_TESTS: Final = ("tests/client/test_queue_locks.py",)

LOCKS: Final = (
    # The broker's lock
    Protection(
        "broker-lock-life",
        "The broker gives a queue away at half the life of its lock.",
        "broker/lock_manager.py",
        "expired = age_ms > self.max_live_time_ms",
        "expired = age_ms > self.max_live_time_ms // 2",
        LOCK_LIFE,
    ),
    Protection(
        "broker-lock-renewal",
        "A renewal does not lengthen the lock.",
        "broker/lock_manager.py",
        "            entry.last_update_ms = now_ms\n",
        "",
        LOCK_LIFE,
    ),
    Protection(
        "broker-lock-owner",
        "A queue that another client holds is granted.",
        "broker/lock_manager.py",
        "if entry.client_id == client_id and not expired:",
        "if not expired:",
        ("tests/broker/test_lock_manager.py",),
    ),
    Protection(
        "broker-unlock-owner",
        "A client frees the lock of another.",
        "broker/lock_manager.py",
        "if entry is None or entry.client_id != client_id:",
        "if entry is None:",
        ("tests/broker/test_lock_manager.py",),
    ),
    # The client's belief in it
    Protection(
        "client-lock-expiry",
        "A client goes on after its own view of the lock has run out.",
        "client/process_queue.py",
        "return not self.needs_lock or (self.locked and now_ms - self.last_lock_ms <= lock_max_live_time_ms)",
        "return not self.needs_lock or self.locked",
        (*LOCK_LIFE, *TAKEOVER),
    ),
    Protection(
        "client-lock-lost",
        "A renewal that is refused changes nothing at the client.",
        "client/queue_locks.py",
        "                process_queue.locked = False\n",
        "",
        LOCK_TESTS,
    ),
    Protection(
        "client-lock-from-request",
        "A renewal counts from its answer, not from the moment it was asked for.",
        "client/queue_locks.py",
        "            if queue in won:\n                self._granted(process_queue, asked_ms)",
        "            if queue in won:\n                self._granted(process_queue, self._instance.runtime.now_ms())",
        LOCK_TESTS,
    ),
    Protection(
        "client-new-lock-from-request",
        "A new lock counts from its answer, not from the moment it was asked for.",
        "client/queue_locks.py",
        "granted[queue] = asked_ms",
        "granted[queue] = self._instance.runtime.now_ms()",
        LOCK_TESTS,
    ),
    Protection(
        "client-reacquired-begins-anew",
        "A client that lost its lock and got it back goes on with its old messages and offset.",
        "client/queue_locks.py",
        "if process_queue.holds_lock(self._instance.runtime.now_ms(), self._config.lock_surely_held_ms):",
        "if True:",
        (*LOCK_TESTS, *TAKEOVER),
    ),
    Protection(
        "client-locks-after-reconnect",
        "After a reconnect the locks are not renewed before pulls commit.",
        "client/push_engine.py",
        "            await self._locks.lock_all_over(address, endpoint)\n",
        "",
        ("tests/scenarios/test_broker_restart.py",),
    ),
    Protection(
        "client-unlock-not-reused",
        "A delayed unlock frees a queue that came back.",
        "client/queue_locks.py",
        "        del self._unlock_timers[queue]\n        if queue not in self._table:\n",
        "        del self._unlock_timers[queue]\n        if True:\n",
        (*LOCK_TESTS, "tests/scenarios/test_rebalance.py"),
    ),
    Protection(
        "client-unlock-behind-lock",
        "An unlock overtakes a lock request that is under way.",
        "client/queue_locks.py",
        "        if under_way:\n",
        "        if False:\n",
        LOCK_TESTS,
    ),
)
