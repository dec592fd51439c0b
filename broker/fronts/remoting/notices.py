"""What the core tells clients, as requests of RocketMQ 4's protocol, and the connection of a client."""

from typing import cast

from lockstep.broker.connection import Connection
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.locks import LocksReleasedBody
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    CheckTransactionStateRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue

__all__ = ["RemotingNotices", "connection_of"]


def connection_of(peer: Peer) -> Connection:
    """The connection of a client. One of the other front answers what this one is asked, too."""
    return cast("Connection", peer)


class RemotingNotices:
    """One-way requests; a client that has gone misses them."""

    def members_changed(self, peer: Peer, consumer_group: str) -> None:
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group)
        connection_of(peer).send_one_way(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))

    def queues_free(self, peer: Peer, consumer_group: str, queues: tuple[MessageQueue, ...]) -> None:
        connection = connection_of(peer)
        body = encode_body(LocksReleasedBody(consumer_group, queues), connection.serialize_type)
        connection.send_one_way(RemotingCommand(RequestCode.LOCKS_RELEASED, body=body))

    def transaction_undecided(self, peer: Peer, message: bytes) -> None:
        half = decode_messages(message, unzip=False)[0]
        unique_key = half.properties.get(names.UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            half.queue_offset, half.commit_log_offset, unique_key, unique_key, half.offset_message_id
        )
        connection_of(peer).send_one_way(RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, header, message))
