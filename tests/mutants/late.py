"""Protections against calls that begin late: after a wait for a thread, or after the machine slept."""

from typing import Final

from lockstep.simulation.museum.variant import edited, put
from tests.mutants.protection import Protection

__all__ = ["LATE"]

# Modules
SERVER: Final = "lockstep.broker.server"
CALL_START: Final = "lockstep.client.consumer.dispatch.call_start"
DIRECT: Final = "lockstep.client.consumer.dispatch.direct"
KEY_QUEUES: Final = "lockstep.client.consumer.cache.key_queues"
ORDERLY: Final = "lockstep.client.consumer.dispatch.orderly"
SCHEDULER: Final = "lockstep.client.instance.scheduler"
RUNTIME: Final = "lockstep.remoting.host.runtime"

WAITED: Final = ("tests/client/dispatch/test_call_start.py", "tests/scenarios/locks/test_late_calls.py")
SLEPT: Final = ("tests/scenarios/locks/test_sleep.py",)

LATE: Final = (
    Protection(
        "administrator-waits-for-queue",
        "An administrator's message is handled although its asker has given up while the queue was busy.",
        edited(
            DIRECT,
            "ConsumeDirectly.__call__",
            "outcome = await self._call([message], context, start)",
            "start = _DirectStart(self._runtime)\noutcome = await self._call([message], context, start)",
        ),
        ("tests/client/dispatch/test_call_start.py",),
    ),
    Protection(
        "lock-on-thread",
        "A call that waited for a thread begins though its lock ran out meanwhile.",
        edited(CALL_START, "CallStart.may_begin", "not process_queue.hold.is_trusted(now_ms)", "False"),
        WAITED,
    ),
    Protection(
        "ownership-on-thread",
        "A call that waited for a thread begins though its queue was given away meanwhile.",
        edited(CALL_START, "CallStart.may_begin", "life.dropped or life.draining", "False"),
        WAITED,
    ),
    Protection(
        "stop-on-thread",
        "A call that waited for a thread begins though its consumer stopped meanwhile.",
        edited(CALL_START, "CallStart.may_begin", "of.stopped", "False"),
        WAITED,
    ),
    Protection(
        "running-from-its-beginning",
        "A rebalance does not see a plain listener that runs.",
        edited(CALL_START, "CallStart.may_begin", "life.listener_running = True", ""),
        WAITED,
    ),
    Protection(
        "given-back-comes-again",
        "A message whose call was not begun is skipped.",
        edited(
            ORDERLY,
            "ConsumeMessageOrderlyService._consume_batch",
            "cache.make_messages_to_consume_again(messages)",
            "",
        ),
        WAITED,
    ),
    Protection(
        "given-back-comes-again-by-key",
        "By key, a message whose call was not begun is skipped.",
        edited(KEY_QUEUES, "KeyQueues.give_back", "key_queue.waiting.extendleft(reversed(key_queue.taken))", ""),
        WAITED,
    ),
    Protection(
        "direct-call-while-asked-for",
        "An administrator's message is handled long after the administrator gave up.",
        edited(DIRECT, "_DirectStart.may_begin", "self.began_ms - self.asked_ms <= _ASKER_WAITS_MS", "True"),
        WAITED,
    ),
    Protection(
        "due-on-waking",
        "What became due while the machine slept waits for timers that stood still.",
        edited(SCHEDULER, "Schedule._woke", ("one.timer.cancel()\nself._set_timer(one)"), ""),
        SLEPT,
    ),
    Protection(
        "delayed-on-waking",
        "A delayed message comes late by the time that the machine slept.",
        edited(SERVER, "BrokerServer._on_wake", "due_timer.rearm()", ""),
        SLEPT,
    ),
    Protection(
        "clock-counts-sleep",
        "Leases are measured by a clock that stands still while the machine sleeps.",
        put(RUNTIME, "AsyncioRuntime.__init__.__kwdefaults__['clock_ns']", "time.monotonic_ns"),
        ("tests/remoting/test_clocks.py",),
    ),
)
