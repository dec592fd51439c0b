"""Delayed messages and retries on virtual time: they are delivered when they are due (wire.md 10)."""

import pytest

from lockstep.client import Message, MessageQueue, Producer
from lockstep.remoting.errors import RequestRefused
from tests.scenarios.cluster import BROKER, PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

LEVEL_MS = {1: 1000, 3: 10_000, 5: 60_000, 18: 7_200_000}


async def send_delayed(cluster: Cluster, producer: Producer, text: str, level: int) -> int:
    """Returns when it was sent."""
    message = Message(TOPIC, text.encode(), delay_level=level)
    await cluster.world.host(PRODUCER).run(producer.send(message, queue=MessageQueue(TOPIC, BROKER, 0)))
    return cluster.world.elapsed_ms


@scenario(INSTANT)
async def test_delayed_messages_come_when_they_are_due(cluster: Cluster) -> None:
    """Each message is delivered to the millisecond and wakes a waiting pull; a later message with a shorter delay comes
    first."""
    await cluster.broker(queues=1)
    producer = await cluster.producer()
    await cluster.consumer("c1")
    await cluster.at(20_000)
    sent_ms = {text: await send_delayed(cluster, producer, text, int(text)) for text in ("18", "5", "3", "1")}
    await cluster.world.until(lambda: len(cluster.seen.all) == 4, timeout_ms=7_300_000, poll_ms=1000)
    assert cluster.seen.texts() == ["1", "3", "5", "18"]
    waited_ms = {call.text: call.begin_ms - sent_ms[call.text] for call in cluster.seen.all}
    assert waited_ms == {str(level): delay_ms for level, delay_ms in LEVEL_MS.items()}


@scenario(INSTANT)
async def test_what_is_not_delayed_does_not_wait(cluster: Cluster) -> None:
    """A delayed message is stored behind all messages that were sent to its queue during the delay."""
    await cluster.broker(queues=1)
    producer = await cluster.producer()
    await send_delayed(cluster, producer, "late", 3)
    await cluster.consumer("c1")
    await cluster.send(5, queue_id=0)
    await cluster.all_seen()
    await cluster.world.until(lambda: "late" in cluster.seen.texts())
    assert cluster.seen.texts() == [*"01234", "late"]


@scenario(INSTANT)
async def test_messages_for_a_time_come_then(cluster: Cluster) -> None:
    """To the millisecond, after any delay or at any time, in the order of their times."""
    await cluster.broker(queues=1)
    producer, host = await cluster.own_producer(PRODUCER, "timers"), cluster.world.host(PRODUCER)
    await cluster.consumer("c1")
    await cluster.at(20_000)
    began_ms, queue = cluster.world.elapsed_ms, MessageQueue(TOPIC, BROKER, 0)
    late_ms = 3 * 3_600_000
    at_ms = host.now_ms() + 1234
    for message in (
        Message(TOPIC, b"late", delay_ms=late_ms),
        Message(TOPIC, b"soon", delay_ms=777),
        Message(TOPIC, b"then", deliver_at_ms=at_ms),
    ):
        await host.run(producer.send(message, queue=queue))
    await cluster.world.until(lambda: len(cluster.seen.all) == 3, timeout_ms=late_ms + 10_000, poll_ms=60_000)
    came_ms = {call.text: call.begin_ms - began_ms for call in cluster.seen.all}
    assert came_ms == {"soon": 777, "then": 1234, "late": late_ms}
    assert cluster.seen.texts() == ["soon", "then", "late"]


@scenario(INSTANT)
async def test_a_message_is_recalled_until_its_time(cluster: Cluster) -> None:
    """After that the broker refuses."""
    await cluster.broker(queues=1)
    producer, host = await cluster.own_producer(PRODUCER, "recalls"), cluster.world.host(PRODUCER)
    await cluster.consumer("c1")
    await cluster.at(20_000)
    sent = [await host.run(producer.send(Message(TOPIC, text, delay_ms=5000))) for text in (b"recalled", b"kept")]
    assert sent[0].recall_handle is not None
    assert sent[1].recall_handle is not None
    assert await host.run(producer.recall(sent[0].recall_handle)) == sent[0].msg_id
    await cluster.world.until(lambda: cluster.seen.all, timeout_ms=10_000)
    await cluster.at(40_000)
    assert cluster.seen.texts() == ["kept"]
    with pytest.raises(RequestRefused, match="timestamp invalid"):
        await host.run(producer.recall(sent[1].recall_handle))
