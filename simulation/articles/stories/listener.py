"""Stories of an orderly listener: what its answers do to the queue, the messages taken, and the offset."""

from itertools import pairwise
from typing import Final

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.calls import Answer
from lockstep.simulation.lab.recorded_cluster import GROUP, RecordedCluster

__all__ = [
    "by_hand",
    "dead_letter",
    "endless_message_is_given_up",
    "exception_suspends",
    "manual_commit",
    "message_suspends",
    "pauses",
    "taken_and_committed",
    "waits_after_exceptions",
]

COMMIT, ROLLBACK = ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK
SUCCESS, SUSPEND = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
LATE_MS: Final = 2_000  # messages come when the consumer has settled
WORK_MS: Final = 100


async def message_suspends(cluster: RecordedCluster) -> None:
    """An order is created, paid, shipped and received in q0; the payment fails twice. Another order is in q1."""
    failures = ["paid"] * 2

    def answer(message: MessageExt, _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        if failures and message.queue_id == 0 and message.queue_offset == 1:
            failures.pop()
            return SUSPEND
        return None

    await cluster.broker(queues=2)
    await cluster.producer()
    await cluster.consumer("A", work_ms=WORK_MS, answer=answer)
    await cluster.at(LATE_MS)
    for _ in range(4):
        await cluster.send(1, queue_id=0)
    for _ in range(4):
        await cluster.send(1, queue_id=1)
    await cluster.at(LATE_MS + 2_700)


def pauses(cluster: RecordedCluster) -> str:
    calls = cluster.seen.of(queue_id=0)
    again = [call for call in calls if call.offset == 1]
    waited = ", ".join(number(later.begin_ms - earlier.end_ms) for earlier, later in pairwise(again))
    other = cluster.seen.of(queue_id=1)[-1]
    return (
        f"'1' came again after {waited} ms, and then {' and '.join(repr(call.text) for call in calls[-2:])}. "
        f"The other order was done at {number(other.end_ms)} ms, while q0 waited."
    )


async def exception_suspends(cluster: RecordedCluster) -> None:
    """The listener raises an exception, then answers SUSPEND with a time of its own, 5 000 ms, then SUCCESS."""

    def answer(message: MessageExt, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        if message.body == b"1":
            return None
        if message.reconsume_times == 0:
            raise ValueError("no such runway")
        if message.reconsume_times == 1:
            context.suspend_current_queue_time_ms = 5_000
            return SUSPEND
        return None

    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", work_ms=WORK_MS, answer=answer)
    await cluster.at(LATE_MS)
    await cluster.send(2, queue_id=0)
    await cluster.at(LATE_MS + 6_350)


def waits_after_exceptions(cluster: RecordedCluster) -> str:
    first, second, third, last = cluster.seen.all
    return (
        f"After the exception '{first.text}' came again {number(second.begin_ms - first.end_ms)} ms later, after "
        f"SUSPEND {number(third.begin_ms - second.end_ms)} ms later. '{last.text}' waited behind it."
    )


def by_hand(script: dict[str, ConsumeOrderlyStatus]) -> Answer:
    """Manual commit: the scripted answers, a rollback only once, else SUCCESS, which only goes on."""
    rolled_back: list[str] = []

    def answer(message: MessageExt, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.auto_commit = False
        text = message.body.decode()
        status = script.get(text, SUCCESS)
        if status is ROLLBACK:
            status = SUCCESS if text in rolled_back else ROLLBACK
            rolled_back.append(text)
        return status

    return answer


async def manual_commit(cluster: RecordedCluster) -> None:
    """The listener commits by itself: COMMIT at '1', ROLLBACK at '4' the first time, COMMIT at '6', else SUCCESS."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", work_ms=WORK_MS, answer=by_hand({"1": COMMIT, "4": ROLLBACK, "6": COMMIT}))
    await cluster.at(LATE_MS)
    await cluster.send(7, queue_id=0)
    await cluster.at(20_100)


def taken_and_committed(cluster: RecordedCluster) -> str:
    texts = " ".join(cluster.seen.texts())
    rolled_back = cluster.seen.all[4]
    again = cluster.seen.all[5]
    return (
        f"Messages were handled as {texts}: ROLLBACK at '{rolled_back.text}' put back all since the COMMIT, and "
        f"they came again {number(again.begin_ms - rolled_back.end_ms)} ms later. "
        f"The broker has offset {cluster.committed()}."
    )


async def endless_message_is_given_up(cluster: RecordedCluster) -> None:
    """'2' never succeeds, and the consumer has max_reconsume_times = 2: it becomes a dead letter, and '3' goes on."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer(
        "A", work_ms=WORK_MS, max_reconsume_times=2, answer=lambda message, _: SUSPEND if message.body == b"2" else None
    )
    await cluster.at(LATE_MS)
    await cluster.send(5, queue_id=0)
    await cluster.at(70_000)


def dead_letter(cluster: RecordedCluster) -> str:
    [letter] = cluster.stored(topic=f"%DLQ%{GROUP}")
    tries = [call for call in cluster.seen.all if call.text == letter.body.decode()]
    stored_ms = letter.store_timestamp - cluster.world.options.epoch_ms
    return (
        f"'{tries[0].text}' was tried {len(tries)} times and given up at {number(tries[-1].end_ms)} ms. It "
        f"was in {letter.topic} at {number(stored_ms)} ms: the broker keeps the delay of its retries."
    )
