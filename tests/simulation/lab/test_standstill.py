"""How long queues stood still, and which messages were late, from records by hand."""

from typing import Any

from lockstep.client import MessageQueue
from lockstep.order import Record
from lockstep.simulation.lab.standstill import Flow, flow_of

QUEUE = MessageQueue("orders", "broker", 0)
MS = 1_000_000


def sent(number: int, at_ms: int, queue_id: int = 0) -> Record:
    return _record("sent", number, at_ms, queue_id, group="producers")


def call(number: int, begin_ms: int, end_ms: int, queue_id: int = 0, status: str = "SUCCESS") -> Record:
    return _record("handled", number, end_ms, queue_id, begin_mono_ns=begin_ms * MS, status=status)


def _record(event: str, number: int, at_ms: int, queue_id: int, **more: Any) -> Record:
    place = {"topic": "orders", "broker": "broker", "queue_id": queue_id, "offset": number, "msg_id": str(number)}
    return {"event": event, "group": "shop", "mono_ns": at_ms * MS, **place, **more}


def flow(*records: Record, **more: Any) -> Flow:
    return flow_of(records, topic="orders", group="shop", until_ns=100_000 * MS, **more)


def rests(found: Flow) -> dict[int, tuple[float, float]]:
    return {queue.queue_id: (one.begin_ns / MS, one.end_ns / MS) for queue, one in found.longest.items()}


def test_a_queue_stands_still_while_a_message_waits_and_no_call_runs() -> None:
    """Not while there is none; the longest rest counts, of each queue."""
    found = flow(
        sent(0, 10), call(0, 12, 100), sent(1, 20), call(1, 101, 200),
        sent(2, 5000), sent(3, 5100), call(2, 9000, 9100), call(3, 9100, 9200),
        sent(4, 50, queue_id=1), call(4, 60, 70, queue_id=1),
    )  # fmt: skip
    assert rests(found) == {0: (5000, 9000), 1: (50, 60)}
    assert (found.messages, found.late) == (5, 2)


def test_calls_that_fail_are_no_progress() -> None:
    """A key that fails holds its queue up."""
    failed = [
        call(0, 100 + 1000 * number, 120 + 1000 * number, status="SUSPEND_CURRENT_QUEUE_A_MOMENT")
        for number in range(9)
    ]
    found = flow(sent(0, 90), sent(1, 95), *failed, call(0, 9100, 9120), call(1, 9120, 9140))
    assert rests(found) == {0: (90, 9100)}
    assert found.late == 2


def test_what_is_never_handled_waits_until_the_end() -> None:
    """Or until a restart emptied the store."""
    assert rests(flow(sent(0, 90)))[0] == (90, 100_000)
    assert rests(flow(sent(0, 90), emptied_ns={"broker": [50 * MS, 500 * MS]}))[0] == (90, 500)


def test_a_message_behind_many_is_not_late() -> None:
    """In a calm run it would have waited for them, too. A repeat, and a send without an answer, change nothing."""
    burst = [sent(number, 10) for number in range(1, 10)]
    calls = [call(number, 10 + 500 * number, 510 + 500 * number) for number in range(10)]
    found = flow(*burst, *calls, call(3, 7000, 7500))
    assert (found.messages, found.late) == (10, 0)
    assert rests(found) == {0: (10, 10)}
