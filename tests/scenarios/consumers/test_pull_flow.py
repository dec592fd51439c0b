"""An application suspends the pulls of a consumer, and asks how many messages wait on the broker."""

from lockstep.client import ConsumeFromWhere
from tests.scenarios.cluster import Cluster
from tests.scenarios.scenario import INSTANT, scenario

SUSPEND_MS = 1000


@scenario(INSTANT)
async def test_a_suspended_consumer_pulls_nothing(cluster: Cluster) -> None:
    """Messages that are sent meanwhile stay on the broker; after resume the consumer gets them within a second."""
    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1")
    await cluster.send(3, queue_id=0)
    await cluster.all_seen()
    consumer.suspend()
    await cluster.at(40_000)  # the pull that was held at the broker is over
    await cluster.send(3, queue_id=0)
    await cluster.at(60_000)
    assert len(cluster.seen.all) == 3
    consumer.resume()
    await cluster.at(60_000 + SUSPEND_MS + 1)
    assert len(cluster.seen.all) == 6


@scenario()
async def test_what_lies_behind_all_queues(cluster: Cluster) -> None:
    """The last pull of each queue knows how many messages are left; the application is told the sum."""
    await cluster.broker_and_producer(queues=2)
    await cluster.send(100, queue_id=0)
    await cluster.send(70, queue_id=1)
    consumer = await cluster.consumer(
        "c1", work_ms=1000, pull_threshold_for_queue=1, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    await cluster.world.until(lambda: len(cluster.seen.all) >= 2)
    assert consumer.message_accumulation == (100 - 31) + (70 - 31)
    await cluster.all_seen(timeout_ms=300_000)
