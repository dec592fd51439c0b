"""Stories of offsets: where a queue begins, when offsets are stored, and pull consumers, which keep them by hand."""

from lockstep.client import ConsumeFromWhere, MessageQueue, PullConsumer
from lockstep.client.pull_config import PullConsumerConfig
from lockstep.simulation.articles.stage import Stage
from lockstep.simulation.articles.told import number
from lockstep.simulation.lab.cluster import BROKER

__all__ = [
    "application_pulls",
    "beginnings",
    "by_hand",
    "killed_before_the_timer",
    "queue_begins",
    "repeats",
]


async def queue_begins(stage: Stage) -> None:
    """A new group asks for LAST_OFFSET, though five messages are there. It handles some, leaves, and comes back."""
    await stage.broker(queues=1)
    await stage.producer()
    await stage.send(5, queue_id=0)
    await stage.at(1_000)
    await stage.consumer("A", work_ms=200, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    await stage.at(1_500)
    await stage.leave("A")
    await stage.at(5_000)
    await stage.consumer("A", work_ms=200, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    await stage.at(6_000)


def beginnings(stage: Stage) -> str:
    first, again = stage.seen.of(since_ms=1_000)[0], stage.seen.of(since_ms=5_000)[0]
    return (
        f"The young queue was begun at offset {first.offset}, not at its end: the broker answered 0. "
        f"A stored offset wins over the setting: the second time the queue was begun at {again.offset}."
    )


async def killed_before_the_timer(stage: Stage) -> None:
    """A handles a message each 500 ms and stores its offset each 10 s. It is killed in between, and B goes on."""
    await stage.broker(queues=1)
    await stage.producer()
    await stage.consumer("A", work_ms=500)
    await stage.at(1_000)
    await stage.send(60, queue_id=0)
    await stage.at(18_000)
    stage.crash("A")
    await stage.consumer("B", work_ms=10)
    await stage.at(79_500)


def repeats(stage: Stage) -> str:
    done = [call for call in stage.seen.of("A") if call.end_ms >= 0]
    of_b = stage.seen.of("B")
    again = sum(call.offset <= done[-1].offset for call in of_b)
    return (
        f"A had finished offset {done[-1].offset} and the broker had offset {of_b[0].offset}: B began there at "
        f"{number(of_b[0].begin_ms)} ms and handled {again} finished messages again."
    )


async def application_pulls(stage: Stage) -> None:
    """An application pulls q0 by itself, two messages at most, then the rest, and then a third time."""
    await stage.broker(queues=1)
    await stage.producer()
    await stage.send(5, queue_id=0)
    stage.not_judged = "a pull consumer calls no listener"
    queue = MessageQueue(stage.topic, BROKER, 0)
    stage.on_act("A", "starts as a pull consumer: its application asks for each queue")
    consumer = await stage.start_client(
        "A",
        lambda runtime, log: PullConsumer(
            stage.consumer_group,
            name_server=stage.name_server,
            config=PullConsumerConfig(serialize_type=stage.serialize_type),
            runtime=runtime,
            log=log,
        ),
    )
    runtime = stage.world.host("A")
    offset = 0
    for count in (2, 32, 32):
        await stage.world.sleep_ms(1_000)
        result = await runtime.run(consumer.pull(queue, "*", offset, count))
        offset = result.next_begin_offset
        consumer.update_consume_offset(queue, offset)
    await stage.at(12_000)


def by_hand(stage: Stage) -> str:
    pulls = stage.heard.times_ms("A", "PULL_MESSAGE")
    return (
        f"The application pulled at {', '.join(map(number, pulls))} ms, each time from the offset that it kept. The "
        f"broker has offset {stage.committed()} of q0."
    )
