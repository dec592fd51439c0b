"""Requests that the broker forwards to a consumer and answers later: codes 223, 307, 309 (wire.md 2.2, 2.4)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from lockstep.broker.catalog.members import ClientChannel
from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.query import message_by_id
from lockstep.broker.fronts.remoting.notices import connection_of
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.client import ConsumeMessageDirectlyResult, ConsumerRunningInfo, GetConsumerStatusBody
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.rows import BODY_ROWS_BYTES_MAX
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError, ProtocolError, RemoteProtocolError
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError, RequestTimeout

__all__ = ["consume_directly", "consumer_status", "running_info"]

B = TypeVar("B", bound=WireBody)

_CALL_TIMEOUT_MS: Final = 10_000
_STATUS_TIMEOUT_MS: Final = 5000
_RUNNING_INFO_VERSION: Final = 62  # V3_1_8_SNAPSHOT, wire.md 1.4
_STATUS_VERSION: Final = 28  # V3_0_7_SNAPSHOT
_ANSWER_BYTES_MAX: Final = 1024 * 1024
# RocketMQ's running information has about 150 bytes a queue.
_DIALECT_BYTES_MAX: Final = 128 * 1024
_MSGPACK: Final = int(SerializeType.MSGPACK)


# One consumer -----------------------------------------------------------------------------------------------------


def running_info(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    header = command.decode_header(GetConsumerRunningInfoRequestHeader)
    _forward(broker, connection, command, RemotingCommand(command.code, header), ConsumerRunningInfo)
    return None


def consume_directly(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Let one consumer handle one message again; the broker sends the message along."""
    header = command.decode_header(ConsumeMessageDirectlyRequestHeader)
    message = message_by_id(broker, header.msg_id)
    header = header._replace(broker_name=broker.config.broker_name)
    request = RemotingCommand(command.code, header, message)
    _forward(broker, connection, command, request, ConsumeMessageDirectlyResult)
    return None


def _forward(
    broker: Broker,
    connection: Connection,
    command: RemotingCommand,
    request: RemotingCommand,
    body_class: type[WireBody],
) -> None:
    """Send `request` to the consumer that its header names, and its answer, a `body_class`, as the reply to `command`.

    Raises Refusal when that consumer is not connected or too old.
    """
    assert isinstance(request.header, GetConsumerRunningInfoRequestHeader | ConsumeMessageDirectlyRequestHeader)
    group, client_id = request.header.consumer_group, request.header.client_id
    peer, channel = _find(broker, group, client_id)
    if channel.version < _RUNNING_INFO_VERSION:
        remark = f"The Consumer <{group}> Version <{channel.version}> too low to finish, please upgrade it to "
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark + "V3_1_8_SNAPSHOT")

    def then(answer: RemotingCommand | RemotingError) -> None:
        if isinstance(answer, RequestTimeout):
            remark = f"consumer <{group}> <{client_id}> Timeout: {answer}"
            reply = command.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
        elif isinstance(answer, RemotingError):
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {answer}"
            reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        else:
            reply = _reply_from(command, answer, body_class)
        _reply(connection, command, reply)

    peer.request_then(request, _CALL_TIMEOUT_MS, then)


def _find(broker: Broker, group: str, client_id: str | None) -> tuple[Connection, ClientChannel]:
    members = broker.members.consumers.groups.get(group)
    for peer, channel in members.channels.items() if members is not None else ():
        if channel.client_id == client_id:
            return connection_of(peer), channel
    raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")


def _reply_from(command: RemotingCommand, answer: RemotingCommand, body_class: type[WireBody]) -> RemotingCommand:
    """The consumer's answer as a reply. Its body is encoded again only between JSON and MSGPACK."""
    body = answer.body
    if body and (answer.serialize_type == _MSGPACK) != (command.serialize_type == _MSGPACK):
        try:
            body = encode_body(_read(body_class, answer), command.serialize_type)
        except ProtocolError as error:
            remark = f"the consumer's answer to {request_name(command.code)} cannot be read: {error}"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    return command.reply(answer.code, body=body, remark=answer.remark)


def _read(body_class: type[B], answer: RemotingCommand) -> B:
    """Decode the answer of a consumer; Java's clients write fastjson's dialect. Raises BodyError."""
    if len(answer.body) > _ANSWER_BYTES_MAX:
        raise BodyError(f"{len(answer.body)} bytes are over the limit of {_ANSWER_BYTES_MAX}")
    return decode_body(body_class, answer.body, answer.serialize_type, dialect_bytes_max=_DIALECT_BYTES_MAX)


def _reply(connection: Connection, command: RemotingCommand, reply: RemotingCommand) -> None:
    if not command.is_one_way:
        connection.reply(reply)


# Every consumer of a group ----------------------------------------------------------------------------------------


def consumer_status(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """The offsets that each member, or one member, reports. Members that do not answer in 5 s are left out."""
    header = command.decode_header(ConsumerStatusRequestHeader)
    group = broker.members.consumers.groups.get(header.group)
    if group is None:
        remark = f"No Any Consumer online in the consumer group: [{header.group}]"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    for channel in group.channels.values():
        if channel.version < _STATUS_VERSION:
            remark = f"the client does not support this feature. version={channel.version}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    asked = {
        peer: channel.client_id
        for peer, channel in group.channels.items()
        if not header.client_addr or channel.client_id == header.client_addr
    }
    tables: dict[str, dict[MessageQueue, int]] = {}

    def finish() -> None:
        body = GetConsumerStatusBody({}, {client_id: tables[client_id] for client_id in sorted(tables)})
        encoded = encode_body(body, command.serialize_type)
        remark = "consumers were asked"  # RocketMQ sends a remark too
        _reply(connection, command, command.reply(ResponseCode.SUCCESS, body=encoded, remark=remark))

    _ask_all(asked, header._replace(client_addr=None), tables, finish)
    return None


def _ask_all(
    asked: dict[Peer, str],
    header: tuple[Any, ...],
    tables: dict[str, dict[MessageQueue, int]],
    finish: Callable[[], None],
) -> None:
    """Ask each connection, and fill `tables` with the answers, up to the size of one frame.

    `finish` is called once, when no answer is outstanding.
    """
    outstanding, left_bytes = len(asked), BODY_ROWS_BYTES_MAX

    def then(client_id: str, answer: RemotingCommand | RemotingError) -> None:
        nonlocal outstanding, left_bytes
        outstanding -= 1
        if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS and answer.body:
            left_bytes -= len(answer.body)
            try:
                if left_bytes >= 0:
                    tables[client_id] = dict(_read(GetConsumerStatusBody, answer).message_queue_table)
            except RemoteProtocolError:
                # An unreadable answer counts as no answer.
                pass
        if not outstanding:
            finish()

    if not asked:
        finish()
    for peer, client_id in asked.items():
        request = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        connection_of(peer).request_then(request, _STATUS_TIMEOUT_MS, partial(then, client_id))
