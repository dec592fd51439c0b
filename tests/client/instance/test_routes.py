"""Routes: fetched, remembered, fetched again; one name server while it answers, else the next one."""

import pytest

from lockstep.client.config import ClientConfig
from lockstep.client.errors import NoRouteError
from lockstep.client.instance.routes import Routes
from lockstep.protocol.bodies.broker import BrokerData, QueueData, TopicList, TopicRouteData
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader
from lockstep.remoting.errors import RequestRefused
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
LIST = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


def routes_of(stage: Stage) -> Routes:
    return stage.instance(ClientConfig(request_timeout_ms=3000)).routes


@on_stage
async def test_a_route_is_fetched_once_and_remembered(stage: Stage) -> None:
    """`get` fetches an unknown route; `fetch` always fetches."""
    server = await stage.broker()
    route = stage.route_to({"broker-a": 3})
    routes = routes_of(stage)
    assert routes.known(TOPIC) is None
    assert await routes.get(TOPIC) == await routes.get(TOPIC) == route
    assert len(server.requests(ROUTE)) == 1
    assert server.requests(ROUTE)[0].decode_header(GetRouteInfoRequestHeader).topic == TOPIC
    await routes.fetch(TOPIC)
    assert len(server.requests(ROUTE)) == 2
    assert routes.known(TOPIC) == route
    assert routes.topics == [TOPIC]
    assert routes.master_address("broker-a") == server.address
    assert routes.master_address("broker-z") is None


@on_stage
async def test_a_topic_that_does_not_exist_yet(stage: Stage) -> None:
    """None; and a refresh asks again, so that it is known once it exists."""
    await stage.broker()
    routes = routes_of(stage)
    changed: list[str] = []
    routes.on_changed.append(changed.append)
    assert await routes.get(TOPIC) is None
    await routes.refresh()
    assert routes.known(TOPIC) is None
    route = stage.route_to({"broker-a": 3})
    await routes.refresh()
    assert routes.known(TOPIC) == route
    assert changed == [TOPIC]
    await routes.refresh()
    assert changed == [TOPIC], "told of changes only"


@on_stage
async def test_slaves_and_masters(stage: Stage) -> None:
    """Addresses in order of broker ids, the masters alone when wanted."""
    server = await stage.broker()
    server.routes[TOPIC] = TopicRouteData(
        (QueueData("a", 1, 1, 6), QueueData("b", 1, 1, 6)),
        (BrokerData("a", "c", {1: "10.9.0.2:1", 0: "10.9.0.1:1"}), BrokerData("b", "c", {2: "10.9.0.3:1"})),
    )
    routes = routes_of(stage)
    await routes.fetch(TOPIC)
    assert routes.broker_addresses(masters_only=True) == ["10.9.0.1:1"]
    assert routes.broker_addresses(masters_only=False) == ["10.9.0.1:1", "10.9.0.2:1", "10.9.0.3:1"]
    assert routes.master_address("b") is None


@on_stage
async def test_an_error_is_not_an_unknown_topic(stage: Stage) -> None:
    """Any code but TOPIC_NOT_EXIST says nothing about the topic, and the known route stays."""
    server = await stage.broker()
    route = stage.route_to({"broker-a": 3})
    routes = routes_of(stage)
    await routes.fetch(TOPIC)
    server.answers(ROUTE, ResponseCode.SYSTEM_ERROR)
    with pytest.raises(NoRouteError, match="so says the test"):
        await routes.fetch(TOPIC)
    assert routes.known(TOPIC) == route


@on_stage
async def test_one_topic_does_not_keep_the_others_from_being_refreshed(stage: Stage) -> None:
    """An error for the first is logged; the second is known afterwards."""
    server = await stage.broker()
    stage.route_to({"broker-a": 1}, "Bad")
    stage.route_to({"broker-a": 1}, "Good")
    routes = routes_of(stage)
    await routes.fetch("Bad")
    await routes.fetch("Good")
    answer = server.on[ROUTE]
    server.on[ROUTE] = lambda command: (
        command.reply(ResponseCode.SYSTEM_ERROR, remark="bad")
        if command.decode_header(GetRouteInfoRequestHeader).topic == "Bad"
        else answer(command)
    )
    stage.route_to({"broker-a": 5}, "Good")
    await routes.refresh()
    known = routes.known("Good")
    assert known is not None
    assert known.readable_queues("Good") == [queue_at(i, topic="Good") for i in range(5)]
    assert stage.events("warning") == ["route_not_refreshed"]


@on_stage
async def test_other_questions_to_a_name_server(stage: Stage) -> None:
    """A structured answer, or RequestRefused with the server's reason."""
    server = await stage.broker()
    server.answers(LIST, TopicList(("B", "A")), ResponseCode.SYSTEM_ERROR)
    routes = routes_of(stage)
    assert (await routes.ask_for(TopicList, LIST)).topic_list == ("B", "A")
    with pytest.raises(RequestRefused, match="so says the test"):
        await routes.ask_for(TopicList, LIST)


@on_stage
async def test_a_broker_that_no_route_names_any_more_is_forgotten(stage: Stage) -> None:
    """Or heartbeats would knock at its door for ever (wire.md 12.1)."""
    first, second = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 1, "broker-b": 1})
    stage.route_to({"broker-b": 1}, "Other")
    routes = routes_of(stage)
    await routes.fetch(TOPIC)
    await routes.fetch("Other")
    stage.route_to({"broker-a": 1})
    await routes.refresh()
    assert routes.broker_addresses(masters_only=True) == [first.address, second.address], "another topic's route has it"
    stage.route_to({"broker-a": 1}, "Other")
    await routes.refresh()
    assert routes.broker_addresses(masters_only=True) == [first.address]
    assert routes.master_address("broker-b") is None


@on_stage
async def test_topics_without_a_route_have_a_bound(stage: Stage) -> None:
    """A sender of requests names the topic of their replies: those asked for longest ago are not asked for again."""
    server = await stage.broker(queues=3)
    routes = routes_of(stage)
    changed: list[str] = []
    routes.on_changed.append(changed.append)
    for topic in (TOPIC, *(f"made-up-{number}" for number in range(2000)), "made-up-1500"):
        await routes.get(topic)
    assert changed == [TOPIC, *(f"made-up-{number}" for number in range(1000))], "queues that a send found go too"
    before = len(server.requests(ROUTE))
    await routes.refresh()
    asked = [request.decode_header(GetRouteInfoRequestHeader).topic for request in server.requests(ROUTE)[before:]]
    assert sorted(asked) == sorted([TOPIC, *(f"made-up-{number}" for number in range(1000, 2000))])
    assert await routes.get("made-up-0") is None, "it is asked for when it is used"
