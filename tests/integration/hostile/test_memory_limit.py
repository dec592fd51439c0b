"""A broker reaches its memory limit: the oldest messages are dropped, and a group that had not read them learns of
it."""

import re
import signal

import pytest

from lockstep.client import MessageQueue
from tests.integration.harness.processes import Processes, rss_bytes, until
from tests.integration.harness.workload import committed, drained, orderly, producing, records, send_keyed

pytestmark = pytest.mark.long

TOPIC, GROUP = "orders", "audit"
MIB = 1024 * 1024
BODY_BYTES, MESSAGES, HELD_AFTER = 64 * 1024, 400, 5
CONFIG = {
    "rebalance_interval_ms": 1000,
    "persist_consumer_offset_interval_ms": 200,
    "offset_illegal_delay_ms": 500,
    "pull_threshold_for_queue": 4,
    "pull_batch_size": 2,
}


async def test_a_slow_consumer_is_set_to_what_is_left(processes: Processes) -> None:
    """25 MiB go through a limit of 8 MiB: the minimum offset moves, dropped messages beyond the commit are logged and
    counted, and the group goes on. The report counts them as skipped by a reset; the rest is in order."""
    broker = await processes.broker("--topic", f"{TOPIC}:1", "--memory-limit", "8MiB")
    consumer = await processes.consumer(
        broker, TOPIC, group=GROUP, config=CONFIG, listener="held", hold_after=HELD_AFTER
    )
    queue = MessageQueue(TOPIC, "broker-a", 0)
    sent_trace = processes.folder / "producer.trace"
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        rss_before = rss_bytes(broker.pid)
        await send_keyed(producer, TOPIC, range(20), padding_bytes=BODY_BYTES)

        async def has_committed() -> bool:
            return await committed(admin, GROUP, TOPIC) == [HELD_AFTER]

        await until(has_committed, "the commit before it is held up")
        for start in range(20, MESSAGES, 20):
            await send_keyed(producer, TOPIC, range(start, start + 20), padding_bytes=BODY_BYTES)
        min_offset, max_offset = await admin.min_offset(queue), await admin.max_offset(queue)
        assert max_offset == MESSAGES
        assert MESSAGES - 8 * MIB // BODY_BYTES <= min_offset < MESSAGES
        assert rss_bytes(broker.pid) - rss_before < 16 * MIB
        drops = broker.events("unconsumed_messages_dropped")
        assert {(drop["group"], drop["topic"], drop["queue_id"]) for drop in drops} == {(GROUP, TOPIC, 0)}
        assert {drop["committed_offset"] for drop in drops} == {HELD_AFTER}
        assert drops[-1]["min_offset"] == min_offset
        assert drops[-1]["dropped_ahead_total"] == sum(drop["count"] for drop in drops) == min_offset - HELD_AFTER
        consumer.send_signal(signal.SIGUSR1)
        await until(lambda: drained(admin, GROUP, TOPIC), "the rest is handled and committed")
    assert await consumer.stop() == 0
    assert re.search(rf"offset_illegal .*next_offset={min_offset} ", consumer.stderr())
    resets = [record["offset"] for record in records(consumer.trace, "reset")]
    assert resets == [min_offset]
    report = orderly([sent_trace, consumer.trace], sent=MESSAGES, duplicates={})
    assert report.handled + report.skipped == MESSAGES
    assert report.handled >= MESSAGES - min_offset
