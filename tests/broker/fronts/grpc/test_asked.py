"""What administrators ask of clients of gRPC, with the requests that they have for clients of RocketMQ 4."""

import asyncio

import pytest

from lockstep.protocol.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
)
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import ConsumeType
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerGroupRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.versions import version_name
from lockstep.simulation import World
from tests.broker.cluster import Client, Served
from tests.broker.fronts.grpc.grpc_client import Calling, GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker


def info_of(reply: RemotingCommand) -> ConsumerRunningInfo:
    assert reply.code == ResponseCode.SUCCESS, reply
    return decode_body(ConsumerRunningInfo, reply.body, reply.serialize_type)


async def joined(client: GrpcClient, *, push: bool = False) -> Calling:
    """A Python consumer of group G."""
    settings = pb.Settings(client_type=pb.PUSH_CONSUMER if push else pb.SIMPLE_CONSUMER)
    settings.user_agent.language = pb.PYTHON
    settings.subscription.group.name = "G"
    settings.subscription.subscriptions.add().topic.name = "T"
    call = client.begin("Telemetry", pb.TelemetryCommand, None, client_version="5.1.2")
    call.send(pb.TelemetryCommand(settings=settings))
    await call.message()
    return call


@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.MSGPACK])
def test_members_are_listed(encoding: SerializeType) -> None:
    """A member has its language, version and address; its type is for our own tools alone."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await joined(client, push=True)
        admin = Client(world.host("admin"), encoding)
        header = ConsumerGroupRequestHeader("G")
        for _ in range(2):  # the first request of a connection is JSON
            reply = await admin.call(served.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        body = decode_body(ConsumerConnection, reply.body, reply.serialize_type)
        (one,) = body.connection_set
        assert (one.client_id, one.language, version_name(one.version)) == ("c1", LanguageCode.PYTHON, "V5_1_2")
        assert one.client_addr.rpartition(":")[0] == world.host("c1").address
        assert one.client_type == (None if encoding is SerializeType.JSON else "PUSH_CONSUMER")
        assert (body.consume_type, list(body.subscription_table)) == (ConsumeType.CONSUME_PASSIVELY, ["T"])
        admin.close()

    on_a_broker(story)


def test_the_broker_knows_what_a_member_is() -> None:
    """Running info without stacks needs no answer of the client; offsets of its own it has none."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        began_ms = world.now_ms
        await joined(client)
        admin = Client(world.host("admin"))
        header = GetConsumerRunningInfoRequestHeader("G", "c1")
        info = info_of(await admin.call(served.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        assert info.orderly
        assert info.properties["consumesByPop"] == "true"
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) >= began_ms
        assert [one.topic for one in info.subscription_set] == ["T"]
        asked = ConsumerStatusRequestHeader("T", "G")
        status = await admin.call(served.address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
        assert status.code == ResponseCode.SUCCESS
        admin.close()

    on_a_broker(story)


def test_a_member_shows_its_stacks() -> None:
    """Another client's answer, and one that nobody asked for, are dropped; one that never comes is a timeout."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        telemetry = await joined(client)
        other = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        others = await joined(other)
        admin = Client(world.host("admin"))
        header = GetConsumerRunningInfoRequestHeader("G", "c1", True)
        call = asyncio.ensure_future(admin.call(served.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        nonce = (await telemetry.message(1)).print_thread_stack_trace_command.nonce
        answer = pb.TelemetryCommand(status=pb.Status(code=pb.OK))
        answer.thread_stack_trace.nonce, answer.thread_stack_trace.thread_stack_trace = nonce, "forged"
        others.send(answer)
        answer.thread_stack_trace.nonce = "0"
        telemetry.send(answer)
        answer.thread_stack_trace.nonce, answer.thread_stack_trace.thread_stack_trace = nonce, "main at work"
        telemetry.send(answer)
        info = info_of(await call)
        assert (info.jstack, info.properties["consumerGroup"]) == ("main at work", "G")

        began_ms = world.now_ms
        late = await admin.call(served.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert late.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert 10_000 <= world.now_ms - began_ms < 10_100
        admin.close()
        other.close()

    on_a_broker(story)


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (pb.OK, CMResult.CR_SUCCESS),
        (pb.FAILED_TO_CONSUME_MESSAGE, CMResult.CR_LATER),
        (pb.MESSAGE_CORRUPTED, CMResult.CR_RETURN_NULL),
        (pb.INTERNAL_ERROR, CMResult.CR_THROW_EXCEPTION),
    ],
)
def test_a_member_handles_a_message_that_an_administrator_chose(status: pb.Code, result: CMResult) -> None:
    """Its listener gets the message as it was sent, and says what became of it."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"again", group="key")
        telemetry = await joined(client, push=True)
        broker = served.server.broker
        assert broker is not None
        queue = next(queue for queue in range(4) if broker.messages.store.max_offset("T", queue))
        (message,) = decode_messages(broker.messages.store.get("T", queue, 0, 1, None).body)
        admin = Client(world.host("admin"))
        header = ConsumeMessageDirectlyRequestHeader("G", "c1", message.offset_message_id)
        call = asyncio.ensure_future(admin.call(served.address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
        asked = (await telemetry.message(1)).verify_message_command
        assert (asked.message.body, asked.message.system_properties.message_group) == (b"again", "key")
        answer = pb.TelemetryCommand(status=pb.Status(code=status))
        answer.verify_message_result.nonce = asked.nonce
        telemetry.send(answer)
        reply = await call
        told = decode_body(ConsumeMessageDirectlyResult, reply.body, reply.serialize_type)
        assert (told.consume_result, told.order) == (result, True)
        admin.close()

    on_a_broker(story)


def test_a_member_that_ends_answers_no_question() -> None:
    """Who asked is told at once."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        telemetry = await joined(client)
        admin = Client(world.host("admin"))
        header = GetConsumerRunningInfoRequestHeader("G", "c1", True)
        call = asyncio.ensure_future(admin.call(served.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        await telemetry.message(1)
        await client.call("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=topic_of("G")))
        reply = await call
        assert (reply.code, "the client ended" in (reply.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        admin.close()

    on_a_broker(story)


def test_offsets_of_a_group_with_members_are_reset() -> None:
    """The deliveries under way end, and the group gets the first message again."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for body in (b"0", b"1"):
            await client.send("T", body, group="key")
        await joined(client)
        first = await client.receive("G", batch=1)
        await client.ack("G", *first)
        assert [one.body for one in await client.receive("G", batch=1)] == [b"1"]
        admin = Client(world.host("admin"))
        header = ResetOffsetRequestHeader("T", "G", 0, True)
        reply = await admin.call(served.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert reply.code == ResponseCode.SUCCESS, reply
        assert [one.body for one in await client.receive("G")] == [b"0", b"1"]
        admin.close()

    on_a_broker(story)
