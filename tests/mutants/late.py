"""Protections against calls that begin late: after a wait for a thread, or after the machine slept."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["LATE"]

WAITED: Final = ("tests/client/dispatch/test_call_start.py", "tests/scenarios/locks/test_late_calls.py")
SLEPT: Final = ("tests/scenarios/locks/test_sleep.py",)

LATE: Final = (
    Protection(
        "administrator-waits-for-queue",
        "An administrator's message is handled although its asker has given up while the queue was busy.",
        "client/consumer/dispatch/direct.py",
        "        start = _Start(self._runtime)  # the wait for other calls of the queue counts too\n"
        "        async with self._between_runs(queue):\n",
        "        async with self._between_runs(queue):\n            start = _Start(self._runtime)\n",
        ("tests/client/dispatch/test_call_start.py",),
    ),
    Protection(
        "lock-on-thread",
        "A call that waited for a thread begins though its lock ran out meanwhile.",
        "client/consumer/dispatch/call_start.py",
        "        elif not process_queue.holds_lock(now_ms, of.lock_live_ms):",
        "        elif False:",
        WAITED,
    ),
    Protection(
        "ownership-on-thread",
        "A call that waited for a thread begins though its queue was given away meanwhile.",
        "client/consumer/dispatch/call_start.py",
        "        elif process_queue.dropped or process_queue.draining:",
        "        elif False:",
        WAITED,
    ),
    Protection(
        "stop-on-thread",
        "A call that waited for a thread begins though its consumer stopped meanwhile.",
        "client/consumer/dispatch/call_start.py",
        "        if of.stopped:",
        "        if False:",
        WAITED,
    ),
    Protection(
        "running-from-its-beginning",
        "A rebalance does not see a plain listener that runs.",
        "client/consumer/dispatch/call_start.py",
        "            process_queue.listener_running = True\n",
        "            pass\n",
        WAITED,
    ),
    Protection(
        "given-back-comes-again",
        "A message whose call was not begun is skipped.",
        "client/consumer/dispatch/orderly.py",
        "        if not begun:\n            process_queue.make_messages_to_consume_again(messages)\n",
        "        if not begun:\n",
        WAITED,
    ),
    Protection(
        "given-back-comes-again-by-key",
        "By key, a message whose call was not begun is skipped.",
        "client/consumer/dispatch/key_queues.py",
        "        self.running -= 1\n        key_queue.waiting.extendleft(reversed(key_queue.taken))\n",
        "        self.running -= 1\n",
        WAITED,
    ),
    Protection(
        "direct-call-while-asked-for",
        "An administrator's message is handled long after the administrator gave up.",
        "client/consumer/dispatch/direct.py",
        "        return self.began_ms - self.asked_ms <= _ASKER_WAITS_MS",
        "        return True",
        WAITED,
    ),
    Protection(
        "due-on-waking",
        "What became due while the machine slept waits for timers that stood still.",
        "client/instance/scheduler.py",
        "                one.timer.cancel()\n                self._set_timer(one)\n",
        "                pass\n",
        SLEPT,
    ),
    Protection(
        "delayed-on-waking",
        "A delayed message comes late by the time that the machine slept.",
        "broker/server.py",
        "            due_timer.rearm()\n",
        "            pass\n",
        SLEPT,
    ),
    Protection(
        "clock-counts-sleep",
        "Leases are measured by a clock that stands still while the machine sleeps.",
        "remoting/host/runtime.py",
        "clock_ns: ClockNs = boot_ns) -> None:",
        "clock_ns: ClockNs = time.monotonic_ns) -> None:",
        ("tests/remoting/test_clocks.py",),
    ),
)
