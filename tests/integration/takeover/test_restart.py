"""A broker with a memory store restarts empty, and its clients recover by themselves."""

import asyncio
import json
import signal
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lockstep.client import AdminClient, MessageQueue, Producer, SendError, SerializeType
from lockstep.order import OrderReport
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.testing.peer import json_request
from tests.integration.harness.processes import ConsumerProcess, Processes, until
from tests.integration.harness.raw import raw_peer
from tests.integration.harness.workload import (
    SHORT_BROKER_LOCKS,
    SHORT_LOCKS,
    committed,
    drained,
    orderly,
    producing,
    records,
    send_keyed,
    spread,
)

pytestmark = pytest.mark.long

TOPIC, GROUP, QUEUES = "orders", "audit", 4
OPTIONS = ("--topic", f"{TOPIC}:{QUEUES}", *SHORT_BROKER_LOCKS)
BEFORE, AT_ONCE, AFTER = 1600, 40, 400
# Few messages are fetched ahead, so that a part of them is in the store alone when it goes.
CONFIG = SHORT_LOCKS | {"pull_threshold_for_queue": 8, "pull_batch_size": 4, "offset_illegal_delay_ms": 1000}
# A lock that a client believes in however long its broker takes to start. A client whose lock ran out asks the new
# broker where to begin, and nothing is reset.
LASTING_LOCKS = {"lock_max_live_time_ms": 120_000, "broker_lock_max_live_time_ms": 180_000}
LASTING_OPTIONS = (*OPTIONS[:2], "-D", "rocketmq.broker.rebalance.lockMaxLiveTime=180000")


async def send_once_it_is_back(producer: Producer, numbers: range) -> None:
    """The producer, too, connects again by itself."""

    async def sent() -> int:
        try:
            return await send_keyed(producer, TOPIC, numbers)
        except SendError:
            return 0

    await until(sent, "the producer reaches the new broker")


def note_restart(path: Path, wall_ms: int) -> Path:
    """For the checker: from now on the store is another."""
    path.write_text(json.dumps({"event": "broker_restarted", "wall_ms": wall_ms, "broker": "broker-a"}) + "\n")
    return path


async def restart(
    processes: Processes,
    number: signal.Signals,
    *,
    consumers: int,
    lasting_locks: bool = False,
    at_once: bool = False,
) -> tuple[OrderReport, list[ConsumerProcess]]:
    """Messages, an end of the broker while a part of them is unread, its restart, new messages; then the report."""
    options = LASTING_OPTIONS if lasting_locks else OPTIONS
    config = CONFIG | LASTING_LOCKS if lasting_locks else CONFIG
    broker = await processes.broker(*options)
    started = await asyncio.gather(
        *[processes.consumer(broker, TOPIC, group=GROUP, config=config, work_ms=5) for _ in range(consumers)]
    )
    sent_trace = processes.folder / "producer.trace"
    async with producing(broker, sent_trace) as producer:
        async with broker.admin() as admin:
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, started), "every queue has an owner")
            await send_keyed(producer, TOPIC, range(BEFORE))

            async def all_are_under_way() -> bool:
                return min(await committed(admin, GROUP, TOPIC)) >= AT_ONCE

            await until(all_are_under_way, "a commit of each queue")
        assert await broker.stop(number) == {signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}[number]
        restart_ms = time.time_ns() // 1_000_000
        marker = note_restart(processes.folder / "restart.trace", restart_ms)
        again = await processes.broker(*options, like=broker)
        if at_once:
            await send_once_it_is_back(producer, range(BEFORE, BEFORE + AT_ONCE))
        async with again.admin() as admin:
            await until(
                lambda: settled(admin, started, restart_ms), "each queue is pulled from an offset that the store has"
            )
            await send_once_it_is_back(producer, range(BEFORE + at_once * AT_ONCE, BEFORE + at_once * AT_ONCE + AFTER))
            await until(lambda: drained(admin, GROUP, TOPIC), "the new messages are handled", 30)
            await until(lambda: spread(admin, GROUP, TOPIC, QUEUES, started), "the same consumers hold the queues")
    for consumer in started:
        assert await consumer.stop() == 0
    assert not again.events("request_failed")
    traces = [sent_trace, marker, *(consumer.trace for consumer in started)]
    return orderly(traces, sent=BEFORE + at_once * AT_ONCE + AFTER), list(started)


