"""Routes and assignments: which queues a topic has, and which a consumer reads."""

import ipaddress
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.grpc.call import Call, answer_with
from lockstep.broker.fronts.grpc.failures import no_route
from lockstep.broker.fronts.grpc.parts import Parts
from lockstep.broker.fronts.grpc.validation import check_group, check_topic
from lockstep.protocol.bodies.attributes import MIXED
from lockstep.protocol.bodies.broker import QueueData, TopicConfig, TopicRouteData
from lockstep.protocol.codes import MASTER_ID, Permission
from lockstep.protocol.grpc import messages as pb
from lockstep.remoting.settings import PORT_MAX

__all__ = ["accepted_types", "is_in_order", "query_assignment", "query_route"]

_TYPES = {name: pb.MessageType.Value(name) for name in ("NORMAL", "FIFO", "DELAY", "TRANSACTION")}


class _OfBroker(NamedTuple):
    """The queues of a topic on one broker, and where clients reach it."""

    name: str
    broker_id: int
    host: str
    port: int
    reads: int
    writes: int


def query_route(parts: Parts, call: Call, request: pb.QueryRouteRequest, now_ms: int) -> None:
    topic = check_topic(request.topic)
    config = parts.broker.catalog.topics.get(topic)
    if config is None:
        raise no_route(topic)
    parts.ask_route(topic, partial(_give_route, parts, call, request.topic, config))


def _give_route(
    parts: Parts, call: Call, topic: pb.Resource, config: TopicConfig, route: TopicRouteData | None
) -> None:
    answer, types = pb.QueryRouteResponse(), accepted_types(config)
    answer.status.code, answer.status.message = pb.OK, "OK"
    brokers = _brokers(parts.broker, config, route)
    if pb.FIFO in types:
        brokers = _one_writable(brokers)
    for one in brokers:
        # One is made, and copied: a topic may have thousands of queues.
        like = pb.MessageQueue(topic=topic, accept_message_types=types)
        _set_broker(like.broker, one)
        for queue_id, permission in _queues(one):
            like.id, like.permission = queue_id, permission
            answer.message_queues.append(like)
    answer_with(call, answer)


def _one_writable(brokers: list[_OfBroker]) -> list[_OfBroker]:
    """Of a topic with message groups only the first broker is written to; all are read.

    A client sends a message group to the broker that a hash of its own names, and clients of two languages have two:
    the messages of a group would go to two brokers. RocketMQ's proxy sends them on to the queue of its hash.
    """
    writer = next((one.name for one in brokers if one.writes), None)
    return [one if one.name == writer else one._replace(writes=0) for one in brokers]


def query_assignment(parts: Parts, call: Call, request: pb.QueryAssignmentRequest, now_ms: int) -> None:
    """Each client of a group gets all queues: the broker delivers to whoever asks first.

    A group in order reads queue by queue; others ask for any queue of the broker, id -1.
    """
    topic, group = check_topic(request.topic), check_group(request.group)
    config = parts.broker.catalog.topics.get(topic)
    if config is None:
        raise no_route(topic)
    in_order = is_in_order(parts.broker, group)
    parts.ask_route(topic, partial(_give_assignment, parts, call, request.topic, config, in_order))


def _give_assignment(
    parts: Parts, call: Call, topic: pb.Resource, config: TopicConfig, in_order: bool, route: TopicRouteData | None
) -> None:
    answer = pb.QueryAssignmentResponse()
    answer.status.code, answer.status.message = pb.OK, "OK"
    for one in _brokers(parts.broker, config, route):
        # The permission is as RocketMQ says it, of a queue that nobody may write to as well.
        like = pb.Assignment(message_queue=pb.MessageQueue(topic=topic, permission=pb.READ_WRITE))
        _set_broker(like.message_queue.broker, one)
        for queue_id in range(one.reads) if in_order else (-1,):
            like.message_queue.id = queue_id
            answer.assignments.append(like)
    answer_with(call, answer)


def accepted_types(config: TopicConfig) -> tuple[pb.MessageType, ...]:
    """The one that its attribute says; of a mixed topic all that there are. A topic without it takes NORMAL."""
    if config.message_type == MIXED:
        return tuple(_TYPES.values())
    found = _TYPES.get(config.message_type)
    return () if found is None else (found,)


def is_in_order(broker: Broker, group: str) -> bool:
    config = broker.catalog.groups.get(group)
    return config is not None and bool(config.consume_message_orderly)


def _brokers(broker: Broker, config: TopicConfig, route: TopicRouteData | None) -> list[_OfBroker]:
    """This broker, and those of the route whose port is known, by name: clients count the queues in this order."""
    own, (config,) = broker.config, broker.as_registered((config,))
    here = _OfBroker(own.broker_name, own.broker_id, own.advertised_host, broker.grpc_port, *_counts(config))
    found = {here.name: here}
    datas = {} if route is None else {data.broker_name: data for data in route.broker_datas}
    for queues in () if route is None else route.queue_datas:
        data = datas.get(queues.broker_name)
        if data is not None and data.master_addr and 0 < data.grpc_port <= PORT_MAX:
            host = data.master_addr.rpartition(":")[0].strip("[]")
            there = _OfBroker(data.broker_name, MASTER_ID, host, data.grpc_port, *_counts(queues))
            found.setdefault(there.name, there)
    return [found[name] for name in sorted(found)]


def _counts(config: TopicConfig | QueueData) -> tuple[int, int]:
    """How many queues can be read, and how many written."""
    reads = config.read_queue_nums if config.perm & Permission.READ else 0
    return reads, config.write_queue_nums if config.perm & Permission.WRITE else 0


def _queues(one: _OfBroker) -> Iterator[tuple[int, pb.Permission]]:
    """Id and permission of each queue: those that can be read and written come first."""
    for queue_id in range(max(one.reads, one.writes)):
        if queue_id < min(one.reads, one.writes):
            yield queue_id, pb.READ_WRITE
        else:
            yield queue_id, pb.READ if queue_id < one.reads else pb.WRITE


def _set_broker(target: pb.Broker, one: _OfBroker) -> None:
    target.name, target.id = one.name, one.broker_id
    target.endpoints.scheme = _scheme(one.host)
    address = target.endpoints.addresses.add()
    address.host, address.port = one.host, one.port


def _scheme(host: str) -> pb.AddressScheme:
    try:
        return pb.IPv6 if ipaddress.ip_address(host).version == 6 else pb.IPv4
    except ValueError:
        return pb.DOMAIN_NAME
