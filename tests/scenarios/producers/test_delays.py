"""Delayed messages and retries on virtual time: they are delivered when they are due (wire.md 10)."""

from lockstep.client import Message, MessageQueue, Producer
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from tests.scenarios.cluster import BROKER, GROUP, PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

LEVEL_MS = {1: 1000, 3: 10_000, 5: 60_000, 18: 7_200_000}
RETRY_WAITS_MS = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


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
async def test_retries_wait_longer_each_time_and_end_in_the_dead_letters(cluster: Cluster) -> None:
    """A message that is sent back sixteen times comes again after 10 s, 30 s ... 2 h; then it becomes a dead letter."""
    retry, dead = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(1, queue_id=0)

    async def send_back(offset: int) -> None:
        header = SendMessageBackRequestHeader(offset, GROUP, 0)
        await cluster.call("other", RequestCode.CONSUMER_SEND_MSG_BACK, header)

    message = cluster.stored()[0]
    for times, wait_s in enumerate(RETRY_WAITS_MS, start=1):
        began_ms = cluster.world.now_ms
        await send_back(message.commit_log_offset)
        await cluster.world.sleep_ms(wait_s * 1000)
        assert len(cluster.stored(topic=retry)) == times
        message = cluster.stored(topic=retry)[-1]
        assert message.store_timestamp - began_ms == wait_s * 1000
        assert (message.body, message.reconsume_times) == (b"0", times)
    assert cluster.stored(topic=dead) == []
    await send_back(message.commit_log_offset)
    (letter,) = cluster.stored(topic=dead)
    assert (letter.body, letter.reconsume_times) == (b"0", 17)
    await cluster.end(judge=False)  # nobody consumes here
