"""An admin client for one task: what brokers and name servers answer to it is bounded, and nothing of it stays."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.client import AdminClient
from lockstep.client.admin import stored_messages
from lockstep.client.admin.budget import AnswerTooLargeError
from lockstep.client.admin.stored_messages import last_messages
from lockstep.client.errors import TopicNotFoundError
from lockstep.protocol.bodies.broker import BrokerData, QueueData, TopicList, TopicRouteData
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO
LIST = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@on_stage
async def test_the_answers_of_a_broker_are_bounded_together(stage: Stage) -> None:
    """For the task, and for its view of one broker; the client itself takes any."""
    broker = await stage.broker("broker-a")
    stage.route_to({"broker-a": 2})
    broker.answers(RUNTIME, *[KvTable({"name": "x" * 600})] * 5)
    async with stage.admin() as admin:
        task = admin.bounded(1000)
        await task.broker_runtime(broker.address)
        (data,) = await admin.brokers()
        with pytest.raises(AnswerTooLargeError, match="GET_BROKER_RUNTIME_INFO"):
            await task.at(data).broker_runtime(broker.address)
        await admin.broker_runtime(broker.address)
        await admin.bounded(1000).broker_runtime(broker.address)


@on_stage
async def test_the_answers_of_a_name_server_are_bounded(stage: Stage) -> None:
    """Its lists of topics and brokers, and routes."""
    server = await stage.broker("broker-a")
    stage.route_to({"broker-a": 2})
    server.answers(LIST, TopicList(("x" * 100,)))
    async with stage.admin() as admin:
        for question in (admin.bounded(64).topics(), admin.bounded(64).brokers(), admin.bounded(64).route(TOPIC)):
            with pytest.raises(AnswerTooLargeError):
                await question


@on_stage
async def test_a_task_remembers_no_route(stage: Stage) -> None:
    """A page may be asked for any number of topics. The broker's address stays known, and its queues can be read."""
    broker = await stage.broker("broker-a")
    stage.route_to({"broker-a": 2})
    async with stage.admin() as admin:
        task = admin.bounded(10_000)
        for _ in range(2):
            assert len((await task.route(TOPIC)).broker_datas) == 1
        routes = admin._started().routes
        assert routes.known(TOPIC) is None
        assert routes.master_address("broker-a") == broker.address
        assert "route_changed" not in stage.events()
        await admin.route(TOPIC)
        await task.route(TOPIC)
        assert routes.known(TOPIC) is not None
        assert stage.events().count("route_changed") == 1
        with pytest.raises(TopicNotFoundError):
            await task.route("no-topic")
        await routes.refresh()
    asked = broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    topics = [command.decode_header(GetRouteInfoRequestHeader).topic for command in asked]
    assert topics == [TOPIC, TOPIC, TOPIC, TOPIC, "no-topic", TOPIC], "refreshed: what was not asked by a task alone"


@on_stage
async def test_a_thousand_brokers_stay_known(stage: Stage) -> None:
    """Those that a route named last."""
    await stage.broker("broker-a")
    stage.route_to({"broker-a": 2})
    for start in (0, 999):
        names = [f"b{number}" for number in range(start, start + 999)]
        queues = tuple(QueueData(name, 1, 1, 6) for name in names)
        datas = tuple(BrokerData(name, "c", {0: "127.0.0.1:1"}) for name in names)
        stage.brokers[0].routes[f"topic-{start}"] = TopicRouteData(queues, datas)
    async with stage.admin() as admin:
        task = admin.bounded(1_000_000)
        for topic in (TOPIC, "topic-0", TOPIC, "topic-999"):
            await task.route(topic)
        routes = admin._started().routes
        assert routes.master_address("broker-a") == stage.brokers[0].address, "it was named again"
        assert routes.master_address("b0") is routes.master_address("b998") is None
        assert routes.master_address("b999") == routes.master_address("b1997") == "127.0.0.1:1"


# The last messages -------------------------------------------------------------------------------------------


def message(queue: MessageQueue, offset: int) -> MessageExt:
    """Of 100 bytes; later offsets were stored later, of all queues in turn."""
    told = SimpleNamespace(
        body=b"x" * 100, queue_offset=offset, store_timestamp=offset * 10 + queue.queue_id,
        broker_name=queue.broker_name, queue_id=queue.queue_id,
    )  # fmt: skip
    return cast("MessageExt", told)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that were read, from queues that have every offset."""
    read: list[tuple[int, int]] = []

    async def read_range(
        admin: Any, queue: MessageQueue, offset: int, end: int, *, tags: str
    ) -> AsyncIterator[MessageExt]:
        read.append((offset, end))
        for number in range(offset, end):
            yield message(queue, number)

    monkeypatch.setattr(stored_messages, "read_range", read_range)
    return read


def places(messages: list[MessageExt]) -> list[tuple[int, int]]:
    return [(one.queue_id, one.queue_offset) for one in messages]


async def test_the_last_messages_of_all_queues(held: list[tuple[int, int]]) -> None:
    """By store time; without a bound of bytes as many as were asked for."""
    bounds = {queue_at(0): (0, 50), queue_at(1): (0, 50)}
    found = await last_messages(cast("AdminClient", None), bounds, 5)
    assert places(found) == [(1, 47), (0, 48), (1, 48), (0, 49), (1, 49)]
    assert held == [(45, 50), (45, 50)]


@pytest.mark.parametrize(("bytes_max", "count"), [(350, 3), (99, 1), (10_000, 5)])
async def test_large_messages_are_fewer(held: list[tuple[int, int]], bytes_max: int, count: int) -> None:
    """Older ones are left out, the newest one never is; and nothing more of the queue is read for them."""
    bounds = {queue_at(0): (0, 50), queue_at(1): (0, 50)}
    found = await last_messages(cast("AdminClient", None), bounds, 5, bytes_max=bytes_max)
    assert places(found) == [(1, 47), (0, 48), (1, 48), (0, 49), (1, 49)][-count:]
    assert held == [(45, 50), (45, 50)]
