"""Misbehaving listeners in a process: the queue waits and tries again, and order holds."""

import pytest

from lockstep.order import Cause
from tests.integration.harness.processes import Processes, until
from tests.integration.harness.workload import drained, orderly, producing, send_keyed

pytestmark = pytest.mark.long

TOPIC, GROUP, QUEUES, MESSAGES, FAIL_EVERY = "orders", "audit", 4, 200, 10
CONFIG = {"suspend_current_queue_time_ms": 50, "persist_consumer_offset_interval_ms": 200}
SAID = {
    "nonsense": "ERROR listener_answer_invalid ",
    "raising": "ERROR listener_failed ",
}
NAMED = {"nonsense": "returned=str 'done'", "raising": "error=RuntimeError: the database is away"}


@pytest.mark.parametrize("listener", sorted(SAID))
async def test_a_listener_that_fails_suspends_its_queue(processes: Processes, listener: str) -> None:
    """The log names its result or exception once for each failure. The message comes again, and the later ones after
    it."""
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}")
    sent_trace = processes.folder / "producer.trace"
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        await send_keyed(producer, TOPIC, range(MESSAGES))
        consumer = await processes.consumer(
            broker, TOPIC, group=GROUP, config=CONFIG, listener=listener, fail_every=FAIL_EVERY
        )
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed")
    assert await consumer.stop() == 0
    report = orderly([sent_trace, consumer.trace], sent=MESSAGES, handled=MESSAGES)
    failures = report.duplicates[Cause.SUSPEND]
    assert failures >= MESSAGES / FAIL_EVERY
    assert set(report.duplicates) == {Cause.SUSPEND}
    # A failure that repeats itself is said once a minute; this story is shorter.
    assert consumer.stderr().count(SAID[listener]) == 1
    assert consumer.stderr().count(NAMED[listener]) == 1
    places = {"raising": "in listen\n    raise RuntimeError", "nonsense": ""}  # where it raised, if it did
    assert places[listener] in consumer.stderr()
    assert consumer.stderr().count("Traceback") == (listener == "raising")


async def test_a_plain_listener_does_not_stop_its_process(processes: Processes) -> None:
    """Plain functions run on threads: heartbeats and renewals go on while they compute, and order holds."""
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}")
    sent_trace = processes.folder / "producer.trace"
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        await send_keyed(producer, TOPIC, range(MESSAGES))
        consumer = await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG, listener="blocking", work_ms=2)
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 30)
    assert await consumer.stop() == 0
    orderly([sent_trace, consumer.trace], sent=MESSAGES, handled=MESSAGES, duplicates={})
