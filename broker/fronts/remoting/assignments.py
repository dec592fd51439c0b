"""The broker shares the queues of a topic out: codes 400, 401, 402 (docs/wire.md 18.1)."""

from lockstep.broker.connection import Connection
from lockstep.broker.core import assignments as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.request_body import read_body
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.pop import AssignmentsBody, QueryAssignmentBody, RequestMode
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand

__all__ = ["all_modes", "query_assignment", "set_mode"]


def query_assignment(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    found = core.assignments(broker, read_body(QueryAssignmentBody, command))
    body = encode_body(AssignmentsBody(found), command.serialize_type)
    return command.reply(ResponseCode.SUCCESS, body=body)


def set_mode(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    mode = read_body(RequestMode, command)
    core.set_mode(broker, mode)
    broker.log.info(
        "request_mode_changed",
        topic=mode.topic,
        group=mode.consumer_group,
        mode=mode.mode,
        peer=connection.address,
    )
    return command.reply(ResponseCode.SUCCESS)


def all_modes(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    return command.reply(
        ResponseCode.SUCCESS, body=encode_body(broker.messages.pops.modes.body(), command.serialize_type)
    )
