"""Routes and assignments of the front for RocketMQ 5."""

import asyncio
from typing import Any

from lockstep.protocol.bodies.attributes import MESSAGE_TYPE
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader
from lockstep.simulation import World, simulate
from tests.broker.cluster import Client, Served, serve
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker


def test_a_route_names_this_port() -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        route = await client.call("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T")))
        assert [queue.id for queue in route.message_queues] == [0, 1, 2, 3]
        address = route.message_queues[0].broker.endpoints.addresses[0]
        assert f"{address.host}:{address.port}" == served.server.grpc_address

    on_a_broker(story)


def test_each_client_of_a_group_gets_all_queues() -> None:
    """A group in order queue by queue, others any queue of the broker."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for group, queue_ids in (("G", [0, 1, 2, 3]), ("free", [-1])):
            request = pb.QueryAssignmentRequest(topic=topic_of("T"), group=topic_of(group))
            answer = await client.call("QueryAssignment", request)
            assert [one.message_queue.id for one in answer.assignments] == queue_ids

    on_a_broker(story)


def test_a_topic_takes_its_type_alone() -> None:
    """Its route says which; another type is refused, and a topic without a type takes NORMAL."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        assert served.server.broker is not None
        topics = served.server.broker.catalog.topics
        topics.put(TopicConfig("ordered", 1, 1, attributes=((MESSAGE_TYPE, "FIFO"),)), world.now_ms)
        topics.put(TopicConfig("plain", 1, 1), world.now_ms)
        for topic, group, accepted in (("ordered", "key", pb.FIFO), ("plain", "", pb.NORMAL)):
            route = await client.call("QueryRoute", pb.QueryRouteRequest(topic=topic_of(topic)))
            assert route.message_queues[0].accept_message_types == [accepted]
            assert (await client.send(topic, b"right", group=group)).status.code == pb.OK
            wrong = await client.send(topic, b"wrong", group="" if group else "key")
            assert wrong.status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE

    on_a_broker(story)


def test_a_broker_that_may_not_write_says_so() -> None:
    """As to the name server: another broker is the one to write to."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        route = await client.call("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T")))
        assert {queue.permission for queue in route.message_queues} == {pb.READ}

    on_a_broker(story, broker_permission=4)


def queues_of(route: pb.QueryRouteResponse) -> list[tuple[str, int, int, bool]]:
    """Broker, port and id of each queue, and whether it is written to."""
    return [
        (one.broker.name, one.broker.endpoints.addresses[0].port, one.id, one.permission == pb.READ_WRITE)
        for one in route.message_queues
    ]


def test_brokers_of_a_name_server_answer_for_each_other() -> None:
    """In one order; a topic with message groups is written to on one broker. Others than brokers learn no port."""

    async def scenario(world: World) -> None:
        hosts = {name: world.host(name) for name in ("b", "a")}
        name_server = f"{hosts['b'].address}:9876"
        join = {"serve_name_server": False, "name_servers": name_server}
        settings: dict[str, dict[str, Any]] = {"b": {"grpc_port": 8081}, "a": {"grpc_port": 8082, **join}}
        served = [await serve(hosts[name], broker_name=f"broker-{name}", **settings[name]) for name in hosts]
        without = await serve(world.host("c"), broker_name="broker-c", **join)
        for one in (*served, without):
            assert one.server.broker is not None
            attributes = ((MESSAGE_TYPE, "FIFO"),)
            one.server.broker.catalog.topics.put(TopicConfig("ordered", 1, 1, attributes=attributes), world.now_ms)
            one.server.broker.catalog.topics.put(TopicConfig("plain", 1, 1), world.now_ms)
        await asyncio.sleep(1)
        for one in served:
            client = await GrpcClient.connect(
                world.host(f"client of {one.server.grpc_address}"), one.server.grpc_address
            )
            for topic, writes_b in (("ordered", False), ("plain", True)):
                route = await client.call("QueryRoute", pb.QueryRouteRequest(topic=topic_of(topic)))
                assert queues_of(route) == [("broker-a", 8082, 0, True), ("broker-b", 8081, 0, writes_b)]
            request = pb.QueryAssignmentRequest(topic=topic_of("plain"), group=topic_of("free"))
            answer = await client.call("QueryAssignment", request)
            assert [one.message_queue.broker.name for one in answer.assignments] == ["broker-a", "broker-b"]
            client.close()
        other = Client(world.host("tool"), SerializeType.JSON)
        reply = await other.call(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("plain"))
        assert (b"broker-c" in reply.body, b"grpcPort" in reply.body) == (True, False)
        other.close()
        await without.server.shutdown()
        await served[0].server.shutdown()
        # Without a name server the last route counts; a broker that was told none answers for itself.
        client = await GrpcClient.connect(world.host("last"), served[1].server.grpc_address)
        served[1].server.create_topic("new", 1)
        for topic, expected in (
            ("plain", [("broker-a", 8082, 0, True), ("broker-b", 8081, 0, True)]),
            ("new", [("broker-a", 8082, 0, True)]),
        ):
            route = await client.call("QueryRoute", pb.QueryRouteRequest(topic=topic_of(topic)))
            assert queues_of(route) == expected
        client.close()
        await served[1].server.shutdown()

    simulate(scenario)
