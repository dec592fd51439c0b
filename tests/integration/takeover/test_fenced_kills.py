"""A broker with fenced locks and a store in files is killed again and again: its consumers keep their queues."""

import asyncio
import os
import random

import pytest

from lockstep.client import AdminClient, ClientError, MessageQueue, Producer
from lockstep.order import Kind, check_files
from lockstep.remoting.errors import RemotingError
from tests.integration.harness.processes import ConsumerProcess, Processes, until
from tests.integration.harness.workload import drained, producing, records, send_keyed, spread

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("FENCED_CRASHES", "3"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
TOPIC, GROUP, QUEUES = "orders", "audit", 6
# Of two members none gives a queue away while the other one is not known again.
CONSUMERS = 2
CONFIG = {"heartbeat_broker_interval_ms": 1000, "persist_consumer_offset_interval_ms": 300}
MESSAGES_EACH, PAUSE_S = 12, 0.02
PROGRESS = 5  # messages of each queue

Periods = dict[MessageQueue, tuple[str, int | None]]


async def periods(admin: AdminClient) -> Periods:
    """Client and epoch of each queue of the topic that is owned."""
    rows = [row for row in await admin.list_locks(GROUP) if row.queue.topic == TOPIC and row.remaining_ms >= 0]
    return {row.queue: (row.client_id, row.epoch) for row in rows}


async def send_until(stopped: asyncio.Event, producer: Producer) -> int:
    """Send until told to stop, whatever happens to the broker; return how many sends failed, each tried once."""
    number = failed = 0
    while not stopped.is_set():
        try:
            await send_keyed(producer, TOPIC, range(number, number + MESSAGES_EACH))
        except (ClientError, RemotingError):
            failed += 1
        number += MESSAGES_EACH
        await asyncio.sleep(PAUSE_S)
    return failed


def handled(consumers: list[ConsumerProcess]) -> list[int]:
    """How many messages of each queue were handled."""
    ids = [record["queue_id"] for consumer in consumers for record in records(consumer.trace, "handled")]
    return [ids.count(queue_id) for queue_id in range(QUEUES)]


def is_beyond(consumers: list[ConsumerProcess], before: list[int]) -> bool:
    return all(now >= then + PROGRESS for now, then in zip(handled(consumers), before, strict=True))


@pytest.mark.timeout(600 + 20 * KILLS)
async def test_owners_keep_their_queues_when_the_broker_is_killed(processes: Processes) -> None:
    """After SIGKILL at random moments and a restart each queue has the same owner and the same epoch, its owner goes
    on, and no two clients have handled a queue at once."""
    rng = random.Random(SEED)
    witness, sent_trace = processes.folder / "broker.trace", processes.folder / "producer.trace"
    options = ("--data-dir", str(processes.folder / "store"), "--trace", str(witness), "--lock-mode", "fenced")
    broker = await processes.broker(*options, "--topic", f"{TOPIC}:{QUEUES}")
    consumers = [
        await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG, fenced=True) for _ in range(CONSUMERS)
    ]
    stopped = asyncio.Event()
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, consumers), "an even share for each consumer")
        owned = await periods(admin)
        sending = asyncio.create_task(send_until(stopped, producer))
        for _ in range(KILLS):
            before = handled(consumers)
            await until(lambda: is_beyond(consumers, before), "each queue goes on", 30)  # noqa: B023
            await asyncio.sleep(rng.uniform(0, 0.3))
            broker.kill()
            broker = await processes.broker(*options, like=broker)
            assert await periods(admin) == owned, "what the broker has kept"
        before = handled(consumers)
        await until(lambda: is_beyond(consumers, before), "each queue goes on", 30)
        assert await periods(admin) == owned, "what its owners have renewed"
        stopped.set()
        await sending
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 30)
    for consumer in consumers:
        assert await consumer.stop() == 0
    await broker.stop()
    report = check_files([sent_trace, witness, *(consumer.trace for consumer in consumers)])
    shown = "\n".join(report.lines())
    print(shown)
    assert report.violation_counts.get(Kind.OVERLAP, 0) == 0, shown
    assert (report.violation_counts, report.lost) == ({}, 0), shown
    assert not any(records(consumer.trace, "lock_lost") for consumer in consumers)
