"""Delayed messages and retries on virtual time: they are delivered when they are due (wire.md 10)."""

from lockstep.client import Message, MessageQueue, Producer
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
