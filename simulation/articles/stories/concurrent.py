"""Stories of consumption without order: many calls at once, the offset that waits for the slowest, and retries."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from lockstep.client import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, MessageExt
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.recorded_cluster import RecordedCluster

__all__ = [
    "ack_index",
    "batch_is_half_done",
    "failed_message_comes_back",
    "offset_waits",
    "retry_delays",
    "slow_message_holds_the_offset",
    "span",
    "span_is_full",
]

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
FIRST: Final[dict[str, Any]] = {
    "ordering": "none",
    "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}


async def slow_message_holds_the_offset(cluster: RecordedCluster) -> None:
    """Five messages are handled at once: '1' takes 4 000 ms, the others 100 ms."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", work_ms=100, works_ms={"1": 4_000}, **FIRST)
    await cluster.at(8_000)
    await cluster.send(5, queue_id=0)
    await cluster.at(20_100)


def offset_waits(cluster: RecordedCluster) -> str:
    calls = cluster.seen.all
    slow = max(calls, key=lambda call: call.end_ms - call.begin_ms)
    others_ms = max(call.end_ms for call in calls if call is not slow)
    stored = [line for line in cluster.events("offset stored") if line.fields["queue"].startswith(cluster.topic)]
    values = {line.at_ms: line.fields["offset"] for line in stored}
    shown = ", then ".join(f"{offset} at {number(at_ms)} ms" for at_ms, offset in values.items())
    return (
        f"{len(calls)} calls began at {number(calls[0].begin_ms)} ms; all but '{slow.text}' were done at "
        f"{number(others_ms)} ms, '{slow.text}' at {number(slow.end_ms)} ms. The broker was sent offset {shown}."
    )


def _failing(texts: str, times: int) -> Callable[[MessageExt, ConsumeConcurrentlyContext], ConsumeConcurrentlyStatus]:
    def answer(message: MessageExt, _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        return LATER if message.body.decode() in texts and message.reconsume_times < times else SUCCESS

    return answer


async def failed_message_comes_back(cluster: RecordedCluster) -> None:
    """'1' fails twice: it is sent back, waits at a delay level, and comes again from the group's retry topic."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", answer=_failing("1", 2), **FIRST)
    await cluster.at(2_000)
    await cluster.send(3, queue_id=0)
    await cluster.at(44_000)


def retry_delays(cluster: RecordedCluster) -> str:
    tries = [call for call in cluster.seen.all if call.text == "1"]
    waits = " and ".join(number(later.begin_ms - earlier.end_ms) for earlier, later in pairwise(tries))
    passed = [call.text for call in cluster.seen.all if call.text != "1" and call.begin_ms < tries[1].begin_ms]
    return (
        f"'1' came again after {waits} ms, from %RETRY%tower. {' and '.join(map(repr, passed))} "
        "had been handled meanwhile."
    )


async def batch_is_half_done(cluster: RecordedCluster) -> None:
    """Four messages are one call. The listener answers CONSUME_SUCCESS with ack_index 1: two are done, two failed."""

    def answer(message: MessageExt, context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if message.reconsume_times == 0:
            context.ack_index = 1
        return SUCCESS

    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(4, queue_id=0)
    await cluster.at(1_000)
    await cluster.consumer("A", answer=answer, consume_message_batch_max_size=4, **FIRST)
    await cluster.at(13_000)


def ack_index(cluster: RecordedCluster) -> str:
    first = [call.text for call in cluster.seen.all if call.reconsume_times == 0]
    again = [call for call in cluster.seen.all if call.reconsume_times]
    return (
        f"Handled in one call: {' '.join(first)}. Sent back: {' '.join(sorted(call.text for call in again))}, which "
        f"came again at {number(again[0].begin_ms)} ms."
    )


async def span_is_full(cluster: RecordedCluster) -> None:
    """2 100 messages are there, and '0' takes 3 000 ms. A handles the others, until the span is over 2 000."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.send(2_100, queue_id=0)
    await cluster.at(1_000)
    await cluster.consumer("A", works_ms={"0": 3_000}, **FIRST)
    await cluster.at(4_500)


def span(cluster: RecordedCluster) -> str:
    throttled = [line for line in cluster.events("pull_throttled") if line.fields["over"] == "span"]
    at_ms, fields = throttled[0].at_ms, throttled[0].fields
    slow = max(cluster.seen.all, key=lambda call: call.end_ms)
    return (
        f"At {number(at_ms)} ms A stopped pulling: {number(fields['messages'])} messages were cached, with a span of "
        f"{number(fields['span'])} offsets. '{slow.text}' was done at {number(slow.end_ms)} ms, and in the end "
        f"{number(len(cluster.seen.all))} messages were handled."
    )
