"""Brokers and name servers in different processes (wire.md 2.7, 10.4)."""

from typing import Any

import pytest

from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer
from lockstep.broker.registration import TOPICS_A_PART
from lockstep.protocol.bodies.broker import TopicConfig, TopicConfigs
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader, UnregisterBrokerRequestHeader
from lockstep.protocol.names import HALF_TOPIC
from lockstep.simulation import World, simulate
from tests.broker.cluster import NAME_SERVER_PORT, Client, Served, serve
from tests.broker.helpers import consumer, heartbeat_of, send_header

R = RequestCode
T = SubscriptionData.parse("T", "*")


async def name_server(world: World, name: str = "ns") -> Served:
    return await serve(world.host(name), serve_broker=False)


async def broker(world: World, name: str, *name_servers: str) -> Served:
    addresses = ";".join(f"{world.host(server).address}:{NAME_SERVER_PORT}" for server in name_servers)
    return await serve(world.host(name), serve_name_server=False, name_servers=addresses, broker_name=name)


async def brokers_of(client: Client, server: Served, topic: str) -> list[str]:
    route = await client.route(server.server.name_server_address, topic)
    return [data.broker_name for data in route.broker_datas] if route is not None else []


async def end(client: Client, *servers: Served) -> None:
    client.close()
    for served in servers:
        await served.server.shutdown()


def test_several_brokers_register_with_one_name_server() -> None:
    """A topic made on both has queues on both, at once and not after 30 s; one that leaves is forgotten at once."""

    async def scenario(world: World) -> None:
        server, client = await name_server(world), Client(world.host("c1"))
        first, second = await broker(world, "one", "ns"), await broker(world, "two", "ns")
        for served in (first, second):
            await client.call(served.address, R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("T", "", 4, 4, 6))
        await world.sleep_ms(100)
        assert await brokers_of(client, server, "T") == ["one", "two"]
        await first.server.shutdown()
        assert await brokers_of(client, server, "T") == ["two"]
        await end(client, second, server)

    simulate(scenario)


def test_topics_of_sends_and_retry_topics_of_heartbeats_reach_the_name_server_soon() -> None:
    """Within a moment, by a registration of their own."""

    async def scenario(world: World) -> None:
        server, client = await name_server(world), Client(world.host("c1"))
        served = await broker(world, "one", "ns")
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("made"), b"x")
        group = consumer("G", SubscriptionData.parse("T", "*"))
        await client.call(served.address, R.HEART_BEAT, None, heartbeat_of("a", group))
        await world.sleep_ms(100)
        assert await brokers_of(client, server, "made") == ["one"]
        assert await brokers_of(client, server, "%RETRY%G") == ["one"]
        await end(client, served, server)

    simulate(scenario)


def test_a_name_server_that_is_away_costs_the_broker_nothing_and_is_told_when_it_is_back() -> None:
    """Away at the start, then up, then restarted: known again within seconds each time; one warning an outage."""

    async def scenario(world: World) -> None:
        world.host("ns")
        served, client = await broker(world, "one", "ns"), Client(world.host("c1"))
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        await world.sleep_ms(60_000)
        server = await name_server(world)
        await world.sleep_ms(4000)
        assert await brokers_of(client, server, "T") == ["one"]
        world.crash("ns")
        await world.sleep_ms(20_000)
        server = await name_server(world)
        await world.sleep_ms(4000)
        assert await brokers_of(client, server, "T") == ["one"]
        assert served.log.names("warning") == ["registration_failed"] * 2
        await end(client, served, server)

    simulate(scenario)


def test_a_broker_stays_known_for_hours() -> None:
    """Its registration each 30 s keeps it alive, over the wire and in its own process."""

    async def scenario(world: World) -> None:
        server, client = await name_server(world), Client(world.host("c1"))
        remote, own = await broker(world, "one", "ns"), await serve(world.host("two"))
        for served in (remote, own):
            await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        await world.sleep_ms(3 * 3_600_000)
        assert await brokers_of(client, server, "T") == ["one"]
        assert await brokers_of(client, own, "T") == ["broker-a"]
        assert server.log.names("warning") == []
        await end(client, remote, own, server)

    simulate(scenario)


