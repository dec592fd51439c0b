"""Answers that brokers push: told apart by correlation id, read whatever their address looks like, refused when they
cannot be read."""

import asyncio
import zlib
from typing import Any

import pytest

from lockstep.client import Message, MessageExt
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import PushReplyMessageRequestHeader
from lockstep.protocol.messages.properties import decode_properties
from tests.client.producer.send_stage import SEND, STORED, header_of, producer_for
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage

HEADER = PushReplyMessageRequestHeader(
    "servers", "C_REPLY_TOPIC", "TBW102", 4, 2, 0, 1000, 5, "/10.0.0.9:40000", "/10.0.0.1:10911", 2000, None, 0, False
)


async def push(broker: FakeBroker, correlation_id: str, body: bytes = b"answer", **fields: Any) -> RemotingCommand:
    properties = f"CORRELATION_ID\x01{correlation_id}\x02TAGS\x01A"
    header = HEADER._replace(properties=properties)._replace(**fields)
    (endpoint,) = [endpoint for endpoint in broker.endpoints if endpoint.is_open][-1:]
    return await endpoint.request(RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body), 1000)


def answering(broker: FakeBroker, **fields: Any) -> "asyncio.Future[RemotingCommand]":
    """The broker stores a request and pushes an answer to it at once; the client's word on it."""
    told: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()

    def store(command: RemotingCommand) -> RemotingCommand:
        correlation_id = decode_properties(header_of(command).properties or "")["CORRELATION_ID"]

        async def answer() -> None:
            told.set_result(await push(broker, correlation_id, **fields))

        broker.runtime.create_task(answer(), name="answer")
        return command.reply(ResponseCode.SUCCESS, STORED)

    broker.on[SEND] = store
    return told


async def ask(stage: Stage, **fields: Any) -> tuple[MessageExt, RemotingCommand]:
    broker = await stage.broker(queues=1)
    told = answering(broker, **fields)
    async with producer_for(stage) as producer:
        return await producer.request(Message(TOPIC, b"question")), await told


@on_stage
async def test_the_answer_is_a_message(stage: Stage) -> None:
    """It has all fields of its header, and the time of its arrival."""
    answer, told = await ask(stage)
    assert told.code == ResponseCode.SUCCESS
    assert (answer.topic, answer.queue_id, answer.body, answer.flag) == ("C_REPLY_TOPIC", 2, b"answer", 5)
    assert (answer.born_timestamp, answer.store_timestamp, answer.tags) == (1000, 2000, "A")
    assert (answer.born_host, answer.store_host) == ((bytes((10, 0, 0, 9)), 40000), (bytes((10, 0, 0, 1)), 10911))
    assert int(answer.properties["ARRIVE_TIME"]) >= 1_700_000_000_000


@pytest.mark.parametrize("text", ["/[::1]:10911", "host.example/10.0.0.1:1", "10.0.0.1:1", "/fe80::1:10911"])
@on_stage
async def test_addresses_as_java_prints_them(stage: Stage, text: str) -> None:
    answer, _ = await ask(stage, born_host=text)
    assert answer.body == b"answer"


@on_stage
async def test_an_answer_that_cannot_be_unpacked(stage: Stage) -> None:
    """The caller gets it at once with the error, and the error is logged."""
    answer, told = await ask(stage, sys_flag=0x201, body=b"no zstd")
    assert (answer.body, answer.body_error is None) == (b"no zstd", False)
    assert told.code == ResponseCode.SUCCESS
    assert stage.events("error") == ["message_unreadable"]


@on_stage
async def test_a_compressed_answer(stage: Stage) -> None:
    answer, _ = await ask(stage, sys_flag=0x301, body=zlib.compress(b"answer" * 100))
    assert answer.body == b"answer" * 100


@pytest.mark.parametrize("fields", [{"born_host": "/nowhere:x"}, {"store_host": "?"}, {"topic": "T" * 256}])
@on_stage
async def test_an_answer_that_cannot_be_read(stage: Stage, fields: dict[str, Any]) -> None:
    """Is refused; the connection and later answers are none the worse."""
    broker = await stage.broker(queues=1)
    told = answering(broker)
    async with producer_for(stage) as producer:
        await producer.request(Message(TOPIC, b"first"))
        await told
        refused = await push(broker, "any", **fields)
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "process reply message fail")
        unknown = await push(broker, "nobody's")
        assert unknown.code == ResponseCode.SUCCESS, "the broker has done its part"
        answering(broker)
        assert (await producer.request(Message(TOPIC, b"second"))).body == b"answer"
    assert "reply_unexpected" in stage.events("warning")


@on_stage
async def test_what_a_request_carries(stage: Stage) -> None:
    """The sender's client id, the correlation id and the timeout; the client sent a heartbeat to the broker before."""
    broker = await stage.broker(queues=1)
    answering(broker)
    async with producer_for(stage) as producer:
        await producer.request(Message(TOPIC, b"x", keys="k"), timeout_ms=1234)
        client_id = producer.client_id
    codes = [command.code for command in broker.seen]
    assert codes.index(RequestCode.HEART_BEAT) < codes.index(SEND)
    (sent,) = broker.requests(SEND)
    properties = decode_properties(header_of(sent).properties or "")
    assert (properties["REPLY_TO_CLIENT"], properties["TTL"], properties["KEYS"]) == (client_id, "1234", "k")
    assert len(properties["CORRELATION_ID"]) == 32
