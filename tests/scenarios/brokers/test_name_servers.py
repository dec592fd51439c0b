"""Name servers in processes of their own: some are away, brokers join and leave, clients find and lose them."""

import pytest

from lockstep.client import (
    ConsumerConfig,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    PushConsumer,
    SendError,
    SendOutcome,
)
from tests.client.instance.web import WebServer
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster
from tests.scenarios.scenario import scenario

OTHER = "second"
NAMES = ("names-1", "names-2")
ROUND_MS, ROUTE_POLL_MS, REGISTER_MS = 20_000, 30_000, 30_000
SILENT_MAX_MS, SCAN_MS = 120_000, 10_000


async def _name_servers(cluster: Cluster, **settings: object) -> None:
    for name in NAMES:
        await cluster.start_name_server(name, **settings)


async def _broker(cluster: Cluster, name: str = BROKER, *, queues: int = 2) -> None:
    await cluster.broker(name, queues=queues)
    await cluster.world.sleep_ms(100)  # until it has registered


def _named(cluster: Cluster, name_server: str = NAMES[0], topic: str = TOPIC) -> list[str]:
    """The brokers in the topic's route."""
    server = cluster._servers[name_server].name_server
    assert server is not None
    route = server.route(topic)
    return [] if route is None else [data.broker_name for data in route.broker_datas]


def _asked_of(cluster: Cluster, client: str) -> str:
    """The name server that a client keeps to."""
    consumer = cluster.client(client)
    assert isinstance(consumer, PushConsumer)
    assert consumer._member is not None
    chosen = consumer._member.instance.name_servers._chosen
    return NAMES[0] if chosen == f"{NAMES[0]}:9876" else NAMES[1]


@scenario()
async def test_brokers_register_with_every_name_server(cluster: Cluster) -> None:
    """Both name servers know both brokers; a client of either sees the queues of both."""
    await _name_servers(cluster)
    for name in (BROKER, OTHER):
        await _broker(cluster, name)
    assert [_named(cluster, names) for names in NAMES] == [[BROKER, OTHER]] * 2
    await cluster.producer()
    await cluster.consumer("c1")
    await cluster.send(40, keys=16)
    await cluster.all_seen()
    assert {call.queue.broker_name for call in cluster.seen.all} == {BROKER, OTHER}


@scenario()
async def test_a_client_goes_on_to_the_next_name_server(cluster: Cluster) -> None:
    """Its name server dies: consumption goes on, a topic made afterwards is found through the other one, and a new
    broker is used after the next poll of routes."""
    await _name_servers(cluster)
    await _broker(cluster)
    await cluster.producer()
    await cluster.consumer("c1")
    await cluster.at(25_000)
    lost = _asked_of(cluster, "c1")
    left = next(name for name in NAMES if name != lost)
    await cluster.stop_broker(lost)
    cluster._names = (left,)  # for those who start from now on
    await cluster.send(20)
    await cluster.all_seen(timeout_ms=2000)
    await _broker(cluster, OTHER)
    await cluster.world.sleep_ms(ROUTE_POLL_MS + 2 * ROUND_MS)
    assert _asked_of(cluster, "c1") == left
    began_ms = cluster.world.elapsed_ms
    await cluster.send(40, keys=16)
    await cluster.all_seen(timeout_ms=2000)
    assert {call.queue.broker_name for call in cluster.seen.of(since_ms=began_ms)} == {BROKER, OTHER}


@scenario()
async def test_without_any_name_server_everything_goes_on(cluster: Cluster) -> None:
    """Clients keep their routes and send and consume for minutes; when a name server is back brokers register within
    seconds."""
    await _name_servers(cluster)
    await _broker(cluster)
    await cluster.producer()
    await cluster.consumer("c1")
    await cluster.send(20)
    await cluster.at(25_000)
    for name in NAMES:
        await cluster.stop_broker(name)
    await cluster.at(25_000 + 5 * 60_000)
    await cluster.send(20)
    await cluster.all_seen(timeout_ms=2000)
    assert cluster.events("route_not_refreshed", host="c1")
    await cluster.start_name_server(NAMES[1])
    await cluster.world.sleep_ms(4000)
    assert _named(cluster, NAMES[1]) == [BROKER]
    await cluster.consumer("c2")
    assert not cluster.events("route_not_refreshed", host="c2")


@scenario()
async def test_a_broker_that_dies_is_out_of_the_routes_at_once(cluster: Cluster) -> None:
    """The end of its connection is enough; clients stop connecting to it after their next poll."""
    await _name_servers(cluster)
    for name in (BROKER, OTHER):
        await _broker(cluster, name)
    await cluster.consumer("c1")
    await cluster.at(25_000)
    assert _named(cluster) == [BROKER, OTHER]
    cluster.crash(OTHER)
    await cluster.world.sleep_ms(50)
    assert _named(cluster) == [BROKER]
    await cluster.world.sleep_ms(ROUTE_POLL_MS + 2 * ROUND_MS)
    since_ms = cluster.world.elapsed_ms
    await cluster.world.sleep_ms(3 * REGISTER_MS)
    assert not cluster.events("heartbeat_failed", host="c1", since_ms=since_ms)
    consumer = cluster.client("c1")
    assert isinstance(consumer, PushConsumer)
    assert {queue.broker_name for queue in consumer.assigned_queues} == {BROKER}
    await _broker(cluster, OTHER)
    await cluster.world.sleep_ms(ROUTE_POLL_MS + 2 * ROUND_MS)
    assert {queue.broker_name for queue in consumer.assigned_queues} == {BROKER, OTHER}


