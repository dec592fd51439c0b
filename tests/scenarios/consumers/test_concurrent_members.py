"""Members of a group without order join, leave and die, and share no state (wire.md 12.8, 12.3)."""

from typing import Any

from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    MessageExt,
)
from lockstep.order import Cause
from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import scenario

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
FIRST: dict[str, Any] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}


@scenario()
async def test_a_leaving_consumer_waits_for_running_listeners(cluster: Cluster) -> None:
    """Running calls end and their offsets are stored; the next member handles messages that waited for a thread,
    once."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="none", work_ms=3000, consume_thread_count=4, **FIRST)
    await cluster.send(10, queue_id=0)
    await cluster.world.until(lambda: len(cluster.seen.all) == 4)
    began_ms = cluster.world.elapsed_ms
    await cluster.leave("c1")
    assert 2900 <= cluster.world.elapsed_ms - began_ms <= 3100
    assert cluster.committed() == 4
    await cluster.consumer("c2", ordering="none", **FIRST)
    await cluster.all_seen()
    assert (cluster.seen.texts("c1"), cluster.seen.texts("c2")) == (list("0123"), list("456789"))


@scenario()
async def test_a_stuck_listener_does_not_keep_its_consumer(cluster: Cluster) -> None:
    """After 5 s the consumer leaves without waiting any longer. The next member handles the message again, and the late
    result is ignored."""
    cluster.expected.duplicates = {Cause.TAKEOVER}  # though its end comes after the other member's call
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", ordering="none", works_ms={"0": 20_000}, **FIRST)
    await cluster.send(3, queue_id=0)
    await cluster.world.until(lambda: len(cluster.seen.all) == 3)
    began_ms = cluster.world.elapsed_ms
    await cluster.leave("c1")
    assert 5000 <= cluster.world.elapsed_ms - began_ms <= 5100
    assert len(cluster.events("listener_stuck")) == 1
    assert cluster.committed() == 0
    await cluster.consumer("c2", ordering="none", **FIRST)
    await cluster.world.until(lambda: sorted(cluster.seen.texts("c2")) == list("012"))
    await cluster.world.sleep_ms(30_000)
    assert cluster.committed() == 3


@scenario()
async def test_a_killed_consumer_loses_no_message(cluster: Cluster) -> None:
    """Messages that were being handled, and handled messages above the offset of a slow one, are handled again."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", ordering="none", work_ms=20, works_ms={"3": 60_000}, **FIRST)
    await cluster.send(100)
    await cluster.world.until(lambda: len(cluster.seen.all) > 60)
    cluster.crash("c1")
    await cluster.consumer("c2", ordering="none", work_ms=20, **FIRST)
    await cluster.all_seen()
    assert set(cluster.seen.texts("c2")) >= {"3"}
    await cluster.world.sleep_ms(16_000)
    assert cluster.committed(0) + cluster.committed(1) == 100


@scenario()
async def test_what_a_queue_was_taken_from_answers_counts_for_nothing(cluster: Cluster) -> None:
    """A rebalance does not wait for running listeners: the next owner handles the same messages at the same time.
    RocketMQ does so too; orderly consumers have locks to prevent it."""
    cluster.expected.duplicates = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", ordering="none", work_ms=5000)
    await cluster.at(12_000)
    await cluster.send(2, keys=1, queue_id=1)
    await cluster.world.until(lambda: len(cluster.seen.all) == 2)
    await cluster.consumer("c2", ordering="none")
    await cluster.all_seen()
    await cluster.world.until(lambda: len(cluster.seen.of("c2")) == 2)
    assert cluster.events("listener_result_ignored", host="c1") == []
    await cluster.world.sleep_ms(6_000)
    assert len(cluster.events("listener_result_ignored", host="c1")) == 2
    await cluster.world.sleep_ms(10_000)
    assert cluster.committed(1) == 2


def fails_once(message: MessageExt, _: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return SUCCESS if message.reconsume_times else LATER


@scenario()
async def test_a_dead_brokers_message_comes_again_from_another_broker(cluster: Cluster) -> None:
    """The broker of the message does not answer: the client sends a copy to the retry topic on the other broker."""
    cluster.expected.duplicates = {Cause.PRODUCER_RETRY}
    await cluster.start_name_server("names")
    await cluster.broker(queues=1)
    await cluster.broker("other", queues=1)
    await cluster.at(2_000)  # the name server knows both
    await cluster.producer()
    await cluster.consumer("c1", ordering="none", work_ms=2000, answer=fails_once)
    await cluster.at(40_000)  # and the client knows the retry topic of both
    await cluster.send(1, queue_id=0)
    await cluster.world.until(lambda: cluster.seen.all)
    cluster.crash(BROKER, silently=True)
    await cluster.all_seen(timeout_ms=300_000)
    first, again = cluster.seen.all
    assert (again.reconsume_times, again.queue.broker_name, again.msg_id) == (1, "other", first.msg_id)
    assert again.begin_ms - first.end_ms >= 10_000
    await cluster.broker(queues=1)
    await cluster.end(judge=False)  # the message's history ended with its broker's
