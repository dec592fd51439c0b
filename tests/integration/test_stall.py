"""A consumer that stands still past its lease: others take its queues over, and it must not go on where it was."""

import asyncio
import signal

from lockstep.client import SerializeType
from lockstep.simulation.checkers import Cause
from tests.integration.processes import Processes, until
from tests.integration.workload import (
    SHORT_BROKER_LOCKS,
    SHORT_LOCKS,
    Trickle,
    drained,
    orderly,
    producing,
    records,
    spread,
)

TOPIC, GROUP, QUEUES = "orders", "audit", 6
# A silent client is given up after 2.5 s, before its locks run out.
QUICK_EXPIRY = ("-D", "channel_expired_timeout_ms=2500", "-D", "scan_interval_ms=500")
CONFIG = SHORT_LOCKS | {"heartbeat_broker_interval_ms": 1000}


async def test_a_consumer_that_stood_still_begins_anew(processes: Processes) -> None:
    """Stopped until others own its queues, then continued: it asks for its queues again and begins at the commit.

    What it had fetched before is worth nothing: others have handled it meanwhile. Only what it was working on when it
    was stopped may be handled twice.
    """
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}", *SHORT_BROKER_LOCKS, *QUICK_EXPIRY)
    consumers = await asyncio.gather(
        *[processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG, work_ms=2) for _ in range(3)]
    )
    stalled, *others = consumers
    sent_trace = processes.folder / "producer.trace"
    async with broker.admin() as admin, producing(broker, sent_trace, SerializeType.MSGPACK) as producer:
        async with Trickle(producer, TOPIC, 10) as trickle:
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, consumers), "an even share for each consumer")
            await until(lambda: len(records(stalled.trace, "handled")) > 50, "it is at work")
            stalled.send_signal(signal.SIGSTOP)
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, others), "the others hold every queue", 20)
            stalled.send_signal(signal.SIGCONT)
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, consumers), "it has its share again", 20)
            before = len(records(stalled.trace, "handled"))
            await until(lambda: len(records(stalled.trace, "handled")) > before + 50, "it is at work again")
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 30)
    for consumer in consumers:
        assert await consumer.stop() == 0
    report = orderly([sent_trace, *(consumer.trace for consumer in consumers)], sent=trickle.sent, handled=trickle.sent)
    assert set(report.duplicates) <= {Cause.TAKEOVER}
