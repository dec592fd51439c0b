"""Compressed bodies of pulls: unpacked on a thread, with a common limit; broken ones are logged at ERROR."""

import asyncio
from typing import Any, cast

import pytest

from lockstep.client import ConsumerConfig, MessageExt
from lockstep.client.admin.queues import QueueQueries
from lockstep.client.consumer.broker_requests import BrokerCalls, Listening
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.protocol.bodies.client import CMResult, ConsumeMessageDirectlyResult
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import ConsumeMessageDirectlyRequestHeader
from lockstep.protocol.headers.messaging import CheckTransactionStateRequestHeader
from lockstep.protocol.messages import pulled
from lockstep.protocol.messages.compression import CompressionType, compress
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.protocol.messages.message import MESSAGE_MAGIC, unpacked
from lockstep.protocol.messages.pulled import decode_records, unpack_all
from lockstep.remoting.connections.endpoint import Endpoint
from tests.client.admin.test_admin_messages import R, finds
from tests.client.messages import stored_bytes
from tests.client.producer.test_transaction_producer import Listener, S, broker_on, make
from tests.client.stage import PORT, TOPIC, Stage, on_stage

ZLIB = CompressionType.ZLIB
PLAIN = b"plain"


def packed(offset: int, body: bytes | None = None, **properties: str) -> bytes:
    stream = compress(PLAIN, ZLIB, 5) if body is None else body
    return stored_bytes(offset, stream, topic=TOPIC, sys_flag=ZLIB.sys_flag, properties=properties)


@pytest.fixture(autouse=True)
def never_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool's job has no running loop, in the simulator too."""

    def checked(message: MessageExt) -> MessageExt:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return unpacked(message)

    monkeypatch.setattr(pulled, "unpacked", checked)


def test_many_large_bodies_of_one_answer() -> None:
    """Bodies beyond the common limit stay packed, with the reason; bodies that were not packed are unchanged."""
    stream = compress(bytes(1000), ZLIB, 5)
    large = packed(1, stream)
    found = unpack_all(decode_records(large + large + large + stored_bytes(2), ""), 1500)
    assert [len(message.body) for message in found] == [1000, 1000, len(stream), 1]
    assert [message.body_error is None for message in found] == [True, True, False, True]
    assert "not unpacked: the bodies before it in the same answer" in (found[2].body_error or "")


@on_stage
async def test_messages_that_are_looked_up(stage: Stage) -> None:
    """By id, of an admin client and of a consumer, and by key."""
    broker = await stage.broker(queues=1)
    broker.on[R.VIEW_MESSAGE_BY_ID] = lambda command: command.reply(0, body=packed(7))
    broker.on[R.QUERY_MESSAGE] = finds(packed(1, KEYS="b"), packed(2, b"no zlib", KEYS="b"))
    message_id = encode_offset_message_id(bytes(map(int, broker.runtime.address.split("."))), PORT, 7000)
    async with stage.admin() as admin:
        assert (await admin.view_message(message_id)).body == PLAIN
        assert [message.body for message in await admin.query_messages(TOPIC, "b")] == [PLAIN, b"no zlib"]
    assert stage.events("error") == ["message_unreadable"]
    assert (await QueueQueries(stage.instance(), "g").view_message(message_id)).body == PLAIN


@on_stage
async def test_a_record_that_is_none_hides_no_other_message(stage: Stage) -> None:
    """A search by key finds what is before it, and the messages of the other brokers."""
    first = await stage.broker()
    second = await stage.broker("broker-b")
    stage.route_to({"broker-a": 1, "broker-b": 1})
    damaged = stored_bytes(2, topic=TOPIC, properties={"KEYS": "b"}).replace(MESSAGE_MAGIC.to_bytes(4), b"oops", 1)
    first.on[R.QUERY_MESSAGE] = finds(packed(1, KEYS="b"), damaged, packed(3, KEYS="b"))
    second.on[R.QUERY_MESSAGE] = finds(packed(7, KEYS="b"))
    async with stage.admin() as admin:
        assert [message.queue_offset for message in await admin.query_messages(TOPIC, "b")] == [1, 7]
    assert stage.events("error") == ["message_unreadable"]


@on_stage
async def test_a_half_message_that_is_asked_after(stage: Stage) -> None:
    """The listener gets it unpacked, or with its error; the broker is answered either way."""
    bodies: list[tuple[bytes, bool]] = []

    class Checking(Listener):
        async def check_local_transaction(self, message: MessageExt) -> object:
            bodies.append((message.body, message.body_error is None))
            return S.COMMIT_MESSAGE

    broker = await broker_on(stage)
    async with make(stage, Checking()):
        for body in (None, b"no zlib"):
            header = CheckTransactionStateRequestHeader(1, 1001, "K", "K", "ID")
            properties = {"PGROUP": "shop", "UNIQ_KEY": "K", "TRAN_MSG": "true"}
            command = RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, header, packed(1, body, **properties))
            broker.endpoints[-1].send_one_way(command)
            await stage.world.sleep_ms(50)
        assert len(broker.requests(RequestCode.END_TRANSACTION)) == 2
    assert bodies == [(PLAIN, True), (b"no zlib", False)]
    assert stage.events("error") == ["message_unreadable"]


@on_stage
async def test_a_message_that_an_administrator_hands_out(stage: Stage) -> None:
    """The listener gets it unpacked, or with its error."""
    bodies: list[tuple[bytes, bool]] = []
    replies: list[RemotingCommand] = []

    async def directly(message: MessageExt) -> ConsumeMessageDirectlyResult:
        bodies.append((message.body, message.body_error is None))
        return ConsumeMessageDirectlyResult(True, True, CMResult.CR_SUCCESS, None, 0)

    class Asker:
        def reply(self, command: RemotingCommand) -> None:
            replies.append(command)

    await stage.broker()
    instance = stage.instance()
    config, offsets = ConsumerConfig(), RemoteBrokerOffsetStore(instance, "tower")
    member = Membership(instance=instance, group="tower", config=config, offsets=offsets)
    listening = Listening(True, 1, cast("ConsumeDirectly", directly), lambda _topic, _offsets: None)
    calls = BrokerCalls(member, config, ConsumerStatsManager(0), {}, listening)
    for body in (None, b"no zlib"):
        header: Any = ConsumeMessageDirectlyRequestHeader("tower")
        command = RemotingCommand(R.CONSUME_MESSAGE_DIRECTLY, header, packed(1, body))
        assert calls.handlers[R.CONSUME_MESSAGE_DIRECTLY](cast("Endpoint", Asker()), command) is None
        await stage.world.sleep_ms(50)
    assert bodies == [(PLAIN, True), (b"no zlib", False)]
    assert [reply.code for reply in replies] == [0, 0]
    assert stage.events("error") == ["message_unreadable"]
