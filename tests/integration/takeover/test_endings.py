"""Clean ends: signals to consumers and brokers, exit statuses, and released queues."""

import signal

import pytest

from tests.integration.harness.processes import Processes, until
from tests.integration.harness.workload import drained, holders, orderly, producing, send_keyed, spread

TOPIC, GROUP, QUEUES, MESSAGES = "orders", "audit", 4, 400
STATUS = {signal.SIGTERM: 0, signal.SIGINT: 130}
# Locks live for RocketMQ's 60 s here: whatever changes hands within seconds was handed back.
CONFIG = {"rebalance_interval_ms": 1000, "persist_consumer_offset_interval_ms": 500}

pytestmark = pytest.mark.long
by_signal = pytest.mark.parametrize("number", list(STATUS), ids=lambda number: number.name)


@by_signal
async def test_a_consumer_that_is_told_to_end_hands_everything_back(
    processes: Processes, number: signal.Signals
) -> None:
    """It commits its handled messages, unlocks and unregisters; the other member begins at that commit, without a
    repeat."""
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}")
    leaving = await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG, work_ms=2)
    staying = await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG, work_ms=2)
    sent_trace = processes.folder / "producer.trace"
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, [leaving, staying]), "an even share for both")
        await send_keyed(producer, TOPIC, range(MESSAGES))
        assert await leaving.stop(number) == STATUS[number]
        assert leaving.client_id not in (await holders(admin, GROUP)).values()
        assert await admin.consumer_ids(GROUP) == [staying.client_id]
        await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, [staying]), "the other holds every queue")
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 20)
    assert await staying.stop() == 0
    report = orderly([sent_trace, leaving.trace, staying.trace], sent=MESSAGES, handled=MESSAGES, duplicates={})
    assert len(report.handovers) >= QUEUES / 2
    assert broker.events("lock_released")
    assert not broker.events("lock_taken_over")


@by_signal
async def test_a_broker_that_is_told_to_end_ends_under_its_clients(
    processes: Processes, number: signal.Signals
) -> None:
    """With waiting pulls and open connections: the exit status is right, stderr has only log lines, and the port is
    free."""
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}")
    consumer = await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG)
    async with broker.admin() as admin:
        await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, [consumer]), "every queue is held")
        assert await broker.stop(number, timeout_s=3) == STATUS[number]
    assert [event["signal"] for event in broker.events("shutting_down")] == [number.name]
    assert all(line.startswith("{") for line in broker.stderr().splitlines())
    again = await processes.broker(like=broker)
    assert await again.stop() == 0


@by_signal
async def test_a_consumer_ends_though_its_broker_is_gone(processes: Processes, number: signal.Signals) -> None:
    """It can no longer unlock or commit. It logs that, and ends with the right status."""
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}")
    consumer = await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG)
    async with broker.admin() as admin:
        await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, [consumer]), "every queue is held")
    broker.kill()
    assert await consumer.stop(number) == STATUS[number]
    assert "unlock_failed" in consumer.stderr()
    assert "Traceback" not in consumer.stderr()


async def test_a_broker_that_was_just_started_ends_at_once(processes: Processes) -> None:
    """A signal right after the line `listening` is not lost."""
    broker = await processes.broker()
    assert await broker.stop(signal.SIGINT, timeout_s=3) == STATUS[signal.SIGINT]
