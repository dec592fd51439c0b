"""One of three consumers is killed: the others get its queues when its locks have expired, and all is in order."""

import asyncio
from typing import Any

import pytest

from lockstep.client import MessageQueue, SerializeType
from lockstep.order import Cause
from tests.integration.harness.processes import Broker, ConsumerProcess, Processes, until
from tests.integration.harness.workload import (
    SHORT_LOCKS,
    Trickle,
    drained,
    entries_of,
    orderly,
    producing,
    records,
    spread,
)

TOPIC, GROUP, QUEUES = "orders", "audit", 8
# Renewed each second: on a busy machine those that are not killed may not run for some seconds, and keep their locks.
LOCK_LIFE_MS = 10_000
OPTIONS = ("-D", f"rocketmq.broker.rebalance.lockMaxLiveTime={LOCK_LIFE_MS}")
CONFIG = SHORT_LOCKS | {"lock_max_live_time_ms": 8000, "broker_lock_max_live_time_ms": LOCK_LIFE_MS}


async def story(
    processes: Processes,
    serialize_type: SerializeType,
    *,
    broker_options: tuple[str, ...] = (),
    consumer_config: dict[str, Any],
    lock_life_ms: int,
    rebalance_ms: int,
    messages_each: int,
) -> None:
    """Kill one of three while messages keep coming; then everything that must be true afterwards."""
    broker = await processes.broker("--topic", f"{TOPIC}:{QUEUES}", *broker_options)
    config = {"serialize_type": serialize_type.name, **consumer_config}
    consumers = await asyncio.gather(
        *[processes.consumer(broker, TOPIC, group=GROUP, config=config, work_ms=1) for _ in range(3)]
    )
    sent_trace = processes.folder / "producer.trace"
    patience_s = (lock_life_ms + 2 * rebalance_ms) / 1000 + 15
    async with broker.admin(serialize_type) as admin, producing(broker, sent_trace, serialize_type) as producer:
        async with Trickle(producer, TOPIC, messages_each) as trickle:
            await until(
                lambda: spread(admin, GROUP, TOPIC, QUEUES, consumers), "an even share for each consumer", patience_s
            )
            victim, *others = consumers
            await until(lambda: len(records(victim.trace, "handled")) > 50, "the victim is at work")
            victim.kill()
            left_behind = await entries_of(admin, GROUP, victim.client_id)  # it takes and gives nothing any more
            assert sum(queue.topic == TOPIC for queue in left_behind) >= QUEUES // 3
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, others), "the others hold every queue", patience_s)
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 30)
    for consumer in others:
        assert await consumer.stop() == 0
    report = orderly([sent_trace, *(consumer.trace for consumer in consumers)], sent=trickle.sent, handled=trickle.sent)
    assert set(report.duplicates) <= {Cause.TAKEOVER}
    check_expiry(broker, victim, left_behind, lock_life_ms)
    handed_over = [handover for handover in report.handovers if handover.from_client_id == victim.client_id]
    assert {handover.queue for handover in handed_over} >= {queue for queue in left_behind if queue.topic == TOPIC}
    assert not any(records(consumer.trace, "lock_lost") for consumer in consumers)


def check_expiry(broker: Broker, victim: ConsumerProcess, queues: set[MessageQueue], lock_life_ms: int) -> None:
    """The broker gave away what the victim held, nobody else's, and not a moment before the lock had run out."""
    taken = broker.events("lock_taken_over")
    assert {event["queue"] for event in taken} == set(map(str, queues))
    assert {event["from_client_id"] for event in taken} == {victim.client_id}
    assert min(event["age_ms"] for event in taken) > lock_life_ms


@pytest.mark.long
@pytest.mark.parametrize(
    "serialize_type",
    [pytest.param(SerializeType.MSGPACK, marks=pytest.mark.smoke), SerializeType.JSON],
    ids=lambda kind: kind.name,
)
async def test_a_killed_consumer_loses_its_queues_to_the_others(
    processes: Processes, serialize_type: SerializeType
) -> None:
    """With a lock life of 10 s nothing is lost, order holds, and no queue moves before its lock expired."""
    await story(
        processes,
        serialize_type,
        broker_options=OPTIONS,
        consumer_config=CONFIG,
        lock_life_ms=LOCK_LIFE_MS,
        rebalance_ms=1000,
        messages_each=5,
    )


@pytest.mark.realtime
@pytest.mark.timeout(900)  # on a busy machine each condition takes its time
async def test_a_killed_consumer_loses_its_queues_on_the_default_timings(processes: Processes) -> None:
    """The same with RocketMQ's defaults: locks live for 60 s, and are renewed and requested every 20 s."""
    await story(
        processes,
        SerializeType.MSGPACK,
        consumer_config={},
        lock_life_ms=60_000,
        rebalance_ms=20_000,
        messages_each=2,
    )
