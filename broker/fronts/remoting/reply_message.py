"""Replies to messages: SEND_REPLY_MESSAGE goes to the requesting client, as PUSH_REPLY_MESSAGE_TO_CLIENT (wire.md 2.1).

As in RocketMQ the reply is also stored in the reply topic of the cluster, whether it was delivered or not.
"""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Refused
from lockstep.broker.core.reply import Reply, check_reply, store_reply
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.notices import connection_of
from lockstep.broker.fronts.remoting.refusal import code_of
from lockstep.broker.fronts.remoting.send import limit_of_retries, refuse_unreadable, refused
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import (
    PushReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.protocol.messages.properties import decode_properties, encode_properties
from lockstep.remoting.errors import RemotingError
from lockstep.store import Record

__all__ = ["send_reply_message"]

_HEADERS: Final[dict[int, type[SendMessageRequestHeader]]] = {
    RequestCode.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageRequestHeaderV2,
}
_PUSH_TIMEOUT_MS: Final = 10_000
_REGION: Final = "DefaultRegion"
_TRACE_ON: Final = "true"


def send_reply_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer | None:
    """Forward the reply, and answer when the requesting client has accepted it or cannot be reached."""
    try:
        header = command.decode_header(_HEADERS[command.code])
        retries_max = limit_of_retries(command, header.max_reconsume_times)
        reply = check_reply(broker, connection, header, command.body, now_ms, retries_max)
    except HeaderError as error:
        return refuse_unreadable(command, error)
    except Refused as why:
        return refused(command, code_of(why), str(why))
    client_id = reply.client_id
    if reply.asker is None:
        reason = "REPLY_TO_CLIENT is null, can not reply message"
        if client_id is not None:
            reason = f"push reply message fail, channel of <{client_id}> not found."
        return After(_answer(broker, command, reply, reason), What.LOG)

    def then(answer: RemotingCommand | RemotingError) -> None:
        failed = isinstance(answer, RemotingError) or answer.code != ResponseCode.SUCCESS
        reason = f"push reply message to {client_id} fail." if failed else None
        told = _answer(broker, command, reply, reason)
        if not command.is_one_way:
            connection.reply(told)

    pushed = _push_header(broker, connection, header, reply.record, now_ms)
    push = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, command.body)
    connection_of(reply.asker).request_then(push, _PUSH_TIMEOUT_MS, then)
    return None


def _push_header(
    broker: Broker, connection: Connection, header: SendMessageRequestHeader, record: Record, now_ms: int
) -> PushReplyMessageRequestHeader:
    """Addresses are `ip:port`; Java's client cannot parse Java's own form `/ip:port` (wire.md 2.1)."""
    properties = {**decode_properties(header.properties or ""), names.PUSH_REPLY_TIME: str(now_ms)}
    return PushReplyMessageRequestHeader(
        header.producer_group,
        record.topic,
        header.default_topic,
        header.default_topic_queue_nums,
        record.queue_id,
        header.sys_flag,
        header.born_timestamp,
        header.flag,
        connection.address,
        broker.address,
        now_ms,
        encode_properties(properties),
        header.reconsume_times,
        bool(header.unit_mode),
    )


def _answer(broker: Broker, command: RemotingCommand, reply: Reply, reason: str | None) -> RemotingCommand:
    """Store the reply and answer its sender. `reason`: why it was not delivered, or None."""
    code = ResponseCode.SUCCESS if reason is None else ResponseCode.SYSTEM_ERROR
    message_id, queue_offset = "0", 0
    stored = store_reply(broker, reply)
    if stored is not None:
        store = broker.messages.store
        message_id = encode_offset_message_id(store.store_host, store.store_port, stored.commit_log_offset)
        queue_offset = stored.queue_offset
    header = SendMessageResponseHeader(message_id, reply.record.queue_id, queue_offset, None, _REGION, _TRACE_ON)
    return command.reply(code, header, remark=reason)
