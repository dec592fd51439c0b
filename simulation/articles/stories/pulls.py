"""Stories of long polling: what a pull asks for, what it is answered, and when it is made again."""

from typing import Any, Final

from lockstep.client import ConsumeFromWhere, Message, MessageQueue
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.cluster import BROKER, PRODUCER
from lockstep.simulation.lab.recorded_cluster import RecordedCluster

__all__ = [
    "answers_to_queries",
    "broker_restarts",
    "cache_is_full",
    "commits_along",
    "first_offset_is_gone",
    "holding",
    "illegal_offset",
    "pull_waits",
    "retried_pull",
    "tags_are_filtered",
    "thresholds",
    "unwanted_tags",
]

SMALL: Final[dict[str, Any]] = {"max_message_bytes": 16 * 1024, "memory_limit_bytes": 128 * 1024}
PADDING_BYTES: Final = 4_000  # less than what is compressed
LIMIT: Final = 1_000


async def pull_waits(cluster: RecordedCluster) -> None:
    """A pulls an empty queue. Three messages come, later one more; then nothing for 15 s."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", work_ms=100)
    await cluster.at(4_000)
    await cluster.send(1, queue_id=0)
    await cluster.at(4_050)
    await cluster.send(2, queue_id=0)
    await cluster.at(9_000)
    await cluster.send(1, queue_id=0)
    await cluster.at(26_000)


def commits_along(cluster: RecordedCluster) -> str:
    stored = [line for line in cluster.events("offset stored") if line.fields["queue"].startswith(cluster.topic)]
    by_timer = set(cluster.request_log.times_ms("A", "UPDATE_CONSUMER_OFFSET"))
    [along] = [line for line in stored if line.at_ms not in by_timer and line.at_ms < max(by_timer)]
    return (
        f"The pull of {number(along.at_ms)} ms carried the offset {number(along.fields['offset'])}, which the broker "
        f"stored. At {' and '.join(map(number, sorted(by_timer)))} ms a timer stored the offset with its own request."
    )


def holding(cluster: RecordedCluster) -> str:
    pulls = cluster.request_log.times_ms("A", "PULL_MESSAGE")
    first = cluster.seen.all[0]
    return (
        f"The first message answered the pull that waited, and the listener had it at {number(first.begin_ms)} ms, "
        f"when it was sent. With its retry queue A pulled {len(pulls)} times in {number(cluster.world.elapsed_ms)} ms."
    )


async def cache_is_full(cluster: RecordedCluster) -> None:
    """1 200 messages wait in q0, and the listener takes 20 ms for each. A caches 1 000 and no more."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(1_200, queue_id=0)
    await cluster.at(1_000)
    await cluster.consumer("A", work_ms=20)
    await cluster.at(2_200)


def thresholds(cluster: RecordedCluster) -> str:
    throttled = cluster.events("pull_throttled")
    fields = throttled[0].fields
    pulls = [at for at in cluster.request_log.times_ms("A", "PULL_MESSAGE") if at > throttled[0].at_ms]
    return (
        f"At {number(throttled[0].at_ms)} ms {number(fields['messages'])} messages were cached, more than "
        f"{number(LIMIT)}, and A stopped pulling. The next pull was at {number(pulls[0])} ms."
    )


async def tags_are_filtered(cluster: RecordedCluster) -> None:
    """A subscribes to TagA alone. The queue gets messages of TagA and TagB; then three of TagB."""
    cluster.not_judged = "messages of other tags are handled by nobody here"
    await cluster.broker(queues=1)
    producer = await cluster.producer()
    consumer = await cluster.consumer("A", work_ms=100)
    consumer.subscribe(cluster.topic, "TagA")
    for at_ms, tags in ((5_000, "ABAB"), (8_000, "BBB")):
        await cluster.at(at_ms)
        for tag in tags:
            message = Message(cluster.topic, str(len(cluster.sent)).encode(), tags=f"Tag{tag}")
            await cluster.world.host(PRODUCER).run(producer.send(message, queue=MessageQueue(cluster.topic, BROKER, 0)))
            cluster.sent.append(message.body.decode())
    await cluster.at(26_000)


def unwanted_tags(cluster: RecordedCluster) -> str:
    [(_, consumer)] = cluster.push_consumers()
    handled = " and ".join(repr(call.text) for call in cluster.seen.all)
    offset = max(info.commit_offset for info in consumer.process_queues.values())
    return f"A handled {handled} of {len(cluster.sent)} messages. Its offset of q0 is {offset}: the end of the queue."


async def first_offset_is_gone(cluster: RecordedCluster) -> None:
    """The broker dropped the first messages of q0. A new group begins at 0, which the queue does not have any more."""
    await cluster.broker(queues=1, **SMALL)
    await cluster.producer()
    for _ in range(50):
        await cluster.world.host(PRODUCER).run(cluster.send_one(queue_id=0, padding_bytes=PADDING_BYTES))
    await cluster.at(1_000)
    await cluster.consumer("A", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    await cluster.at(32_000)


def illegal_offset(cluster: RecordedCluster) -> str:
    [illegal] = cluster.events("offset_illegal")
    stored = cluster.events("offset stored", queue=f"{cluster.topic}@{BROKER}:0")[0]
    first = cluster.seen.all[0]
    return (
        f"A pulled q0 from 0 and was told {number(illegal.fields['next_offset'])}. It dropped the queue at "
        f"{number(illegal.at_ms)} ms, stored the broker's offset {number(stored.at_ms - illegal.at_ms)} ms later, and "
        f"handled offset {number(first.offset)} at {number(first.begin_ms)} ms."
    )


def answers_to_queries(cluster: RecordedCluster) -> str:
    [illegal] = cluster.events("offset_illegal")
    asked = cluster.request_log.times_ms("A", "QUERY_CONSUMER_OFFSET")
    stored = [line for line in cluster.events("offset stored") if line.at_ms <= max(asked)]
    return (
        f"The queue had offsets {number(illegal.fields['min_offset'])} to {number(illegal.fields['max_offset'])} left. "
        f"The query at {number(min(asked))} ms was answered QUERY_NOT_FOUND. At {number(max(asked))} ms the answer was "
        f"the offset that had been stored: {number(stored[-1].fields['offset'])}."
    )


async def broker_restarts(cluster: RecordedCluster) -> None:
    """The broker stops while a pull of A waits there, and starts again 5 s later."""
    await cluster.broker(queues=1, data_dir="store")
    await cluster.producer()
    await cluster.consumer("A")
    await cluster.at(5_000)
    await cluster.send(1, queue_id=0)
    await cluster.at(12_000)
    cluster.on_act(BROKER, "stops")
    await cluster.stop_broker()
    await cluster.at(17_000)
    await cluster.broker(queues=1, data_dir="store")
    await cluster.at(24_000)
    await cluster.send(1, queue_id=0)
    await cluster.at(26_000)


def retried_pull(cluster: RecordedCluster) -> str:
    failed = [line.at_ms for line in cluster.events("pull_failed") if "RETRY" not in line.fields["queue"]]
    again = min(at for at in cluster.request_log.times_ms("A", "PULL_MESSAGE") if at > failed[-1])
    last = cluster.seen.all[-1]
    return (
        f"Pulls of q0 failed at {' and '.join(map(number, failed))} ms. The next one reached the broker at "
        f"{number(again)} ms. '{last.text}' was handled at {number(last.begin_ms)} ms."
    )
