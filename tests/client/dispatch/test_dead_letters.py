"""A message is given up: the client sends it to the retry topic, and the broker makes it a dead letter (wire.md
10.3)."""

import json

import pytest

from lockstep.client import ConsumerConfig, SendError, SendOutcome
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.hold import FencedHold
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.epochs import make_epoch
from lockstep.protocol.headers.messaging import SendMessageRequestHeaderV2, SendMessageResponseHeader
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.messages.properties import decode_properties
from tests.client.messages import stored_bytes
from tests.client.periods import period
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at

GROUP = "tower"
EPOCH = make_epoch(1_700_000_000_000, 7)
SEND = RequestCode.SEND_MESSAGE_V2
STORED = SendMessageResponseHeader("ID", 0, 0)


async def dead_letters(stage: Stage) -> tuple[FakeBroker, DeadLetters, ProcessQueue]:
    broker = await stage.broker(queues=4)
    instance = stage.instance()
    await instance.routes.fetch(TOPIC)
    broker.answers(SEND, STORED)
    trace = TraceWriter(stage.client, "trace", instance.client_id, GROUP)
    offsets = RemoteBrokerOffsetStore(instance, GROUP)
    member = Membership(instance=instance, group=GROUP, config=ConsumerConfig(), offsets=offsets, trace=trace)
    return broker, DeadLetters(member), period(queue_at(2), 0, 7)


def message(**properties: str) -> MessageExt:
    """As a listener left it: shown under another name than the brokers know, and with another body."""
    own = {"UNIQ_KEY": "UNIQ", "KEYS": "k", "__SHARDING_KEY": "N1", **properties}
    (given,) = decode_messages(stored_bytes(41, b"body", topic=TOPIC, reconsume_times=3, properties=own), "broker-a")
    given.topic = "shown"
    given.body = None  # type: ignore[assignment]  # as a listener may
    return given


@on_stage
async def test_what_is_sent(stage: Stage) -> None:
    """Body and properties as they were, where it came from, and the counts in the header."""
    broker, letters, queue = await dead_letters(stage)
    given = message(RECONSUME_TIME="9", MAX_RECONSUME_TIMES="9", TRAN_MSG="true", colour="red")
    await letters.send(queue, given, 3)
    (command,) = broker.requests(SEND)
    header = command.decode_header(SendMessageRequestHeaderV2)
    assert command.body == b"body"
    assert (header.producer_group, header.topic, header.queue_id) == ("CLIENT_INNER_PRODUCER", "%RETRY%tower", 0)
    assert (header.reconsume_times, header.max_reconsume_times) == (3, 3)
    assert decode_properties(header.properties or "") == {
        "UNIQ_KEY": "UNIQ",
        "KEYS": "k",
        "__SHARDING_KEY": "N1",
        "colour": "red",
        "RETRY_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": given.offset_message_id,
        "DELAY": "6",  # 3 + reconsumeTimes
    }


@on_stage
async def test_a_message_that_was_retried_before_keeps_its_origin(stage: Stage) -> None:
    """The first topic and the first id, not those of its last incarnation."""
    broker, letters, queue = await dead_letters(stage)
    await letters.send(queue, message(RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="FIRSTID"), 3)
    header = broker.requests(SEND)[0].decode_header(SendMessageRequestHeaderV2)
    properties = decode_properties(header.properties or "")
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("First", "FIRSTID")


@on_stage
async def test_a_dead_letter_of_a_fenced_lock_says_so(stage: Stage) -> None:
    """The broker refuses it when the queue has another owner by now."""
    broker, letters, queue = await dead_letters(stage)
    await letters.send(queue, message(), 3)  # the connection is there, and the broker has agreed
    queue.hold = FencedHold(0, EPOCH, 60_000)
    await letters.send(queue, message(), 3)
    header = broker.requests(SEND)[1].decode_header(SendMessageRequestHeaderV2)
    assert (header.lock_epoch, header.lock_client_id) == (EPOCH, letters._member.instance.client_id)
    assert (header.lock_topic, header.lock_queue_id) == (TOPIC, 2)


@on_stage
async def test_it_is_recorded(stage: Stage) -> None:
    """In the log, and in the trace as handled in its way."""
    _, letters, queue = await dead_letters(stage)
    await letters.send(queue, message(), 3)
    (record,) = (json.loads(line) for line in stage.client.disk.read("trace").splitlines())
    told = [record[name] for name in ("event", "topic", "queue_id", "period", "offset", "key", "msg_id")]
    assert told == ["dead_lettered", TOPIC, 2, 7, 41, "N1", "UNIQ"]
    assert stage.events("warning") == ["dead_lettered"]


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [("refused", SendOutcome.REFUSED), ("silent", SendOutcome.UNKNOWN), ("gone", SendOutcome.UNKNOWN),
     ("no route", SendOutcome.NOT_SENT)],
)  # fmt: skip
@on_stage
async def test_what_the_broker_did_not_take_stays(stage: Stage, failure: str, outcome: SendOutcome) -> None:
    """Every way of failing is a SendError: the message stays where it is, and nothing is recorded."""
    broker, letters, queue = await dead_letters(stage)
    if failure == "refused":
        broker.answers(SEND, ResponseCode.SYSTEM_ERROR)
    elif failure == "silent":
        broker.answers(SEND, None)
    elif failure == "gone":
        broker.stop()
    else:
        queue = period(queue_at(0, "broker-z"))
    with pytest.raises(SendError) as caught:
        await letters.send(queue, message(), 3)
    assert caught.value.outcome is outcome
    assert stage.client.disk.read("trace") == b""
