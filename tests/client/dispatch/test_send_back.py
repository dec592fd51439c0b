"""Sending a message back: the request to its broker, and the copy that is sent when the broker fails (wire.md 10.1,
12.8)."""

import json

import pytest

from lockstep.client import ConsumerConfig
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.send_back import SendBack
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.headers.messaging import SendMessageRequestHeaderV2, SendMessageResponseHeader
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.messages.properties import decode_properties
from tests.client.messages import stored_bytes
from tests.client.periods import free
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at

GROUP, RETRY = "tower", "%RETRY%tower"
SEND, BACK = RequestCode.SEND_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK
STORED = SendMessageResponseHeader("ID", 0, 0)


class Scene:
    """Two brokers with the topic and its retry topic; the messages are the first one's."""

    def __init__(self, stage: Stage, first: FakeBroker, second: FakeBroker, max_reconsume_times: int) -> None:
        self.first, self.second = first, second
        instance = stage.instance()
        self.routes = instance.routes
        trace = TraceWriter(stage.client, "trace", instance.client_id, GROUP)
        config = ConsumerConfig(max_reconsume_times=max_reconsume_times)
        offsets = RemoteBrokerOffsetStore(instance, GROUP)
        member = Membership(instance=instance, group=GROUP, config=config, offsets=offsets, trace=trace)
        self.send_back = SendBack(member)
        self.queue = free(queue_at(2), 0, 7)

    @classmethod
    async def on(cls, stage: Stage, max_reconsume_times: int = -1) -> "Scene":
        first, second = await stage.broker("broker-a"), await stage.broker("broker-b")
        for topic in (TOPIC, RETRY):
            stage.route_to({"broker-a": 1, "broker-b": 1}, topic)
        scene = cls(stage, first, second, max_reconsume_times)
        await scene.routes.fetch(TOPIC)
        for broker in (first, second):
            broker.answers(BACK, ResponseCode.SUCCESS)
            broker.answers(SEND, STORED)
        return scene

    @property
    def asked(self) -> SendMessageBackRequestHeader:
        (command,) = self.first.requests(BACK)
        return command.decode_header(SendMessageBackRequestHeader)


def message(**properties: str) -> MessageExt:
    """As a listener left it: shown under another name than the brokers know."""
    own = {"UNIQ_KEY": "UNIQ", "KEYS": "k", "__SHARDING_KEY": "N1", **properties}
    record = stored_bytes(41, b"body", topic=TOPIC, flag=9, reconsume_times=2, properties=own)
    (given,) = decode_messages(record, "broker-a")
    given.topic = "shown"
    return given


@on_stage
async def test_what_the_broker_is_asked(stage: Stage) -> None:
    """The place of the message, its names, and the limit: 16 when none is set."""
    scene = await Scene.on(stage)
    assert await scene.send_back.send(scene.queue, message(), 0)
    assert scene.asked == SendMessageBackRequestHeader(41_000, GROUP, 0, "UNIQ", TOPIC, False, 16)
    assert scene.first.requests(SEND) == scene.second.requests(SEND) == []


@pytest.mark.parametrize(("limit", "told"), [(-1, 16), (0, 0), (5, 5)])
@pytest.mark.parametrize("level", [-1, 4])
@on_stage
async def test_limit_and_level_are_the_callers(stage: Stage, limit: int, told: int, level: int) -> None:
    """A level other than 0 is the level that the broker uses."""
    scene = await Scene.on(stage, limit)
    assert await scene.send_back.send(scene.queue, message(), level)
    assert (scene.asked.delay_level, scene.asked.max_reconsume_times) == (level, told)


@pytest.mark.parametrize("failure", ["refused", "silent", "gone"])
@on_stage
async def test_a_message_that_is_not_taken_back_is_sent_anew(stage: Stage, failure: str) -> None:
    """To a broker that takes it: to the retry topic, at level 3 + the times it was tried, whatever was asked for."""
    scene = await Scene.on(stage)
    if failure == "refused":
        scene.first.answers(BACK, ResponseCode.SYSTEM_ERROR)
        scene.first.answers(SEND, ResponseCode.SYSTEM_ERROR)
    elif failure == "silent":
        scene.first.answers(BACK, None)
        scene.first.answers(SEND, ResponseCode.SERVICE_NOT_AVAILABLE)
    else:
        scene.first.stop()
    began_ms = stage.world.elapsed_ms
    given = message(RECONSUME_TIME="9", MAX_RECONSUME_TIMES="9", TRAN_MSG="true", colour="red")
    assert await scene.send_back.send(scene.queue, given, 9)
    if failure == "silent":
        assert stage.world.elapsed_ms - began_ms >= 5000
    (command,) = scene.second.requests(SEND)
    header = command.decode_header(SendMessageRequestHeaderV2)
    assert (header.producer_group, header.topic, command.body) == ("CLIENT_INNER_PRODUCER", RETRY, b"body")
    assert (header.flag, header.reconsume_times, header.max_reconsume_times) == (9, 3, 16)
    assert decode_properties(header.properties or "") == {
        "UNIQ_KEY": "UNIQ",
        "KEYS": "k",
        "__SHARDING_KEY": "N1",
        "colour": "red",
        "RETRY_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": given.offset_message_id,
        "DELAY": "5",  # 3 + reconsumeTimes
    }
    assert "send_back_fallback" in stage.events("warning")


@on_stage
async def test_when_nobody_takes_it(stage: Stage) -> None:
    """The caller gets an error, and the trace does not say that the message was sent back."""
    scene = await Scene.on(stage)
    for broker in (scene.first, scene.second):
        broker.answers(BACK, ResponseCode.SYSTEM_ERROR)
        broker.answers(SEND, ResponseCode.SYSTEM_ERROR)
    assert not await scene.send_back.send(scene.queue, message(), 0)
    assert stage.events("warning") == [
        "send_back_fallback",
        "send_back_failed",
    ]
    assert stage.client.disk.read("trace") == b""


@on_stage
async def test_it_is_recorded(stage: Stage) -> None:
    """As a message that its queue is rid of."""
    scene = await Scene.on(stage)
    await scene.send_back.send(scene.queue, message(), 0)
    (record,) = (json.loads(line) for line in stage.client.disk.read("trace").splitlines())
    told = [record[name] for name in ("event", "topic", "queue_id", "period", "offset", "key", "msg_id")]
    assert told == ["sent_back", TOPIC, 2, 7, 41, "N1", "UNIQ"]
