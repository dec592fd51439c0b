"""Trace records: exactly these fields, in the file before the call returns."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import Message, ProducerConfig, SendOutcome, SendResult
from lockstep.client.producer.outgoing import Outgoing
from lockstep.client.producer.request import SendRequests
from lockstep.client.producer.send_trace import SendTrace
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.messages.ids import UniqueKeyMaker
from lockstep.remoting.host.clocks import this_clock
from tests.client.messages import message_at
from tests.client.stage import queue_at
from tests.remoting.helpers import SteppedRuntime

CLIENT = "10.0.0.5@77#123"
WALL_MS = 1_700_000_000_000
QUEUE = {"topic": "Aircraft", "broker": "broker-a", "queue_id": 3}


class Tracing:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.runtime = SteppedRuntime()
        self.writer = TraceWriter(self.runtime, str(path), CLIENT, "tower")
        keys = UniqueKeyMaker(bytes(4), 1, 1)
        self.requests = SendRequests("tower", ProducerConfig(), CLIENT, keys, self.runtime)

    def records(self) -> list[dict[str, Any]]:
        """What is in the file, each with its monotonic time checked and taken out."""
        records = [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]
        for record in records:
            assert type(record.pop("mono_ns")) is int
        return records

    def outgoing(self, key: str | None) -> Outgoing:
        return self.requests.outgoing(Message("Aircraft", b"x"), key)


@pytest.fixture
async def tracing(tmp_path: Path) -> AsyncIterator[Tracing]:
    tracing = Tracing(tmp_path / "trace.jsonl")
    yield tracing
    tracing.writer.close()


def head(event: str) -> dict[str, Any]:
    clock = this_clock()
    who = {
        "v": 2,
        "machine": clock.machine,
        "boot": clock.boot,
        "host": "10.0.0.5",
        "client_id": CLIENT,
        "group": "tower",
    }
    return {"event": event, "wall_ms": WALL_MS, **who}


async def test_a_queue_event(tracing: Tracing) -> None:
    """The event, who, where, and the fields of that event."""
    tracing.writer.queue_event("committed", queue_at(3), period=2, offset=41)
    assert tracing.records() == [{**head("committed"), **QUEUE, "period": 2, "offset": 41}]


async def test_offsets_are_a_record_a_queue(tracing: Tracing) -> None:
    """The text of a period's fields is kept, until the period has other fields."""
    queues, period = [queue_at(3), queue_at(4)], {"period": 1}
    tracing.writer.offsets("committed", [(queue, period, 7) for queue in queues])
    tracing.writer.offsets("committed", [(queues[0], period, 8)])
    tracing.writer.offsets("committed", [(queues[0], {"period": 2, "epoch": "1-5"}, 9), (queues[1], period, 9)])
    other = {**QUEUE, "queue_id": 4}
    assert tracing.records() == [
        {**head("committed"), **QUEUE, "period": 1, "offset": 7},
        {**head("committed"), **other, "period": 1, "offset": 7},
        {**head("committed"), **QUEUE, "period": 1, "offset": 8},
        {**head("committed"), **QUEUE, "period": 2, "epoch": "1-5", "offset": 9},
        {**head("committed"), **other, "period": 1, "offset": 9},
    ]


async def test_handled_is_a_record_a_message(tracing: Tracing) -> None:
    """One listener call of three messages: three records with the same begin, each with its own offset and id."""
    begin = tracing.writer.now()
    assert begin[0] == WALL_MS
    messages = [message_at(offset, __SHARDINGKEY="N1", UNIQ_KEY=f"ID{offset}") for offset in (5, 6, 9)]
    messages[1].reconsume_times = 4
    tracing.writer.handled(queue_at(3), 2, messages, "SUCCESS", begin)
    common = {**head("handled"), **QUEUE, "period": 2, "status": "SUCCESS", "key": "N1"}
    common |= {"begin_wall_ms": begin[0], "begin_mono_ns": begin[1]}
    assert tracing.records() == [
        {**common, "offset": 5, "msg_id": "ID5", "reconsume_times": 0},
        {**common, "offset": 6, "msg_id": "ID6", "reconsume_times": 4},
        {**common, "offset": 9, "msg_id": "ID9", "reconsume_times": 0},
    ]


