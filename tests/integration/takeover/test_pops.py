"""A group that pops in order: its consumers, and then its broker, are killed again and again."""

import asyncio
from typing import Any

import pytest

from lockstep.order import check_files
from tests.integration.harness.processes import ConsumerProcess, Processes, until
from tests.integration.harness.workload import committed, drained, producing, records, send_keyed

pytestmark = pytest.mark.long

TOPIC, GROUP, QUEUES = "parcels", "packers", 2
MESSAGES_EACH = 96
CONFIG = {"pop_invisible_ms": 4000, "heartbeat_broker_interval_ms": 1000}


def handled(consumer: ConsumerProcess) -> int:
    return len(records(consumer.trace, "handled"))


async def test_consumers_and_a_broker_that_are_killed(processes: Processes) -> None:
    """After SIGKILL of a consumer the other one gets what it had; after that of the broker both go on. No call of a key
    overlaps another, and nothing is lost."""
    witness, sent_trace = processes.folder / "broker.trace", processes.folder / "producer.trace"
    options = ("--data-dir", str(processes.folder / "store"), "--trace", str(witness), "--lock-mode", "fenced")
    broker = await processes.broker(*options, "--topic", f"{TOPIC}:{QUEUES}")
    spec: dict[str, Any] = {"group": GROUP, "pop": True, "ordering": "key", "config": CONFIG, "work_ms": 10}
    consumers = [await processes.consumer(broker, TOPIC, **spec) for _ in range(2)]
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        for _ in range(2):
            dying = consumers[-1]
            before = handled(dying)
            sending = asyncio.create_task(send_keyed(producer, TOPIC, range(MESSAGES_EACH)))
            await until(lambda: handled(dying) > before, "it is at work")  # noqa: B023
            dying.kill()
            consumers.append(await processes.consumer(broker, TOPIC, **spec))
            await sending
            await until(lambda: drained(admin, GROUP, TOPIC), "the others handle the rest", 30)
        await send_keyed(producer, TOPIC, range(MESSAGES_EACH))
        broker.kill()
        broker = await processes.broker(*options, like=broker)
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled", 30)
        assert sum(await committed(admin, GROUP, TOPIC)) == 3 * MESSAGES_EACH
    for consumer in (consumers[0], consumers[-1]):
        assert await consumer.stop() == 0
    await broker.stop()
    report = check_files([sent_trace, witness, *(consumer.trace for consumer in consumers)])
    shown = "\n".join(report.lines())
    assert (report.violation_counts, report.lost) == ({}, 0), shown
