"""Producers, consumers and the admin client, for Lockstep brokers and Apache RocketMQ clusters."""

from lockstep.client.admin import AdminClient, NotLockstepError
from lockstep.client.allocate import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from lockstep.client.errors import ClientError, ConsumerError, NoRouteError, SendError, SendOutcome, TopicNotFoundError
from lockstep.client.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus, OrderlyListener
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