async def settled(admin: AdminClient, consumers: Sequence[ConsumerProcess], since_ms: int) -> bool:
    """Whether each queue's holder has asked the new broker where to begin, and was sent to an offset that it has.

    It may be sent beyond the end first: the pulls of a queue's last owner commit what they know to the new broker
    before they hear that it is illegal.
    """
    held = await spread(admin, GROUP, TOPIC, QUEUES, consumers)
    if held is None:
        return False
    found = [record for consumer in consumers for record in records(consumer.trace, "positioned")]
    last = {(r["client_id"], r["topic"], r["queue_id"]): r["offset"] for r in found if r["wall_ms"] > since_ms}
    for queue, client_id in held.items():
        offset = last.get((client_id, queue.topic, queue.queue_id))
        if queue.topic == TOPIC and (offset is None or offset > await admin.max_offset(queue)):
            return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
async def test_a_consumer_alone_finds_its_way_back(processes: Processes, number: signal.Signals) -> None:
    """It locks its queues again. Each offset is beyond the end of the empty store and is reset to 0; new messages are
    in order. The report counts the messages that the memory store lost, and no new message is missing."""
    report, (consumer,) = await restart(processes, number, consumers=1, lasting_locks=True)
    resets = [(record["queue_id"], record["offset"]) for record in records(consumer.trace, "reset")]
    assert sorted(resets) == [(queue_id, 0) for queue_id in range(QUEUES)]
    assert consumer.stderr().count("log_went_back") == QUEUES
    assert report.emptied > 0
    assert report.handled == report.sent - report.emptied
    assert (report.skipped, report.before_start, report.duplicates) == (0, 0, {})


@pytest.mark.parametrize("at_once", [False, True], ids=["silence first", "messages at once"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
async def test_consumers_find_their_way_back(processes: Processes, number: signal.Signals, at_once: bool) -> None:
    """Whichever of three comes back first, order holds, and each message is handled or counted. With messages at once
    RocketMQ's rule may set a queue to its end (wire.md 6.3): messages that arrived before that are skipped, and the
    report counts them."""
    report, _ = await restart(processes, number, consumers=3, at_once=at_once)
    assert report.emptied > 0
    passed_over = report.skipped + report.before_start
    assert report.handled == report.sent - report.emptied - passed_over
    assert passed_over <= (AT_ONCE if at_once else 0)


def past(timestamp: str, seconds: float) -> str:
    """A log's timestamp, that much later."""
    return (datetime.fromisoformat(timestamp) + timedelta(seconds=seconds)).isoformat()


async def test_who_lost_its_lock_in_a_restart_commits_nothing(processes: Processes) -> None:
    """Another client is first at the new broker: the old owner is refused, and neither pulls nor commits nor resets
    there."""
    broker = await processes.broker("--topic", f"{TOPIC}:1", *SHORT_BROKER_LOCKS)
    config = CONFIG | {"pull_delay_when_exception_ms": 20}  # so that a pull is the first to connect
    consumer = await processes.consumer(broker, TOPIC, group=GROUP, config=config)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with producing(broker, processes.folder / "producer.trace") as producer, broker.admin() as admin:
        await until(lambda: spread(admin, GROUP, TOPIC, 1, [consumer]), "it has an owner")
        await send_keyed(producer, TOPIC, range(40))
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed")
    consumer.send_signal(signal.SIGSTOP)  # so that the rival is first
    broker.kill()
    again = await processes.broker("--topic", f"{TOPIC}:1", *SHORT_BROKER_LOCKS, like=broker)
    lock = encode_body(LockBatchBody(GROUP, "rival", (queue,)), SerializeType.JSON)
    async with raw_peer(again.port) as rival, again.admin() as admin:
        await rival.ask(json_request(RequestCode.LOCK_BATCH_MQ, {}, lock))
        await admin.update_consumer_offset(GROUP, queue, 3)
        consumer.send_signal(signal.SIGCONT)
        refused = again.events("lock_refused")
        while len(refused) < 2 or refused[-1]["timestamp"] < past(refused[0]["timestamp"], 2.5):
            assert (await rival.ask(json_request(RequestCode.LOCK_BATCH_MQ, {}, lock))).code == ResponseCode.SUCCESS
            await asyncio.sleep(0.1)
            refused = again.events("lock_refused")
        assert await admin.consumer_offset(GROUP, queue) == 3
    assert not again.events("offset_committed_backwards")
    assert not records(consumer.trace, "reset")
    assert await consumer.stop() == 0
