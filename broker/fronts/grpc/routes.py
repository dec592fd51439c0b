"""Routes and assignments: which queues a topic has, and which a consumer reads."""

import ipaddress
from collections.abc import Iterator

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.fronts.grpc.failures import no_route
from lockstep.broker.fronts.grpc.parts import Parts
from lockstep.broker.fronts.grpc.validation import check_group, check_topic
from lockstep.protocol.bodies.attributes import MIXED
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import Permission
from lockstep.protocol.grpc import messages as pb

__all__ = ["accepted_types", "is_in_order", "query_assignment", "query_route"]

_TYPES = {name: pb.MessageType.Value(name) for name in ("NORMAL", "FIFO", "DELAY", "TRANSACTION")}


def query_route(parts: Parts, call: Call, request: pb.QueryRouteRequest, now_ms: int) -> pb.QueryRouteResponse:
    topic = check_topic(request.topic)
    config = parts.broker.catalog.topics.get(topic)
    if config is None:
        raise no_route(topic)
    answer = pb.QueryRouteResponse()
    for queue_id, permission in _queues(config):
        queue = answer.message_queues.add()
        queue.topic.CopyFrom(request.topic)
        queue.id, queue.permission = queue_id, permission
        queue.accept_message_types.extend(accepted_types(config))
        _set_broker(queue.broker, parts)
    return answer


def query_assignment(
    parts: Parts, call: Call, request: pb.QueryAssignmentRequest, now_ms: int
) -> pb.QueryAssignmentResponse:
    """Each client of a group gets all queues: the broker delivers to whoever asks first.

    A group in order reads queue by queue; others ask for any queue of the broker, id -1.
    """
    topic, group = check_topic(request.topic), check_group(request.group)
    config = parts.broker.catalog.topics.get(topic)
    if config is None:
        raise no_route(topic)
    answer = pb.QueryAssignmentResponse()
    for queue_id in range(config.read_queue_nums) if is_in_order(parts.broker, group) else (-1,):
        queue = answer.assignments.add().message_queue
        queue.topic.CopyFrom(request.topic)
        queue.id, queue.permission = queue_id, pb.READ
        _set_broker(queue.broker, parts)
    return answer


def accepted_types(config: TopicConfig) -> tuple[pb.MessageType, ...]:
    """The one that its attribute says; of a mixed topic all that there are. A topic without it takes NORMAL."""
    if config.message_type == MIXED:
        return tuple(_TYPES.values())
    found = _TYPES.get(config.message_type)
    return () if found is None else (found,)


def is_in_order(broker: Broker, group: str) -> bool:
    config = broker.catalog.groups.get(group)
    return config is not None and bool(config.consume_message_orderly)


def _queues(config: TopicConfig) -> Iterator[tuple[int, pb.Permission]]:
    """Id and permission of each queue: those that can be read and written come first."""
    reads = config.read_queue_nums if config.perm & Permission.READ else 0
    writes = config.write_queue_nums if config.perm & Permission.WRITE else 0
    for queue_id in range(max(reads, writes)):
        if queue_id < min(reads, writes):
            yield queue_id, pb.READ_WRITE
        else:
            yield queue_id, pb.READ if queue_id < reads else pb.WRITE


def _set_broker(target: pb.Broker, parts: Parts) -> None:
    config = parts.broker.config
    target.name, target.id = config.broker_name, config.broker_id
    host = config.advertised_host
    target.endpoints.scheme = _scheme(host)
    address = target.endpoints.addresses.add()
    address.host, address.port = host, parts.port()


def _scheme(host: str) -> pb.AddressScheme:
    try:
        return pb.IPv6 if ipaddress.ip_address(host).version == 6 else pb.IPv4
    except ValueError:
        return pb.DOMAIN_NAME
