"""Answers to messages: what a consumer sends back to the producer that waits for it (wire.md 2.1)."""

from dataclasses import dataclass

from lockstep.client.errors import ClientError
from lockstep.protocol import properties as names
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import Message
from lockstep.protocol.names import reply_topic

__all__ = ["ReplyMessage", "reply_message"]

_REPLY = "reply"


@dataclass(slots=True)
class ReplyMessage(Message):
    """Made by `reply_message`, sent by any producer; brokers pass it on to the client that asked."""

    correlation_id: str = ""
    reply_to_client: str = ""
    ttl: str = ""

    def wire_properties(self) -> dict[str, str]:
        result = Message.wire_properties(self)
        result[names.MSG_TYPE] = _REPLY
        result[names.CORRELATION_ID] = self.correlation_id
        result[names.REPLY_TO_CLIENT] = self.reply_to_client
        result[names.TTL] = self.ttl
        return result


def reply_message(request: MessageExt, body: bytes) -> ReplyMessage:
    """The answer to a message that came by `Producer.request`; `await producer.send(...)` it.

    Raises ClientError for a message that nobody waits for an answer to.
    """
    properties = request.properties
    found = {name: properties.get(name) for name in _NEEDED}
    for name, value in found.items():
        if not value:
            raise ClientError(f"create reply message fail, requestMessage error, property[{name}] is null.")
    cluster, correlation_id, client_id = [value or "" for value in found.values()]
    return ReplyMessage(
        reply_topic(cluster),
        body,
        correlation_id=correlation_id,
        reply_to_client=client_id,
        ttl=properties.get(names.TTL, "0"),
    )


_NEEDED = (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT)
