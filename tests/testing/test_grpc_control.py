"""The fault API and clients of gRPC: their calls are listed and fail on demand, and they follow the moved clock."""

import asyncio
from importlib.util import find_spec
from typing import Any

import pytest

from lockstep.testing.control_port.calls import CallError
from tests.rows import by_row
from tests.testing.controlled import Stage, on_stage

if not (find_spec("h2") and find_spec("google")):
    pytest.skip("needs the extra grpc", allow_module_level=True)

from lockstep.protocol.grpc import messages as pb
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of


async def connect(stage: Stage, client_id: str = "c1") -> GrpcClient:
    return await GrpcClient.connect(stage.world.host(client_id), stage.server.grpc_address, client_id)


async def ready(stage: Stage) -> GrpcClient:
    """A topic, a group in order, and a simple consumer of it."""
    await stage.call("create_topic", topic="T", queues=4)
    await stage.call("create_group", group="G", fifo=True)
    client = await connect(stage)
    await client.consume("G")
    return client


def one_send() -> pb.SendMessageRequest:
    request = pb.SendMessageRequest()
    message = request.messages.add(topic=pb.Resource(name="T"), body=b"paid")
    message.system_properties.message_id = "id"
    message.system_properties.message_group = "1001"
    return request


def test_calls_are_told_by_the_names_of_their_fields() -> None:
    """In one list with requests of RocketMQ 4: metadata, and the message without its body; also telemetry."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        await stage.ask(34)
        await client.send("T", b"paid", group="1001")
        telemetry, heartbeat, send = await stage.call("requests")
        assert [telemetry["name"], heartbeat["name"], send["name"]] == ["Telemetry", "HEART_BEAT", "SendMessage"]
        assert telemetry["header"]["settings"]["subscription"]["group"]["name"] == "G"
        (message,) = send["header"]["messages"]
        assert (message["topic"]["name"], message["system_properties"]["message_group"]) == ("T", "1001")
        assert "body" not in message
        assert (send["code"], send["extFields"]["x-mq-client-id"]) == (0, "c1")
        assert send["bodyBytes"] > len(b"paid")
        assert await stage.call("requests", codes=["SendMessage"], after=heartbeat["serial"]) == [send]
        client.close()

    on_stage(story, grpc_port=8081)


def test_what_cannot_be_read_is_told_all_the_same() -> None:
    """The front refuses it."""

    async def story(stage: Stage) -> None:
        client = await connect(stage)
        call = client.begin("AckMessage", pb.AckMessageResponse)
        client.write(call.stream_id, b"\xff", end=True)
        await call.ended
        assert call.status[0] == "13"
        (told,) = await stage.call("requests")
        assert (told["name"], told["header"], told["bodyBytes"]) == ("AckMessage", {}, 1)
        client.close()

    on_stage(story, grpc_port=8081)


def test_an_error_is_a_code_of_the_answer_or_a_status_of_grpc() -> None:
    """By name or number; the calls are not carried out, and others pass."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        await stage.call("push_error", codes=["SendMessage"], responseCode="TOO_MANY_REQUESTS", remark="busy")
        await stage.call("push_error", codes=["SendMessage"], responseCode=14, remark="away")
        await stage.call("push_error", codes=["SendMessage"])
        refused = await client.send("T", b"0")
        assert (refused.status.code, refused.status.message) == (pb.TOO_MANY_REQUESTS, "busy")
        call = client.start("SendMessage", one_send())
        await call.ended
        assert call.status == ("14", "away")
        assert (await client.send("T", b"0")).status.code == pb.INTERNAL_SERVER_ERROR
        sent = await client.send("T", b"0")
        assert (sent.status.code, sent.entries[0].offset) == (pb.OK, 0)
        await stage.call("push_error", codes="ReceiveMessage", responseCode="FORBIDDEN")
        call = client.receiving("G")
        await call.ended
        assert [one.status.code for one in call.messages] == [pb.FORBIDDEN]
        assert (await stage.call("status"))["errorsWaiting"] == 0
        client.close()

    on_stage(story, grpc_port=8081)


def test_the_answer_may_be_lost_after_the_call_was_carried_out() -> None:
    """The message is stored, and its sender gets an error; so it is with a receive that waits first."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        await stage.call("push_error", codes=["SendMessage"], responseCode="UNAVAILABLE", executeFirst=True)
        call = client.start("SendMessage", one_send())
        await call.ended
        assert (call.status[0], call.messages) == ("14", [])
        await stage.call("push_error", codes=["ReceiveMessage"], responseCode="ABORTED", executeFirst=True)
        call = client.receiving("G")
        await call.ended
        assert (call.status[0], call.messages) == ("10", [])
        await stage.call("advance", seconds=11)
        (again,) = await client.receive("G")
        assert (again.body, again.system_properties.delivery_attempt) == (b"paid", 2)
        client.close()

    on_stage(story, grpc_port=8081)


def test_a_stream_of_telemetry_fails_too() -> None:
    """With a code, with a status, and after its settings were taken; the client comes back."""

    async def story(stage: Stage) -> None:
        client = await connect(stage)
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.add(name="T")
        for error, expected in (
            ({"responseCode": "BAD_REQUEST"}, [pb.BAD_REQUEST]),
            ({"responseCode": 14}, []),
            ({"executeFirst": True}, [pb.INTERNAL_SERVER_ERROR]),
        ):
            await stage.call("push_error", codes=["Telemetry"], **error)
            call = client.begin("Telemetry", pb.TelemetryCommand, None)
            call.send(pb.TelemetryCommand(settings=settings))
            await call.ended
            assert [one.status.code for one in call.messages] == expected
        call = await client.telemetry(settings)
        assert call.messages[0].status.code == pb.OK
        client.close()

    on_stage(story, grpc_port=8081)


@pytest.mark.parametrize("go_away", [False, True])
def test_a_connection_is_dropped_or_ends_in_order(*, go_away: bool) -> None:
    """The first says nothing; the second ends its calls as UNAVAILABLE, and says GOAWAY. Another client is served."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        waits = client.receiving("G")
        await stage.call("push_error", codes=["SendMessage"], dropConnection=not go_away, goAway=go_away)
        call = client.start("SendMessage", one_send())
        await call.ended
        await waits.ended
        await stage.world.until(lambda: client.lost)
        assert client.goaway == (0 if go_away else None)
        assert [call.status[0], waits.status[0]] == (["14", "14"] if go_away else ["", ""])
        other = await connect(stage, "c2")
        assert (await other.send("T", b"0")).status.code == pb.OK
        other.close()

    on_stage(story, grpc_port=8081)


