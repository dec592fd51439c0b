"""Consumption without order: retries, dead letters, stuck listeners, limits, killed members (wire.md 12.8)."""

import dataclasses
from itertools import pairwise
from typing import Any

from lockstep.broker.server import BrokerServer
from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    MessageExt,
)
from lockstep.order import Cause
from lockstep.protocol.codes import Permission
from tests.scenarios.cluster import GROUP, Cluster
from tests.scenarios.scenario import INSTANT, scenario

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
RETRY_WAITS_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
MINUTE_MS = 60_000
FIRST: dict[str, Any] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
QUIET: dict[str, Any] = {
    "pull_suspend_ms": 600_000,
    "pull_timeout_ms": 660_000,
    "pull_max_idle_ms": 1_200_000,
    "persist_consumer_offset_interval_ms": 600_000,
    "rebalance_interval_ms": 600_000,
    "poll_name_server_interval_ms": 600_000,
    "heartbeat_broker_interval_ms": 100_000,
}
"""For hours of virtual time: what is asked again and again, asked less often."""


# At once ----------------------------------------------------------------------------------------------------------


@scenario(INSTANT)
async def test_the_number_of_threads_may_change(cluster: Cluster) -> None:
    """One call at a time, and three from the moment when the setting changes."""
    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1", ordering="none", work_ms=1000, consume_thread_count=1, **FIRST)
    await cluster.send(5, queue_id=0)
    await cluster.world.until(lambda: len(cluster.seen.all) == 2)
    consumer.set_consume_thread_count(3)
    await cluster.all_seen()
    begun_ms = [call.begin_ms for call in cluster.seen.all]
    assert [begun_ms.count(at_ms) for at_ms in sorted(set(begun_ms))] in ([1, 1, 3], [1, 3, 1])


@scenario()
async def test_no_lock_is_asked_for(cluster: Cluster) -> None:
    """Queues are allocated as usual, but the broker's lock table stays empty."""
    await cluster.broker_and_producer(queues=4)
    await cluster.consumer("c1", ordering="none")
    await cluster.consumer("c2", ordering="none")
    await cluster.at(25_000)
    await cluster.send(40)
    await cluster.all_seen()
    assert {call.process for call in cluster.seen.all} == {"c1", "c2"}
    assert cluster.locks() == {}


# Retries ----------------------------------------------------------------------------------------------------------


@scenario(INSTANT)
async def test_retries_grow_through_the_delay_levels_to_the_dead_letters(cluster: Cluster) -> None:
    """A message that always fails comes again after 10 s, 30 s ... 2 h, and its listener sees the original topic. After
    the sixteenth retry it becomes a dead letter at once."""
    cluster.expected.duplicates = {Cause.PRODUCER_RETRY}  # its copies all carry its first id
    topics: list[str] = []

    def answer(message: MessageExt, _: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        topics.append(message.topic)
        return LATER

    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="none", answer=answer, **QUIET)
    await cluster.send(1, queue_id=0)
    await cluster.world.until(lambda: cluster.stored(topic=DEAD), timeout_ms=18_000_000, poll_ms=10_000)
    calls = cluster.seen.all
    assert [call.reconsume_times for call in calls] == list(range(17))
    waited_ms = [after.begin_ms - before.end_ms for before, after in pairwise(calls)]
    assert waited_ms == [wait_s * 1000 for wait_s in RETRY_WAITS_S]
    assert set(topics) == {"Aircraft"}
    (letter,) = cluster.stored(topic=DEAD)
    assert (letter.body, letter.reconsume_times, letter.msg_id) == (b"0", 17, calls[0].msg_id)
    assert cluster.stored()[0].msg_id == letter.msg_id


@scenario(INSTANT)
async def test_a_listener_may_give_up_at_once(cluster: Cluster) -> None:
    """A negative level makes a dead letter; `max_reconsume_times` makes one after as many retries."""
    cluster.expected.duplicates = {Cause.PRODUCER_RETRY}

    def answer(message: MessageExt, context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if message.body == b"0":
            context.delay_level_when_next_consume = -1
        return LATER

    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="none", answer=answer, max_reconsume_times=2)
    await cluster.send(2, queue_id=0)
    await cluster.world.until(lambda: len(cluster.stored(topic=DEAD)) == 2, timeout_ms=50_000)
    assert sorted(cluster.seen.texts()) == ["0", "1", "1", "1"]
    assert [letter.body for letter in cluster.stored(topic=DEAD)] == [b"0", b"1"]


@scenario(INSTANT)
async def test_a_broker_that_takes_nothing_back_leaves_the_message_here(cluster: Cluster) -> None:
    """When the broker accepts neither the message nor a copy, the client handles it again each 5 s, and the stored
    offset waits. When the broker is writable again, the message is sent back as usual."""
    cluster.expected.duplicates = {Cause.SUSPEND}
    failing = ["0"]
    server = await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(3, queue_id=0)
    _permit(cluster, server, Permission.READ)
    await cluster.consumer(
        "c1", ordering="none", answer=lambda message, _: LATER if message.body.decode() in failing else SUCCESS, **FIRST
    )
    await cluster.world.until(lambda: len(cluster.seen.all) == 6, poll_ms=1)
    assert cluster.seen.texts() == [*"012", *"000"]
    tried = [call for call in cluster.seen.all if call.text == "0"]
    assert [call.reconsume_times for call in tried] == [0, 1, 2, 3]
    assert [after.begin_ms - before.end_ms for before, after in pairwise(tried)] == [5000] * 3
    await cluster.world.sleep_ms(1000)
    assert cluster.committed() <= 0
    _permit(cluster, server, Permission.READ | Permission.WRITE)
    await cluster.world.until(lambda: len(cluster.seen.all) == 7)
    failing.clear()
    await cluster.all_seen()
    last, again = cluster.seen.all[-2:]
    assert (again.queue.topic, again.reconsume_times, again.begin_ms - last.end_ms) == (RETRY, 1, 10_000)
    await cluster.world.sleep_ms(6_000)
    assert cluster.committed() == 3


def _permit(cluster: Cluster, server: BrokerServer, permission: int) -> None:
    assert server.broker is not None
    config = dataclasses.replace(server.broker.config, broker_permission=int(permission))
    server.broker.change_config(config, cluster.world.now_ms)


# Stuck ------------------------------------------------------------------------------------------------------------


@scenario(INSTANT)
async def test_a_message_stuck_for_15_minutes_comes_again(cluster: Cluster) -> None:
    """The listener does not return. At the second check after 15 minutes the message is sent back, and another call
    handles it 10 s later. The stored offset moves on, and the late result is ignored."""
    await cluster.broker_and_producer(queues=1)
    works_ms = {"0": 40 * MINUTE_MS}
    await cluster.consumer("c1", ordering="none", works_ms=works_ms, **QUIET)
    started_ms = cluster.world.elapsed_ms
    await cluster.at(20_000)
    await cluster.send(3, queue_id=0)
    await cluster.world.until(lambda: len(cluster.seen.all) == 3)
    works_ms.clear()
    await cluster.world.until(lambda: len(cluster.seen.all) == 4, timeout_ms=31 * MINUTE_MS, poll_ms=100)
    assert cluster.seen.texts() == ["0", "1", "2", "0"]
    assert 0 <= cluster.seen.all[3].begin_ms - started_ms - 30 * MINUTE_MS - 10_000 <= 100
    (line,) = cluster.events("message_stuck")
    assert line.fields["offset"] == 0
    await cluster.world.sleep_ms(45 * MINUTE_MS)
    assert len(cluster.seen.all) == 4
