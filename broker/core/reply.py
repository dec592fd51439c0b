"""Reply: the answer to a message is checked as a send, and stored once its delivery to who asked was tried."""

from typing import NamedTuple

from lockstep.broker.core.append import Send
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.core.send_target import send_target
from lockstep.broker.peer import Peer
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX
from lockstep.protocol.filter import tags_code_of
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import decode_properties
from lockstep.store import AppendResult, Record, StoreFull

__all__ = ["Reply", "check_reply", "store_reply"]


class Reply(NamedTuple):
    """`client_id`: of who asked, if the reply names it; `asker`: its connection, if it has one."""

    record: Record
    client_id: str | None
    asker: Peer | None


def check_reply(
    broker: Broker, peer: Peer, send: Send, body: bytes, now_ms: int, retries_max: int | None = None
) -> Reply:
    """Raises Refused for a reply that cannot be stored."""
    target = send_target(broker, send, now_ms, retries_max)
    text = (send.properties or "").encode("utf-8", "replace")
    if len(body) > broker.config.max_message_bytes or len(text) > PROPERTIES_BYTES_MAX:
        remark = f"{len(body)} bytes of body or {len(text)} of properties are too many for a message"
        raise Refused(Reason.ILLEGAL_MESSAGE, remark)
    properties = decode_properties(send.properties or "")
    record = Record(
        target.topic,
        target.queue_id,
        send.flag,
        send.sys_flag,
        send.born_timestamp,
        *broker.members.born_host(peer),
        now_ms,
        send.reconsume_times or 0,
        0,
        body,
        text,
        tags_code_of(properties.get(names.TAGS)),
    )
    client_id = properties.get(names.REPLY_TO_CLIENT)
    return Reply(record, client_id, None if client_id is None else broker.members.producers.find(client_id))


def store_reply(broker: Broker, reply: Reply) -> AppendResult | None:
    """As in RocketMQ, whether it was delivered or not. None for a full store: who asked may have it all the same."""
    try:
        return broker.messages.put(reply.record)
    except StoreFull as why:
        broker.log.error("reply_not_stored", topic=reply.record.topic, reason=str(why))
        return None
