"""Name servers: begun with at random, kept while they answer, discovered over HTTP (wire.md 12.1)."""

import asyncio

import pytest

from lockstep.client.config import ClientConfig, ConsumerConfig
from lockstep.client.errors import NoRouteError
from lockstep.client.instance.client import name_server_addresses
from lockstep.client.instance.name_servers import discovery_url
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader
from lockstep.remoting.settings import Address, SettingError
from tests.client.instance.web import WebServer
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
FIRST_MS, ROUND_MS = 10_000, 120_000


async def two_servers(stage: Stage) -> dict[str, FakeBroker]:
    servers = [await stage.broker("names-1"), await stage.broker("names-2")]
    stage.route_to({"names-1": 1})
    return {server.name_server: server for server in servers}


@on_stage
async def test_clients_begin_with_any_of_them(stage: Stage) -> None:
    """So that a name server has its share of many clients; each keeps to its own."""
    servers = await two_servers(stage)
    for _ in range(20):
        routes = stage.instance().routes
        before = {name: len(server.requests(ROUTE)) for name, server in servers.items()}
        for _ in range(3):
            await routes.fetch(TOPIC)
        asked = [len(server.requests(ROUTE)) - before[name] for name, server in servers.items()]
        assert sorted(asked) == [0, 3]
    assert all(len(server.requests(ROUTE)) >= 9 for server in servers.values())


@on_stage
async def test_the_next_when_one_is_silent(stage: Stage) -> None:
    """After the timeout of one request; the one that answered is kept until it fails too, however the first is."""
    servers = await two_servers(stage)
    instance = stage.instance(ClientConfig(request_timeout_ms=3000))
    address, _ = await instance.name_servers.ask(ROUTE, GetRouteInfoRequestHeader(TOPIC))
    silent = servers.pop(address)
    (good,) = servers.values()
    answer = silent.on[ROUTE]
    silent.answers(ROUTE, None)
    began_ms = stage.world.elapsed_ms
    assert await instance.routes.fetch(TOPIC) is not None
    assert 3000 <= stage.world.elapsed_ms - began_ms < 3100
    silent.on[ROUTE] = answer
    for _ in range(3):
        await instance.routes.fetch(TOPIC)
    assert (len(silent.requests(ROUTE)), len(good.requests(ROUTE))) == (2, 4)
    good.stop()
    assert await instance.routes.fetch(TOPIC) is not None
    assert len(silent.requests(ROUTE)) == 3
    assert stage.events("info").count("name_server_changed") == 2


@on_stage
async def test_who_asks_at_once_is_not_sent_back_to_the_silent_one(stage: Stage) -> None:
    """Several questions meet the same failure; each goes on to the other, and it is the one from then on."""
    servers = await two_servers(stage)
    instance = stage.instance(ClientConfig(request_timeout_ms=3000))
    address, _ = await instance.name_servers.ask(ROUTE, GetRouteInfoRequestHeader(TOPIC))
    servers.pop(address).stop()
    (good,) = servers.values()
    assert all(await asyncio.gather(*[instance.routes.fetch(TOPIC) for _ in range(4)]))
    assert (await instance.name_servers.ask(ROUTE, GetRouteInfoRequestHeader(TOPIC)))[0] == good.name_server
    assert len(good.requests(ROUTE)) == 5


@on_stage
async def test_a_broker_is_no_name_server(stage: Stage) -> None:
    """It is named with what it does not know, and the next one is asked."""
    await two_servers(stage)
    broker, *others = stage.brokers
    broker.answers(ROUTE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    both = stage.instance(name_server=stage.name_server)
    assert (await both.name_servers.ask(ROUTE, GetRouteInfoRequestHeader(TOPIC)))[0] == others[0].name_server
    alone = stage.instance(name_server=broker.name_server)
    with pytest.raises(NoRouteError) as caught:
        await alone.name_servers.ask(ROUTE, GetRouteInfoRequestHeader(TOPIC))
    assert str(caught.value) == (
        f"no name server answered: {broker.name_server} does not know GET_ROUTEINFO_BY_TOPIC (105) and so is no name "
        "server; by default a name server listens on port 9876, and a broker on 10911"
    )


@on_stage
async def test_no_name_server_answers(stage: Stage) -> None:
    """Each is tried once, the error tells of each, and what was learned stays."""
    servers = await two_servers(stage)
    routes = stage.instance().routes
    route = await routes.fetch(TOPIC)
    for server in servers.values():
        server.stop()
    with pytest.raises(NoRouteError, match="no name server answered") as caught:
        await routes.fetch(TOPIC)
    assert all(name in str(caught.value) for name in servers)
    await routes.refresh()
    assert routes.known(TOPIC) == route is not None
    assert routes.master_address("names-1") is not None


# Discovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"name_server_domain": "names"}, "http://names:8080/rocketmq/nsaddr"),
        ({"name_server_domain": "names:80"}, "http://names:80/rocketmq/nsaddr"),
        ({"name_server_domain": "names", "unit_name": "east"}, "http://names:8080/rocketmq/nsaddr-east?nofix=1"),
        (
            {"name_server_domain": "names", "name_server_domain_subgroup": "mine"},
            "http://names:8080/rocketmq/mine",
        ),
        ({}, None),
        ({"unit_name": "east"}, None),
    ],
)
def test_the_page_that_is_asked(settings: dict[str, str], url: str | None) -> None:
    """RocketMQ's, on port 8080 unless the domain has one; no domain of somebody else's is asked by default."""
    assert discovery_url(ClientConfig(**settings)) == url  # type: ignore[arg-type]


