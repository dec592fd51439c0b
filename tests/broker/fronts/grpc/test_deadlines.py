"""Calls that outlive their deadlines: they end with DEADLINE_EXCEEDED, and leave nothing that waits."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.protocol.grpc import messages as pb
from lockstep.simulation import World
from lockstep.store.durability.flusher import StoreFlusher
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker

DEADLINE_EXCEEDED = "4"
ON_DISK = {"flush_sync": True, "lock_mode": "fenced"}


def message(body: bytes) -> pb.SendMessageRequest:
    request = pb.SendMessageRequest()
    one = request.messages.add(topic=topic_of("T"), body=body)
    one.system_properties.message_id, one.system_properties.message_group = "id", "key"
    return request


def test_an_answer_that_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends in time, though a call with an earlier deadline was answered; what comes later goes nowhere."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        waiting = list[Callable[[str], None]]()
        await client.call("SendMessage", message(b"0"), 500)
        with monkeypatch.context() as patched:
            patched.setattr(StoreFlusher, "when_safe", lambda _, then: waiting.append(then))
            began_ms = world.now_ms
            call = client.start("SendMessage", message(b"1"), 1000)
            await call.ended
        assert call.status[0] == DEADLINE_EXCEEDED
        assert 1000 <= world.now_ms - began_ms < 1100
        (then,) = waiting
        then("")
        assert (await client.send("T", b"2", group="key")).status.code == pb.OK

    on_a_broker(story, data_dir=str(tmp_path / "data"), **ON_DISK)


def test_messages_that_come_too_late_go_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their delivery was on its way to the disk when the call's time was over."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.consume("G")
        waiting = list[Callable[[str], None]]()
        assert served.server.broker is not None
        with monkeypatch.context() as patched:
            patched.setattr(served.server.broker.durable, "when_synced", waiting.append)
            call = client.receiving("G", timeout_ms=6000)
            await call.ended
        assert call.status[0] == DEADLINE_EXCEEDED
        (then,) = waiting
        then("")
        began_ms = world.now_ms
        (one,) = await client.receive("G")
        assert (one.body, world.now_ms - began_ms < 1000) == (b"0", True)

    on_a_broker(story, data_dir=str(tmp_path / "data"), **ON_DISK)


def test_a_request_that_does_not_come() -> None:
    """Its headers came alone; a message after the deadline begins nothing."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        call = client.begin("SendMessage", pb.SendMessageResponse, 1000)
        client.flush()
        await call.ended
        assert call.status[0] == DEADLINE_EXCEEDED
        assert served.server.broker is not None
        assert not served.server.broker.messages.store.max_offset("T", 0)
        late = client.start("SendMessage", message(b"late"), 0)
        await late.ended
        assert late.status[0] == DEADLINE_EXCEEDED
        assert not any(served.server.broker.messages.store.max_offset("T", queue_id) for queue_id in range(4))

    on_a_broker(story)


def test_an_answer_that_nobody_reads() -> None:
    """Its client gives no window: the stream is reset when its time is over."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"x" * 100_000)
        slow = await GrpcClient.connect(world.host("slow"), served.server.grpc_address, "slow", window=0)
        call = slow.receiving("free", timeout_ms=6000)
        await asyncio.sleep(5)
        assert call.reset is None
        await call.ended
        assert call.reset == 8

    on_a_broker(story)


def test_telemetry_with_a_deadline() -> None:
    """The stream ends; others get what its client holds, as when the stream breaks."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        call = client.begin("Telemetry", pb.TelemetryCommand, 1000)
        settings = pb.Settings(client_type=pb.PUSH_CONSUMER)
        settings.subscription.group.name = "G"
        call.send(pb.TelemetryCommand(settings=settings))
        await call.ended
        assert call.status[0] == DEADLINE_EXCEEDED
        assert served.server.broker is not None
        assert not served.server.broker.members.consumers.groups

    on_a_broker(story, lock_mode="fenced")