async def test_a_message_without_a_key(tracing: Tracing) -> None:
    """The key is null, not absent; the id is the broker's when the producer set none."""
    message = message_at(5)
    tracing.writer.handled(queue_at(3), 1, [message], "SUCCESS", (0, 0))
    (record,) = tracing.records()
    assert (record["key"], record["msg_id"]) == (None, message.offset_message_id)


async def test_sent(tracing: Tracing) -> None:
    """Where the broker stored it."""
    outgoing = tracing.outgoing("N1")
    tracing.writer.sent(queue_at(3), 41, "N1", outgoing.msg_ids)
    assert tracing.records() == [{**head("sent"), **QUEUE, "key": "N1", "offset": 41, "msg_id": outgoing.msg_id}]


async def test_a_sent_batch_is_a_record_a_message(tracing: Tracing) -> None:
    """Its messages have consecutive offsets."""
    outgoing = tracing.requests.outgoing_batch([Message("Aircraft", b"x")] * 3, "N1")
    tracing.writer.sent(queue_at(3), 41, "N1", outgoing.msg_ids)
    expected = [(41 + i, msg_id) for i, msg_id in enumerate(outgoing.msg_id.split(","))]
    assert [(record["offset"], record["msg_id"]) for record in tracing.records()] == expected


@pytest.mark.parametrize("outcome", SendOutcome)
async def test_send_failed(tracing: Tracing, outcome: SendOutcome) -> None:
    """Of a failed send the queue does not matter, the outcome does."""
    outgoing = tracing.outgoing(None)
    tracing.writer.send_failed(outgoing.topic, None, outgoing.msg_ids, outcome.name)
    expected = {"topic": "Aircraft", "key": None, "outcome": outcome.name.lower(), "msg_id": outgoing.msg_id}
    assert tracing.records() == [{**head("send_failed"), **expected}]


@pytest.mark.parametrize("asks", [{"delay_level": 3}, {"delay_ms": 9}, {"deliver_at_ms": 9}], ids=str)
async def test_a_send_for_later_has_no_offset(tracing: Tracing, asks: dict[str, Any]) -> None:
    """The broker answers where it waits, and that is no place of its topic."""
    outgoing = tracing.requests.outgoing(Message("Aircraft", b"x", **asks), "N1")

    async def sending() -> SendResult:
        return SendResult("SEND_OK", outgoing.msg_id, queue_at(3), 41, "")

    await SendTrace(tracing.writer).follow(outgoing, sending())
    expected = {"topic": "Aircraft", "key": "N1", "outcome": "later", "msg_id": outgoing.msg_id}
    assert tracing.records() == [{**head("send_failed"), **expected}]


async def test_any_key_can_be_written(tracing: Tracing) -> None:
    """A line is one line, whatever the key; half a surrogate pair becomes a question mark."""
    for key in ("\u00e9\u6f22\U0001f600", 'a"b\\c\nd', "\ud800"):
        tracing.writer.sent(queue_at(3), 1, key, ["ID"])
    assert [record["key"] for record in tracing.records()] == ["\u00e9\u6f22\U0001f600", 'a"b\\c\nd', "?"]


async def test_a_record_is_in_the_file_when_the_call_returns(tracing: Tracing) -> None:
    """Before its offset may be committed; nothing waits in a buffer of ours for a SIGKILL to take."""
    for i in range(5):
        tracing.writer.queue_event("positioned", queue_at(3), period=i, offset=0)
        assert len(tracing.records()) == i + 1


async def test_after_the_end_nothing_is_written(tracing: Tracing) -> None:
    """The last record says that it was closed. A send that fails after a shutdown is no error of the trace."""
    tracing.writer.close()
    tracing.writer.close()
    tracing.writer.queue_event("dropped", queue_at(3), period=1, why="late")
    assert tracing.records() == [head("closed")]