def test_a_given_address_or_a_domain_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given wins; the domain counts when nothing is."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    config = ConsumerConfig(name_server_domain="names")
    assert name_server_addresses(None, config) == ()
    assert name_server_addresses("a:1", config) == (Address("a", 1),)
    monkeypatch.setenv("NAMESRV_ADDR", "b:2")
    assert name_server_addresses(None, config) == (Address("b", 2),)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(SettingError, match="no name server"):
        name_server_addresses(None, ConsumerConfig())


async def web_server(stage: Stage, text: str) -> WebServer:
    runtime = stage.world.host("web")
    web = WebServer(runtime, text)
    await runtime.run(web.start(runtime.address, 8080))

    async def close() -> None:
        web.stop()

    stage.on_close.append(close)
    return web


DISCOVERS = ClientConfig(name_server_domain="web", request_timeout_ms=3000)


@on_stage
async def test_name_servers_are_discovered_before_the_first_question(stage: Stage) -> None:
    """Only the first line counts; spaces and line ends around it do not."""
    server = await stage.broker(queues=1)
    web = await web_server(stage, f" {server.name_server}; \r\nanything else")
    instance = stage.instance(DISCOVERS, name_server="")
    assert instance.name_servers.text == ""
    assert await instance.routes.fetch(TOPIC) is not None
    assert (instance.name_servers.text, len(web.asked)) == (server.name_server, 1)
    assert server.name_server in instance.name_servers


@on_stage
async def test_they_are_asked_for_anew_every_two_minutes(stage: Stage) -> None:
    """First after 10 s; from the next question on the new ones are asked, and the old are no longer."""
    old, new = await stage.broker("names-1"), await stage.broker("names-2")
    stage.route_to({"names-1": 1})
    web = await web_server(stage, old.name_server)
    instance = stage.instance(DISCOVERS, name_server="")
    began_ms = stage.client.now_ms()
    await instance.routes.fetch(TOPIC)
    instance.start()
    web.says(new.name_server)
    for due_ms in (FIRST_MS, FIRST_MS + ROUND_MS):
        seen = len(web.asked)
        await stage.world.sleep_ms(due_ms - 100 - (stage.client.now_ms() - began_ms))
        assert len(web.asked) == seen
        await stage.world.sleep_ms(200)
        assert len(web.asked) == seen + 1
    asked = len(old.requests(ROUTE))
    await instance.routes.fetch(TOPIC)
    assert len(old.requests(ROUTE)) == asked
    assert stage.events("info").count("name_servers_discovered") == 2


@pytest.mark.parametrize("text", ["", "no address", "names-1"])
@on_stage
async def test_what_names_no_server_changes_nothing(stage: Stage, text: str) -> None:
    """A page that is empty or wrong, a server that is gone: the addresses stay, and the log says why."""
    server = await stage.broker(queues=1)
    web = await web_server(stage, server.name_server)
    instance = stage.instance(DISCOVERS, name_server="")
    await instance.routes.fetch(TOPIC)
    web.says(text)
    await instance.name_servers.discover()
    web.says("server on fire", "500 Sorry")
    await instance.name_servers.discover()
    web.stop()
    await instance.name_servers.discover()
    assert await instance.routes.fetch(TOPIC) is not None
    assert stage.events("warning") == ["name_servers_not_discovered"] * 3


@on_stage
async def test_nobody_says_where_the_name_servers_are(stage: Stage) -> None:
    """An error that names the page; the next question asks there again."""
    web = await web_server(stage, "")
    instance = stage.instance(DISCOVERS, name_server="")
    for count in (1, 2):
        with pytest.raises(NoRouteError, match="no name server is known: http://web:8080/rocketmq/nsaddr named none"):
            await instance.routes.fetch(TOPIC)
        assert len(web.asked) == count


@on_stage
async def test_a_unit_is_part_of_the_client_id(stage: Stage) -> None:
    """As in RocketMQ: ip@instance@unit."""
    await stage.broker()
    instance = stage.instance(ClientConfig(unit_name="east", instance_name="one"))
    assert instance.client_id == f"{stage.client.address}@one@east"
