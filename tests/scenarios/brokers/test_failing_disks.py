"""A sync of the broker's disk fails: the producer reports an unknown outcome (docs/store.md)."""

import errno

import pytest

from lockstep.client import Message, MessageQueue, SendError, SendOutcome
from lockstep.protocol.codes import ResponseCode
from tests.scenarios.cluster import BROKER, PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario


@scenario(INSTANT)
async def test_a_send_that_may_not_be_on_the_disk_has_an_unknown_outcome(cluster: Cluster) -> None:
    """This holds for ordered sends and for others. The message is in the log, and consumers read it when the disk works
    again."""
    await cluster.broker(queues=1, data_dir="store", flush_sync=True)
    producer = await cluster.producer(retry_times=0)
    disk, host = cluster.world.disk(BROKER), cluster.world.host(PRODUCER)
    queue = MessageQueue(TOPIC, BROKER, 0)
    await host.run(producer.send(Message(TOPIC, b"first"), queue=queue))
    for text in ("ordered", "any"):
        disk.fail("sync", errno.EIO, path="commitlog", times=1)
        with pytest.raises(SendError) as raised:
            await host.run(producer.send(Message(TOPIC, text.encode()), queue=queue if text == "ordered" else None))
        assert (raised.value.outcome, raised.value.code) == (SendOutcome.UNKNOWN, ResponseCode.FLUSH_DISK_TIMEOUT)
        await cluster.world.sleep_ms(2000)
    await host.run(producer.send(Message(TOPIC, b"last"), queue=queue))
    assert [message.body for message in cluster.stored(0)] == [b"first", b"ordered", b"any", b"last"]
    failed = [record["outcome"] for record in cluster.records(PRODUCER) if record["event"] == "send_failed"]
    assert failed == ["unknown", "unknown"]
    await cluster.end(judge=False)  # nobody consumes here


@scenario(INSTANT, also_fenced=True)
async def test_messages_that_a_cut_log_still_has_are_handled(cluster: Cluster) -> None:
    """A consumer has cached messages, and the broker loses the last of them with its power. The consumer's position is
    beyond the end then. It begins at the first message that it has not handled, not at the end, as RocketMQ does."""
    await cluster.broker(queues=1, data_dir="store")
    await cluster.producer(send_together_max=1)
    await cluster.consumer("c1", work_ms=8_000)
    await cluster.send(4)
    await cluster.world.sleep_ms(5_000)
    cluster.world.disk(BROKER).sync_ms = 60_000  # what comes now is not on the disk
    await cluster.send(3)
    await cluster.world.sleep_ms(100)
    cluster.power_cut()
    cluster.world.disk(BROKER).sync_ms = 0
    await cluster.world.sleep_ms(1_000)
    await cluster.broker(queues=1, data_dir="store")
    assert len(cluster.stored(0)) < 7
    await cluster.world.until(lambda: cluster.events("log_went_back", host="c1"))
    kept = {message.body.decode() for message in cluster.stored(0)}
    assert len(kept) >= 4
    await cluster.world.until(lambda: kept <= {call.text for call in cluster.seen.all if call.good}, timeout_ms=200_000)
    await cluster.end(judge=False)