@scenario()
async def test_a_broker_that_is_silent_is_forgotten_after_120_seconds(cluster: Cluster) -> None:
    """It is removed not before 120 s after its last registration and not later than one scan after that: by the scan,
    or because its connection was silent as long."""
    await _name_servers(cluster)
    await _broker(cluster)
    await _broker(cluster, OTHER)
    server = cluster._servers[NAMES[0]].name_server
    assert server is not None
    await cluster.at(45_000)
    last_ms = server._live[OTHER, 0].last_update_ms - (cluster.world.now_ms - cluster.world.elapsed_ms)
    assert 30_000 <= last_ms <= 31_000, "it registers every 30 s"
    cluster.crash(OTHER, silently=True)
    await cluster.at(last_ms + SILENT_MAX_MS)
    assert _named(cluster) == [BROKER, OTHER]
    await cluster.at(last_ms + SILENT_MAX_MS + SCAN_MS)
    assert _named(cluster) == [BROKER]
    await _broker(cluster, OTHER)  # the machine is back
    assert _named(cluster) == [BROKER, OTHER]


@scenario()
async def test_an_order_configuration_keeps_a_keys_queue(cluster: Cluster) -> None:
    """Without the configuration a key moves to another queue while a broker is away; with it sends of the key fail, and
    work again when the broker is back."""
    await _name_servers(cluster, order_message_enable=True)
    for name in (BROKER, OTHER):
        await _broker(cluster, name)
    for name in NAMES:
        server = cluster._servers[name].name_server
        assert server is not None
        server.kv_configs.put("ORDER_TOPIC_CONFIG", TOPIC, f"{OTHER}:2;{BROKER}:2")
    runtime = cluster.world.host("producer")
    config = ProducerConfig(serialize_type=cluster.serialize_type)
    producer = Producer("producers", name_server=cluster.name_server, config=config, runtime=runtime)
    await runtime.run(producer.start())

    async def send(key: str) -> MessageQueue:
        return (await runtime.run(producer.send(Message(TOPIC, b"x"), sharding_key=key))).queue

    first = {key: await send(key) for key in map(str, range(8))}
    assert {queue.broker_name for queue in first.values()} == {BROKER, OTHER}
    cluster.crash(OTHER)
    await cluster.world.sleep_ms(ROUTE_POLL_MS + 1000)
    assert _named(cluster) == [BROKER]
    for key, queue in first.items():
        if queue.broker_name == BROKER:
            assert await send(key) == queue
        else:
            with pytest.raises(SendError) as failed:
                await send(key)
            assert failed.value.outcome is SendOutcome.NOT_SENT
    await _broker(cluster, OTHER)
    await cluster.world.sleep_ms(ROUTE_POLL_MS + 1000)
    for key, queue in first.items():
        assert await send(key) == queue
    await runtime.run(producer.shutdown())


@scenario()
async def test_clients_that_know_a_domain_alone(cluster: Cluster) -> None:
    """They ask the domain for the name servers, and again every two minutes: all name servers may be replaced
    meanwhile."""
    await cluster.start_name_server(NAMES[0])
    await _broker(cluster)
    web_host = cluster.world.host("web")
    web = WebServer(web_host, cluster.name_server)
    await web_host.run(web.start(web_host.address, 8080))
    producer = Producer(
        "producers",
        config=ProducerConfig(serialize_type=cluster.serialize_type, name_server_domain="web"),
        runtime=cluster.world.host("p"),
    )
    consumer = PushConsumer(
        GROUP,
        config=ConsumerConfig(serialize_type=cluster.serialize_type, name_server_domain="web", unit_name="east"),
        listener=cluster.seen.listener(cluster.world.host("c1"), 0, {}, None),
        runtime=cluster.world.host("c1"),
    )
    consumer.subscribe(TOPIC)
    await cluster.world.host("p").run(producer.start())
    await cluster.world.host("c1").run(consumer.start())
    await cluster.world.host("p").run(producer.send(Message(TOPIC, b"0")))
    await cluster.world.until(lambda: len(cluster.seen.all) == 1, timeout_ms=60_000, poll_ms=100)
    assert set(web.asked) == {"GET /rocketmq/nsaddr HTTP/1.1", "GET /rocketmq/nsaddr-east?nofix=1 HTTP/1.1"}

    await cluster.stop_broker(NAMES[0])
    await cluster.stop_broker(BROKER)
    cluster._names = ()
    await cluster.start_name_server("names-3")
    web.says(cluster.name_server)
    await _broker(cluster, OTHER)
    await cluster.world.sleep_ms(120_000 + ROUTE_POLL_MS + 2 * ROUND_MS)
    await cluster.world.host("p").run(producer.send(Message(TOPIC, b"1")))
    await cluster.world.until(lambda: len(cluster.seen.all) == 2, timeout_ms=5000, poll_ms=100)
    assert cluster.seen.all[1].queue.broker_name == OTHER
    await cluster.world.host("c1").run(consumer.shutdown())
    await cluster.world.host("p").run(producer.shutdown())
    web.stop()


@scenario()
async def test_sends_over_the_vip_channel(cluster: Cluster) -> None:
    """Sends go to the broker's port minus two; where that port is closed they fail, while pulls do not use it."""
    await cluster.broker()
    await cluster.producer(vip_channel_enabled=True)
    await cluster.consumer("c1", vip_channel_enabled=True)
    await cluster.send(10)
    await cluster.all_seen()
    await cluster.stop_broker()
    await cluster.broker(vip_channel=False)
    with pytest.raises(SendError, match=":10909"):
        await cluster.world.host("producer").run(cluster.send_one(queue_id=0))
