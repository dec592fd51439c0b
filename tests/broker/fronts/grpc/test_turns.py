"""No call keeps the loop for long: what costs more is refused before it is decoded, or done in several turns."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from h2.settings import SettingCodes

from lockstep.broker.fronts.grpc.http2 import turns
from lockstep.broker.grpc_counts import GrpcCounts
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import has_more_fields
from lockstep.simulation import World
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker


def test_calls_of_one_read_have_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each event of the protocol takes a whole turn, and the client is gone meanwhile."""
    monkeypatch.setattr(turns, "_TURN_NS", -1)

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        client.is_corked = True
        calls = [client.start("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T"))) for _ in range(20)]
        client.is_corked = False
        client.flush()
        other = await GrpcClient.connect(world.host("other"), served.server.grpc_address)
        other.start("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T")))
        other.close()
        await asyncio.gather(*(call.ended for call in calls))
        assert [call.messages[0].status.code for call in calls] == [pb.OK] * 20

    on_a_broker(story)


def test_one_connection_has_its_turn_in_a_round() -> None:
    """However many wait; one that has more to do waits again behind the others."""
    rounds, seen = deque[Callable[[], None]](), list[str]()
    runtime: Any = SimpleNamespace(call_later_ms=lambda _, then: rounds.append(then))
    shared = turns.Turns(runtime)

    def first() -> None:
        seen.append("first")
        if seen.count("first") == 1:
            shared.wait(first)

    shared.now_or_wait(first)
    shared.now_or_wait(lambda: seen.append("second"))
    assert seen == ["first"]
    counts = []
    while rounds:
        assert len(rounds) == 1
        rounds.popleft()()
        counts.append(len(seen))
    assert seen == ["first", "first", "second"]
    assert counts == [2, 3]


CALLS = 20


def _counts(served: Served) -> GrpcCounts:
    broker = served.server.broker
    assert broker is not None
    assert broker.grpc_counts is not None
    return broker.grpc_counts


def _waits(monkeypatch: pytest.MonkeyPatch, served: Served) -> list[int]:
    """Each event takes a whole turn from now on: how many calls are under way when the next one is waited for."""
    counts, seen, wait = _counts(served), list[int](), turns.Turns.wait

    def noted(self: turns.Turns, then: Callable[[], None]) -> None:
        seen.append(counts.under_way)
        wait(self, then)

    monkeypatch.setattr(turns, "_TURN_NS", -1)
    monkeypatch.setattr(turns.Turns, "wait", noted)
    return seen


def test_the_calls_of_a_lost_connection_end_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        other = await GrpcClient.connect(world.host("other"), served.server.grpc_address)
        for _ in range(CALLS):
            other.begin("QueryRoute", pb.QueryRouteResponse)
        other.flush()
        await asyncio.sleep(1)
        seen = _waits(monkeypatch, served)
        other.close()
        await asyncio.sleep(1)
        assert seen == list(range(CALLS - 1, 0, -1))

    on_a_broker(story)


def test_calls_whose_time_is_over_end_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        calls = [client.begin("QueryRoute", pb.QueryRouteResponse, 2000) for _ in range(CALLS)]
        client.flush()
        await asyncio.sleep(1)
        _waits(monkeypatch, served)
        counts, seen = _counts(served), set[int]()
        while counts.under_way:
            seen.add(counts.under_way)
            await asyncio.sleep(0.0005)
        assert seen == set(range(1, CALLS + 1))
        await asyncio.sleep(1)
        assert [call.status[0] for call in calls] == ["4"] * CALLS

    on_a_broker(story)


def test_answers_whose_windows_open_leave_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        slow = await GrpcClient.connect(world.host("slow"), served.server.grpc_address, window=0)
        calls = [slow.start("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T"))) for _ in range(CALLS)]
        await asyncio.sleep(1)
        seen = _waits(monkeypatch, served)
        slow.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
        slow.flush()
        await asyncio.gather(*(call.ended for call in calls))
        assert [call.messages[0].status.code for call in calls] == [pb.OK] * CALLS
        assert len(seen) >= CALLS

    on_a_broker(story)


def test_fields_inside_of_messages_count_before_they_are_decoded() -> None:
    request = pb.SendMessageRequest()
    for _ in range(3):
        one = request.messages.add(topic=topic_of("T"), body=b"x")
        one.system_properties.keys.extend(["k"] * 10)
        one.user_properties["a"] = "b"
    data, system = request.SerializeToString(), pb.Message.SYSTEM_PROPERTIES_FIELD_NUMBER
    fields = 3 * (1 + 4 + 10)  # the message, its topic, body, property and system properties, and the keys in these
    assert has_more_fields(data, fields - 1, {1: {system: {}}})
    assert not has_more_fields(data, fields, {1: {system: {}}})
    assert not has_more_fields(data, 3)


def test_a_kind_of_client_that_nobody_knows() -> None:
    """A consumer is refused, as in RocketMQ; a producer need not say what it is."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        known = pb.Settings(subscription=pb.Subscription(group=topic_of("G")))
        settings = pb.Settings.FromString(known.SerializeToString() + b"\x08\x59")
        call = client.begin("Telemetry", pb.TelemetryCommand, None)
        call.send(pb.TelemetryCommand(settings=settings))
        await call.ended
        assert call.status[0] == "13"
        assert "type: 89" in call.status[1]
        known = pb.Settings(publishing=pb.Publishing(topics=[topic_of("T")]))
        await client.telemetry(pb.Settings.FromString(known.SerializeToString() + b"\x08\x59"))

    on_a_broker(story)
