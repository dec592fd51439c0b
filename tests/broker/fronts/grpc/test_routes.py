"""Routes and assignments of the front for RocketMQ 5."""

from lockstep.protocol.bodies.attributes import MESSAGE_TYPE
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.grpc import messages as pb
from lockstep.simulation import World
from tests.broker.cluster import Served
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