def test_a_round_trip_takes_as_long_as_it_is_told() -> None:
    """For calls of gRPC too."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        await stage.call("set_rtt", ms=400)
        began_ms = stage.world.now_ms
        await client.send("T", b"0")
        assert 400 <= stage.world.now_ms - began_ms < 800
        client.close()

    on_stage(story, grpc_port=8081)


def test_down_and_up_are_of_this_port_too() -> None:
    """Its connections end, nothing is let in, and later the same port has what was stored."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        address = stage.server.grpc_address
        await client.send("T", b"0", group="key")
        await stage.server.close_ports()
        await stage.world.until(lambda: client.lost)
        with pytest.raises(ConnectionRefusedError):
            await connect(stage, "c2")
        await stage.server.reopen_ports()
        assert stage.server.grpc_address == address
        client = await connect(stage, "c3")
        await client.consume("G")
        assert [one.body for one in await client.receive("G")] == [b"0"]
        client.close()

    on_stage(story, grpc_port=8081)


def test_time_that_is_moved_ends_what_is_invisible_and_delayed() -> None:
    """A message that is not acknowledged comes again, one for a time comes, and a receive that waits ends."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        began_ms = stage.world.now_ms
        await client.send("T", b"0", group="key")
        (first,) = await client.receive("G")
        assert first.system_properties.delivery_attempt == 1
        await stage.call("advance", seconds=11)
        (again,) = await client.receive("G")
        assert again.system_properties.delivery_attempt == 2
        await client.ack("G", again)
        at = pb.Timestamp(seconds=(await stage.call("status"))["nowMs"] // 1000 + 3600)
        await client.send("T", b"later", delivery_timestamp=at)
        waits = client.receiving("G", long_polling_timeout=pb.Duration(seconds=60), timeout_ms=None)
        await asyncio.sleep(0.1)
        await stage.call("advance", seconds=61)
        await waits.ended
        assert waits.messages[0].status.code == pb.MESSAGE_NOT_FOUND
        await stage.call("advance", seconds=3540, heartbeats=True)
        assert [one.body for one in await client.receive("G")] == [b"later"]
        assert stage.world.now_ms - began_ms < 10_000
        client.close()

    on_stage(story, grpc_port=8081)


def test_a_client_without_heartbeats_is_dropped_in_moved_time() -> None:
    """After two minutes, as one of RocketMQ 4; with heartbeats it stays."""

    async def story(stage: Stage) -> None:
        client = await ready(stage)
        await stage.call("advance", seconds=600, heartbeats=True)
        assert (await client.call("Heartbeat", pb.HeartbeatRequest(group=topic_of("G")))).status.code == pb.OK
        assert not client.lost
        await stage.call("advance", seconds=130)
        await stage.world.until(lambda: client.lost)
        client = await connect(stage)
        assert (await client.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.UNRECOGNIZED_CLIENT_TYPE
        client.close()

    on_stage(story, grpc_port=8081)


@by_row(
    "name, arguments, words",
    [
        ("push_error", {"codes": ["Send"]}, "unknown request 'Send'.*such as 'AckMessage'"),
        ("push_error", {"codes": ["AckMessage"], "responseCode": "SYSTEM_BUSY"}, "unknown response 'SYSTEM_BUSY'"),
        ("push_error", {"codes": ["AckMessage"], "responseCode": 17}, "unknown response 17 to a gRPC call"),
        ("push_error", {"codes": ["AckMessage"], "responseCode": 0}, "unknown response 0 to a gRPC call"),
        ("push_error", {"codes": ["AckMessage"], "responseCode": 1.5}, "responseCode must be a number or a name"),
        ("push_error", {"codes": ["AckMessage", 11], "responseCode": 1}, "push an error for each"),
        ("push_error", {"codes": ["AckMessage", 11], "goAway": True}, "goAway is of HTTP/2"),
        ("create_topic", {"topic": "T", "messageType": "ANY"}, "messageType must be one of MIXED, "),
        ("create_group", {"group": "a b"}, "may hold only the characters"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(name: str, arguments: dict[str, Any], words: str) -> None:
    """In one line."""

    async def story(stage: Stage) -> None:
        with pytest.raises(CallError, match=words):
            await stage.call(name, **arguments)
        assert stage.faults.errors == []

    on_stage(story)
