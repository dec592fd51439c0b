"""Producers, consumers and the admin client, for Lockstep brokers and Apache RocketMQ clusters.

What is exported is imported when it is first used: the pytest plugin is imported by every run of pytest, used or not.
"""

from typing import TYPE_CHECKING

from lockstep.remoting.lazy import lazy_exports

if TYPE_CHECKING:
    from lockstep.client.admin import AdminClient, NotLockstepError
    from lockstep.client.allocate import AllocateMessageQueueStrategy, allocate_averagely
    from lockstep.client.config import ClientConfig, ConsumerConfig, ProducerConfig
    from lockstep.client.errors import (
        ClientError,
        ConsumerError,
        NoRouteError,
        SendError,
        SendOutcome,
        TopicNotFoundError,
    )
    from lockstep.client.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus, OrderlyListener
    from lockstep.client.plugin_broker import LockstepBroker
    from lockstep.client.producer import Producer
    from lockstep.client.push_consumer import PushConsumer
    from lockstep.client.selector import MessageQueueSelector, select_by_hash
    from lockstep.client.send_request import SendResult
    from lockstep.protocol.codes import SerializeType
    from lockstep.protocol.heartbeat import ConsumeFromWhere
    from lockstep.protocol.message import MessageExt
    from lockstep.protocol.model import Message, MessageQueue

__all__ = [
    "AdminClient",
    "AllocateMessageQueueStrategy",
    "ClientConfig",
    "ClientError",
    "ConsumeFromWhere",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "ConsumerConfig",
    "ConsumerError",
    "LockstepBroker",
    "Message",
    "MessageExt",
    "MessageQueue",
    "MessageQueueSelector",
    "NoRouteError",
    "NotLockstepError",
    "OrderlyListener",
    "Producer",
    "ProducerConfig",
    "PushConsumer",
    "SendError",
    "SendOutcome",
    "SendResult",
    "SerializeType",
    "TopicNotFoundError",
    "allocate_averagely",
    "select_by_hash",
]

EXPORTS = {
    "lockstep.client.admin": "AdminClient NotLockstepError",
    "lockstep.client.allocate": "AllocateMessageQueueStrategy allocate_averagely",
    "lockstep.client.config": "ClientConfig ConsumerConfig ProducerConfig",
    "lockstep.client.errors": "ClientError ConsumerError NoRouteError SendError SendOutcome TopicNotFoundError",
    "lockstep.client.listener": "ConsumeOrderlyContext ConsumeOrderlyStatus OrderlyListener",
    "lockstep.client.plugin_broker": "LockstepBroker",
    "lockstep.client.producer": "Producer",
    "lockstep.client.push_consumer": "PushConsumer",
    "lockstep.client.selector": "MessageQueueSelector select_by_hash",
    "lockstep.client.send_request": "SendResult",
    "lockstep.protocol.codes": "SerializeType",
    "lockstep.protocol.heartbeat": "ConsumeFromWhere",
    "lockstep.protocol.message": "MessageExt",
    "lockstep.protocol.model": "Message MessageQueue",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, EXPORTS)
