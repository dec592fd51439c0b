"""Stories of offsets: where a queue begins, when offsets are stored, and pull consumers, which keep them by hand."""

from lockstep.client import ConsumeFromWhere, MessageQueue, PullConsumer
from lockstep.client.pull_config import PullConsumerConfig
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.recorded_cluster import RecordedCluster

__all__ = [
    "application_pulls",
    "beginnings",
    "by_hand",
    "killed_before_the_timer",
    "queue_begins",
    "repeats",
]


async def queue_begins(cluster: RecordedCluster) -> None:
    """A new group asks for LAST_OFFSET, though five messages are there. It handles some, leaves, and comes back."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(5, queue_id=0)
    await cluster.at(1_000)
    await cluster.consumer("A", work_ms=200, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    await cluster.at(1_500)
    await cluster.leave("A")
    await cluster.at(5_000)
    await cluster.consumer("A", work_ms=200, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    await cluster.at(6_000)


def beginnings(cluster: RecordedCluster) -> str:
    first, again = cluster.seen.of(since_ms=1_000)[0], cluster.seen.of(since_ms=5_000)[0]
    return (
        f"The young queue was begun at offset {first.offset}, not at its end: the broker answered 0. "
        f"A stored offset wins over the setting: the second time the queue was begun at {again.offset}."
    )


async def killed_before_the_timer(cluster: RecordedCluster) -> None:
    """A handles a message each 500 ms and stores its offset each 10 s. It is killed in between, and B goes on."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", work_ms=500)
    await cluster.at(1_000)
    await cluster.send(60, queue_id=0)
    await cluster.at(18_000)
    cluster.crash("A")
    await cluster.consumer("B", work_ms=10)
    await cluster.at(79_500)


def repeats(cluster: RecordedCluster) -> str:
    done = [call for call in cluster.seen.of("A") if call.end_ms >= 0]
    of_b = cluster.seen.of("B")
    again = sum(call.offset <= done[-1].offset for call in of_b)
    return (
        f"A had finished offset {done[-1].offset} and the broker had offset {of_b[0].offset}: B began there at "
        f"{number(of_b[0].begin_ms)} ms and handled {again} finished messages again."
    )


async def application_pulls(cluster: RecordedCluster) -> None:
    """An application pulls q0 by itself, two messages at most, then the rest, and then a third time."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(5, queue_id=0)
    cluster.not_judged = "a pull consumer calls no listener"
    queue = MessageQueue(cluster.topic, BROKER, 0)
    cluster.on_act("A", "starts as a pull consumer: its application asks for each queue")
    consumer = await cluster.start_client(
        "A",
        lambda runtime, log: PullConsumer(
            cluster.consumer_group,
            name_server=cluster.name_server,
            config=PullConsumerConfig(serialize_type=cluster.serialize_type),
            runtime=runtime,
            log=log,
        ),
    )
    runtime = cluster.world.host("A")
    offset = 0
    for count in (2, 32, 32):
        await cluster.world.sleep_ms(1_000)
        result = await runtime.run(consumer.pull(queue, "*", offset, count))
        offset = result.next_begin_offset
        consumer.update_consume_offset(queue, offset)
    await cluster.at(12_000)


def by_hand(cluster: RecordedCluster) -> str:
    pulls = cluster.request_log.times_ms("A", "PULL_MESSAGE")
    return (
        f"The application pulled at {', '.join(map(number, pulls))} ms, each time from the offset that it kept. The "
        f"broker has offset {cluster.committed()} of q0."
    )
