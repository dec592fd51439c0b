"""Our consumer under RocketMQ's binary header, and what Apache's broker asks of it (wire.md 1.3, 2.5)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import ConsumeOrderlyContext, Message, MessageExt, Producer, ProducerConfig, SerializeType
from lockstep.client.config import ClientConfig
from lockstep.client.instance.client import MQClientInstance, name_server_addresses
from lockstep.protocol.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import StdlibLog
from tests.integration.harness.processes import until
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.python_story import FAST_CONFIG, PythonStory, eventually

pytestmark = pytest.mark.timeout(540)
R = RequestCode
Fresh = Callable[[], str]


@pytest.fixture
def story(apache: Server, tmp_path: Path, interop_row: RowMaker) -> PythonStory:
    return PythonStory(apache, tmp_path, interop_row)


async def _nothing(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
    """A listener that is content with everything."""


async def test_the_binary_header(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Routes, sends, locks, pulls, commits and a batch, all with binary headers."""
    row = story.row("binary header: keyed sends, a batch, ordered consumer")
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()
    config = ProducerConfig(serialize_type=SerializeType.ROCKETMQ)
    async with Producer(
        "interop-producers", name_server=story.server.name_server, config=config, trace=story.trace()
    ) as producer:
        for number in range(500):
            await producer.send(Message(topic, str(number).encode()), sharding_key=f"key-{number % 10}")
        await producer.send_batch([Message(topic, b"b1"), Message(topic, b"b2")])
    binary = replace(FAST_CONFIG, serialize_type=SerializeType.ROCKETMQ)
    async with story.consumer(topic, group, _nothing, binary):
        await story.drain(topic, group)
    report = story.report(row)
    assert (report.sent, report.handled, report.attempts) == (502, 502, 502)


async def test_what_their_broker_asks(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Running info, offsets, one message directly, and a reset to the beginning, passed on by Apache's broker."""
    row = story.row("running info, status, consume directly, reset offset")
    topic, group = await story.server.create_topic(fresh_topic(), 2), fresh_group()
    results = await story.send_keyed(topic, 100)
    handled: list[str] = []

    async def listener(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        handled.extend(message.msg_id for message in messages)

    async with story.consumer(topic, group, listener) as consumer:
        await story.drain(topic, group)
        ask = _Asker(story.server)
        try:
            about = GetConsumerRunningInfoRequestHeader(group, consumer.client_id, jstack_enable=True)

            async def told() -> ConsumerRunningInfo | None:
                found = decode_body(ConsumerRunningInfo, await ask(R.GET_CONSUMER_RUNNING_INFO, about), 0)
                return found if {queue.topic for queue in found.mq_table} == {topic, f"%RETRY%{group}"} else None

            # The retry topic is made by the first heartbeat; the consumer has its queue when it asks for routes again.
            info = await until(told, "the queues of the topic and of its retry topic")
            assert info.properties["PROP_CONSUMEORDERLY"] == "true"
            assert "task" in (info.jstack or "")
            status = decode_body(
                GetConsumerStatusBody,
                await ask(R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader(topic, group)),
                0,
            )
            assert sum(status.consumer_table[consumer.client_id].values()) == 100
            directly = ConsumeMessageDirectlyRequestHeader(group, consumer.client_id, results[0].offset_msg_id)
            result = decode_body(ConsumeMessageDirectlyResult, await ask(R.CONSUME_MESSAGE_DIRECTLY, directly), 0)
            assert (result.consume_result, result.order) == (CMResult.CR_SUCCESS, True)
            assert len(handled) == 101
            reset = ResetOffsetRequestHeader(topic, group, 0, is_force=True)
            table = decode_body(ResetOffsetBody, await ask(R.INVOKE_BROKER_TO_RESET_OFFSET, reset), 0).offset_table
            assert set(table.values()) == {0}

            async def again() -> bool:
                return len(handled) >= 201

            await eventually(again, "everything is handled again")
        finally:
            ask.close()
        await story.drain(topic, group)
    report = story.report(row)
    assert report.attempts == 200  # but for the one that was consumed directly
    assert len(set(handled)) == 100


class _Asker:
    """An administrator's questions to the broker, in JSON."""

    def __init__(self, server: Server) -> None:
        names = name_server_addresses(server.name_server)
        config = ClientConfig(serialize_type=SerializeType.JSON)
        self._server = server
        self._instance = MQClientInstance(AsyncioRuntime(), names, config, StdlibLog("interop"))

    async def __call__(self, code: int, header: tuple[Any, ...]) -> bytes:
        address = self._server.broker
        reply: RemotingCommand = await self._instance.call_address(address, code, header, timeout_ms=15_000)
        assert reply.code == 0, reply.remark
        return reply.body

    def close(self) -> None:
        self._instance.dialer.close()