def test_a_registration_that_fits_no_frame_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with too many topics says so once, serves on, and is registered when it has fewer."""

    async def scenario(world: World) -> None:
        server, client = await name_server(world), Client(world.host("c1"))
        monkeypatch.setattr("lockstep.protocol.frame.FRAME_BYTES_MAX", 300)
        served = await broker(world, "one", "ns")
        await world.sleep_ms(10_000)
        assert served.log.names("warning") == ["registration_failed"]
        monkeypatch.undo()
        await world.sleep_ms(4000)
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        await world.sleep_ms(100)
        assert await brokers_of(client, server, "T") == ["one"]
        await end(client, served, server)

    simulate(scenario)


def test_transactions_are_looked_at_though_nobody_sends() -> None:
    """The first round comes a minute after the start, before anything was read: its topic is there then."""

    async def scenario(world: World) -> None:
        served = await serve(world.host("one"), broker_name="one")
        assert served.server.broker is not None
        topics = served.server.broker.catalog.topics
        await world.sleep_ms(59_000)
        assert topics.get(HALF_TOPIC) is None
        await world.sleep_ms(2000)
        assert topics.get(HALF_TOPIC) is not None
        await served.server.shutdown()

    simulate(scenario)


def test_a_new_topic_is_told_alone_and_all_of_them_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """At start and each 30 s all topics are registered, 500 in a request; after a change only changed ones. The name
    server reads each part and keeps the version of the last."""
    told: list[tuple[int, int]] = []
    register = NameServer.register_in_steps

    def recording(self: NameServer, identity: Any, configs: TopicConfigs, connection: Any, now_ms: int) -> Any:
        told.append((now_ms, len(configs.topics)))
        return register(self, identity, configs, connection, now_ms)

    async def scenario(world: World) -> None:
        server, client = await name_server(world), Client(world.host("c1"))
        served = await broker(world, "one", "ns")
        monkeypatch.setattr(NameServer, "register_in_steps", recording)
        await world.sleep_ms(100)
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        await world.sleep_ms(100)
        assert served.server.broker is not None
        for number in range(1200):
            served.server.broker.catalog.topics.put(TopicConfig(f"many-{number}"), world.now_ms)
        await world.sleep_ms(1000)
        assert [count for _, count in told] == [8, 1, 500, 500, 200]
        await world.sleep_ms(30_000)
        assert [count for _, count in told[5:]] == [500, 500, 209]
        assert server.server.name_server is not None
        assert len(server.server.name_server.topics()) == 1209
        identity = BrokerIdentity("DefaultCluster", "one", 0, served.address)
        assert server.server.name_server.touch(identity, 0) == served.server.broker.catalog.topics.data_version
        await end(client, served, server)

    simulate(scenario)


def test_members_are_told_when_name_servers_know_the_retry_topic() -> None:
    """A member that acts on the notice at once finds the route; a name server that hangs delays the notice by a
    second."""

    async def scenario(world: World) -> None:
        server, client = await name_server(world), Client(world.host("c1"))
        served = await broker(world, "one", "ns")
        await world.sleep_ms(100)
        found: list[list[str]] = []
        names = server.server.name_server
        assert names is not None
        client.on_pushed = lambda: found.append(list(names.topics()))
        began_ms = world.now_ms
        await client.call(served.address, R.HEART_BEAT, None, heartbeat_of("a", consumer("G", T)))
        assert len(found) == 1
        assert "%RETRY%G" in found[0]
        assert world.now_ms - began_ms < 100, "it does not wait for the second to end"
        world.crash("ns", silently=True)
        began_ms = world.now_ms
        reply = await client.call(served.address, R.HEART_BEAT, None, heartbeat_of("a", consumer("H", T)))
        assert (reply.code, len(found)) == (0, 2)
        assert 1000 <= world.now_ms - began_ms < 1100
        await end(client, served)

    simulate(scenario)


def test_nobody_else_takes_the_broker_of_this_process_out_of_its_name_server() -> None:
    """Code 104 is answered as in RocketMQ and changes nothing; a removed route is back within 30 s."""

    async def scenario(world: World) -> None:
        client, served = Client(world.host("c1")), await serve(world.host("one"), broker_name="one")
        names = served.server.name_server
        assert names is not None
        header = UnregisterBrokerRequestHeader("one", served.address, "DefaultCluster", 0)
        reply = await client.call(served.server.name_server_address, R.UNREGISTER_BROKER, header)
        assert (reply.code, await brokers_of(client, served, "TBW102")) == (0, ["one"])
        assert served.log.names("warning") == ["unregister_ignored"]
        assert names.unregister(BrokerIdentity("DefaultCluster", "one", 0, served.address), None)
        assert await brokers_of(client, served, "TBW102") == []
        await world.sleep_ms(30_000)
        assert await brokers_of(client, served, "TBW102") == ["one"]
        await end(client, served)

    simulate(scenario)


@pytest.mark.parametrize("own", [False, True])
def test_an_order_configuration_marks_the_brokers_topic(own: bool) -> None:
    """At the next registration, and with the name server in the same process as often; other topics stay as they are,
    and one that is no longer configured stays marked, as in RocketMQ."""

    async def scenario(world: World) -> None:
        client = Client(world.host("c1"))
        names = await serve(world.host("one"), broker_name="one") if own else await name_server(world)
        served = names if own else await broker(world, "one", "ns")
        core = served.server.broker
        assert core is not None
        assert names.server.name_server is not None
        for topic in ("T", "U", HALF_TOPIC):  # the last, or the first round of transactions would make it meanwhile
            core.catalog.topics.put(TopicConfig(topic, 4, 4), world.now_ms)
        await world.sleep_ms(1000)
        names.server.name_server.kv_configs.put("ORDER_TOPIC_CONFIG", "T", "one:4")
        names.server.name_server.kv_configs.put("ORDER_TOPIC_CONFIG", "elsewhere", "two:4")
        await world.sleep_ms(28_000)
        version = core.catalog.topics.data_version
        assert not any(config.order for config in core.catalog.topics.topics)
        await world.sleep_ms(2500)
        assert [config.topic_name for config in core.catalog.topics.topics if config.order] == ["T"]
        assert core.catalog.topics.data_version.counter == version.counter + 1
        names.server.name_server.kv_configs.delete("ORDER_TOPIC_CONFIG", "T")
        await world.sleep_ms(60_000)
        assert [config.topic_name for config in core.catalog.topics.topics if config.order] == ["T"]
        assert core.catalog.topics.data_version.counter == version.counter + 1
        await end(client, *dict.fromkeys((served, names)))

    simulate(scenario)


def test_a_change_of_all_topics_costs_no_note_of_each_for_each_name_server() -> None:
    """All are registered again, in parts; few that change are registered by themselves."""

    async def scenario(world: World) -> None:
        server, client = await name_server(world), Client(world.host("c1"))
        served = await broker(world, "one", "ns")
        assert served.server.broker is not None
        table = served.server.broker.catalog.topics
        table.restore([TopicConfig(f"T{number}") for number in range(TOPICS_A_PART + 1)], table.data_version)
        remote = served.server._registration._remotes[0]  # type: ignore[union-attr]
        table.register_all(world.host("one").now_ms())
        assert remote._names == {}
        await world.sleep_ms(100)
        assert await brokers_of(client, server, f"T{TOPICS_A_PART}") == ["one"]
        await end(client, served, server)

    simulate(scenario)
