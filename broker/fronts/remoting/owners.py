"""The answer to a member that asks for the members of its group and the owners of their queues (docs/fencing.md)."""

from functools import partial

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.ownership.port import Owners
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.command import RemotingCommand

__all__ = ["list_owners"]


def list_owners(
    broker: Broker,
    connection: Connection,
    command: RemotingCommand,
    group: str,
    client_ids: tuple[str, ...],
    owners: Owners,
) -> RemotingCommand | None:
    """Answer with the members, and the owners among them."""
    asked, version = (group, command.serialize_type), (client_ids, owners.version)
    write = partial(_written, client_ids, owners, command.serialize_type)
    return reply_in_steps(broker, connection, command, partial(broker.owner_lists.steps, asked, version, write))


def _written(client_ids: tuple[str, ...], owners: Owners, serialize_type: int) -> BodySteps:
    places = {client_id: place for place, client_id in enumerate(client_ids)}
    rows = (
        (topic, queue_id, places[client_id], since_ms)
        for topic, queue_id, client_id, since_ms in owners.rows
        if client_id in places
    )
    return encode_list({"consumerIdList": list(client_ids)}, "owners", rows, serialize_type)
