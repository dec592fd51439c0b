"""Stories of long polling: what a pull asks for, what it is answered, and when it is made again."""

from typing import Any, Final

from lockstep.client import ConsumeFromWhere, Message, MessageQueue
from lockstep.simulation.articles.stage import Stage
from lockstep.simulation.articles.told import number
from lockstep.simulation.lab.cluster import BROKER, PRODUCER

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


async def pull_waits(stage: Stage) -> None:
    """A pulls an empty queue. Three messages come, later one more; then nothing for 15 s."""
    await stage.broker(queues=1)
    await stage.producer()
    await stage.consumer("A", work_ms=100)
    await stage.at(4_000)
    await stage.send(1, queue_id=0)
    await stage.at(4_050)
    await stage.send(2, queue_id=0)
    await stage.at(9_000)
    await stage.send(1, queue_id=0)
    await stage.at(26_000)


def commits_along(stage: Stage) -> str:
    stored = [line for line in stage.events("offset stored") if line.fields["queue"].startswith(stage.topic)]
    by_timer = set(stage.heard.times_ms("A", "UPDATE_CONSUMER_OFFSET"))
    [along] = [line for line in stored if line.at_ms not in by_timer and line.at_ms < max(by_timer)]
    return (
        f"The pull of {number(along.at_ms)} ms carried the offset {number(along.fields['offset'])}, which the broker "
        f"stored. At {' and '.join(map(number, sorted(by_timer)))} ms a timer stored the offset with its own request."
    )


def holding(stage: Stage) -> str:
    pulls = stage.heard.times_ms("A", "PULL_MESSAGE")
    first = stage.seen.all[0]
    return (
        f"The first message answered the pull that waited, and the listener had it at {number(first.begin_ms)} ms, "
        f"when it was sent. With its retry queue A pulled {len(pulls)} times in {number(stage.world.elapsed_ms)} ms."
    )


async def cache_is_full(stage: Stage) -> None:
    """1 200 messages wait in q0, and the listener takes 20 ms for each. A caches 1 000 and no more."""
    await stage.broker(queues=1)
    await stage.producer()
    await stage.send(1_200, queue_id=0)
    await stage.at(1_000)
    await stage.consumer("A", work_ms=20)
    await stage.at(2_200)


def thresholds(stage: Stage) -> str:
    throttled = stage.events("pull_throttled")
    fields = throttled[0].fields
    pulls = [at for at in stage.heard.times_ms("A", "PULL_MESSAGE") if at > throttled[0].at_ms]
    return (
        f"At {number(throttled[0].at_ms)} ms {number(fields['messages'])} messages were cached, more than "
        f"{number(LIMIT)}, and A stopped pulling. The next pull was at {number(pulls[0])} ms."
    )


async def tags_are_filtered(stage: Stage) -> None:
    """A subscribes to TagA alone. The queue gets messages of TagA and TagB; then three of TagB."""
    stage.not_judged = "messages of other tags are handled by nobody here"
    await stage.broker(queues=1)
    producer = await stage.producer()
    consumer = await stage.consumer("A", work_ms=100)
    consumer.subscribe(stage.topic, "TagA")
    for at_ms, tags in ((5_000, "ABAB"), (8_000, "BBB")):
        await stage.at(at_ms)
        for tag in tags:
            message = Message(stage.topic, str(len(stage.sent)).encode(), tags=f"Tag{tag}")
            await stage.world.host(PRODUCER).run(producer.send(message, queue=MessageQueue(stage.topic, BROKER, 0)))
            stage.sent.append(message.body.decode())
    await stage.at(26_000)


def unwanted_tags(stage: Stage) -> str:
    [(_, consumer)] = stage.push_consumers()
    handled = " and ".join(repr(call.text) for call in stage.seen.all)
    offset = max(info.commit_offset for info in consumer.process_queues.values())
    return f"A handled {handled} of {len(stage.sent)} messages. Its offset of q0 is {offset}: the end of the queue."


async def first_offset_is_gone(stage: Stage) -> None:
    """The broker dropped the first messages of q0. A new group begins at 0, which the queue does not have any more."""
    await stage.broker(queues=1, **SMALL)
    await stage.producer()
    for _ in range(50):
        await stage.world.host(PRODUCER).run(stage.send_one(queue_id=0, padding_bytes=PADDING_BYTES))
    await stage.at(1_000)
    await stage.consumer("A", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    await stage.at(32_000)


def illegal_offset(stage: Stage) -> str:
    [illegal] = stage.events("offset_illegal")
    stored = stage.events("offset stored", queue=f"{stage.topic}@{BROKER}:0")[0]
    first = stage.seen.all[0]
    return (
        f"A pulled q0 from 0 and was told {number(illegal.fields['next_offset'])}. It dropped the queue at "
        f"{number(illegal.at_ms)} ms, stored the broker's offset {number(stored.at_ms - illegal.at_ms)} ms later, and "
        f"handled offset {number(first.offset)} at {number(first.begin_ms)} ms."
    )


def answers_to_queries(stage: Stage) -> str:
    [illegal] = stage.events("offset_illegal")
    asked = stage.heard.times_ms("A", "QUERY_CONSUMER_OFFSET")
    stored = [line for line in stage.events("offset stored") if line.at_ms <= max(asked)]
    return (
        f"The queue had offsets {number(illegal.fields['min_offset'])} to {number(illegal.fields['max_offset'])} left. "
        f"The query at {number(min(asked))} ms was answered QUERY_NOT_FOUND. At {number(max(asked))} ms the answer was "
        f"the offset that had been stored: {number(stored[-1].fields['offset'])}."
    )


async def broker_restarts(stage: Stage) -> None:
    """The broker stops while a pull of A waits there, and starts again 5 s later."""
    await stage.broker(queues=1, data_dir="store")
    await stage.producer()
    await stage.consumer("A")
    await stage.at(5_000)
    await stage.send(1, queue_id=0)
    await stage.at(12_000)
    stage.on_act(BROKER, "stops")
    await stage.stop_broker()
    await stage.at(17_000)
    await stage.broker(queues=1, data_dir="store")
    await stage.at(24_000)
    await stage.send(1, queue_id=0)
    await stage.at(26_000)


def retried_pull(stage: Stage) -> str:
    failed = [line.at_ms for line in stage.events("pull_failed") if "RETRY" not in line.fields["queue"]]
    again = min(at for at in stage.heard.times_ms("A", "PULL_MESSAGE") if at > failed[-1])
    last = stage.seen.all[-1]
    return (
        f"Pulls of q0 failed at {' and '.join(map(number, failed))} ms. The next one reached the broker at "
        f"{number(again)} ms. '{last.text}' was handled at {number(last.begin_ms)} ms."
    )
