"""Producers, consumers and the admin client, for Lockstep brokers and Apache RocketMQ clusters.

Exported names are imported at their first use, because every run of pytest imports the pytest plugin, used or not.
"""

from typing import TYPE_CHECKING

from lockstep.remoting.lazy import lazy_exports

if TYPE_CHECKING:
    from lockstep.client.admin.client import AdminClient, NotLockstepError
    from lockstep.client.config import ClientConfig, ConsumerConfig, Fenced, ProducerConfig
    from lockstep.client.consumer.listener import (
        ConcurrentListener,
        ConsumeConcurrentlyContext,
        ConsumeConcurrentlyStatus,
        ConsumeOrderlyContext,
        ConsumeOrderlyStatus,
        OrderlyListener,
    )
    from lockstep.client.consumer.lite_pull import LitePullConsumer
    from lockstep.client.consumer.offsets.store import ReadOffsetType
    from lockstep.client.consumer.ownership.allocation.average import (
        AllocateByConfig,
        AllocateMessageQueueStrategy,
        allocate_averagely,
        allocate_averagely_by_circle,
        strategy_name,
    )
    from lockstep.client.consumer.ownership.allocation.consistent_hash import AllocateByConsistentHash
    from lockstep.client.consumer.ownership.allocation.machine_room import (
        AllocateByMachineRoom,
        AllocateMachineRoomNearby,
    )
    from lockstep.client.consumer.ownership.allocation.sticky import AllocateSticky
    from lockstep.client.consumer.ownership.topic_watch import TopicMessageQueueChangeListener
    from lockstep.client.consumer.pop_calls import Delivery
    from lockstep.client.consumer.pull import MessageQueueListener, PullConsumer
    from lockstep.client.consumer.pull_request import PullResult, PullStatus
    from lockstep.client.consumer.push import PushConsumer
    from lockstep.client.consumer.simple import SimpleConsumer
    from lockstep.client.errors import (
        ClientError,
        ConsumerError,
        DuplicateConsumerGroupError,
        DuplicateGroupError,
        LockLostError,
        NoRouteError,
        RequestTimeoutError,
        SendError,
        SendForbiddenError,
        SendOutcome,
        StaleDeliveryError,
        TopicNotFoundError,
    )
    from lockstep.client.hooks import (
        CheckForbiddenHook,
        CommunicationMode,
        ConsumeMessageContext,
        ConsumeMessageHook,
        ConsumeReturnType,
        EndTransactionContext,
        EndTransactionHook,
        FilterMessageContext,
        FilterMessageHook,
        LocalTransactionState,
        MessageType,
        SendMessageContext,
        SendMessageHook,
    )
    from lockstep.client.lifecycle import ServiceState
    from lockstep.client.message_selector import MessageSelector
    from lockstep.client.producer.producer import Producer, SendCallback
    from lockstep.client.producer.request_reply import ReplyMessage, reply_message
    from lockstep.client.producer.selectors import (
        MessageQueueSelector,
        select_by_group,
        select_by_hash,
        select_by_machine_room,
        select_by_random,
    )
    from lockstep.client.producer.transaction import (
        HalfMessage,
        TransactionListener,
        TransactionProducer,
        TransactionSendResult,
    )
    from lockstep.client.pull_config import LitePullConsumerConfig, PullConsumerConfig
    from lockstep.client.send_result import SendResult
    from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, MessageModel
    from lockstep.protocol.codes import SerializeType
    from lockstep.protocol.messages.compression import CompressionType
    from lockstep.protocol.messages.message import MessageExt
    from lockstep.protocol.messages.to_send import Message
    from lockstep.protocol.model import MessageQueue
    from lockstep.protocol.signature import Credentials

__all__ = [
    "AdminClient",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueStrategy",
    "AllocateSticky",
    "CheckForbiddenHook",
    "ClientConfig",
    "ClientError",
    "CommunicationMode",
    "CompressionType",
    "ConcurrentListener",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "ConsumeReturnType",
    "ConsumerConfig",
    "ConsumerError",
    "Credentials",
    "Delivery",
    "DuplicateConsumerGroupError",
    "DuplicateGroupError",
    "EndTransactionContext",
    "EndTransactionHook",
    "Fenced",
    "FilterMessageContext",
    "FilterMessageHook",
    "HalfMessage",
    "LitePullConsumer",
    "LitePullConsumerConfig",
    "LocalTransactionState",
    "LockLostError",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageQueueListener",
    "MessageQueueSelector",
    "MessageSelector",
    "MessageType",
    "NoRouteError",
    "NotLockstepError",
    "OrderlyListener",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullConsumerConfig",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReadOffsetType",
    "ReplyMessage",
    "RequestTimeoutError",
    "SendCallback",
    "SendError",
    "SendForbiddenError",
    "SendMessageContext",
    "SendMessageHook",
    "SendOutcome",
    "SendResult",
    "SerializeType",
    "ServiceState",
    "SimpleConsumer",
    "StaleDeliveryError",
    "TopicMessageQueueChangeListener",
    "TopicNotFoundError",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "allocate_averagely",
    "allocate_averagely_by_circle",
    "reply_message",
    "select_by_group",
    "select_by_hash",
    "select_by_machine_room",
    "select_by_random",
    "strategy_name",
]

EXPORTS = {
    "lockstep.client.admin.client": "AdminClient NotLockstepError",
    "lockstep.client.consumer.ownership.allocation.average": (
        "AllocateByConfig AllocateMessageQueueStrategy allocate_averagely allocate_averagely_by_circle strategy_name"
    ),
    "lockstep.client.consumer.ownership.allocation.consistent_hash": "AllocateByConsistentHash",
    "lockstep.client.consumer.ownership.allocation.machine_room": "AllocateByMachineRoom AllocateMachineRoomNearby",
    "lockstep.client.consumer.ownership.allocation.sticky": "AllocateSticky",
    "lockstep.client.config": "ClientConfig ConsumerConfig Fenced ProducerConfig",
    "lockstep.client.errors": (
        "ClientError ConsumerError DuplicateConsumerGroupError DuplicateGroupError LockLostError NoRouteError"
        " RequestTimeoutError SendError SendForbiddenError SendOutcome StaleDeliveryError TopicNotFoundError"
    ),
    "lockstep.client.hooks": (
        "CheckForbiddenHook CommunicationMode ConsumeMessageContext ConsumeMessageHook ConsumeReturnType"
        " EndTransactionContext EndTransactionHook FilterMessageContext FilterMessageHook LocalTransactionState"
        " MessageType SendMessageContext SendMessageHook"
    ),
    "lockstep.client.lifecycle": "ServiceState",
    "lockstep.client.consumer.listener": (
        "ConcurrentListener ConsumeConcurrentlyContext ConsumeConcurrentlyStatus"
        " ConsumeOrderlyContext ConsumeOrderlyStatus OrderlyListener"
    ),
    "lockstep.client.consumer.lite_pull": "LitePullConsumer",
    "lockstep.client.message_selector": "MessageSelector",
    "lockstep.client.consumer.offsets.store": "ReadOffsetType",
    "lockstep.client.producer.producer": "Producer SendCallback",
    "lockstep.client.consumer.pop_calls": "Delivery",
    "lockstep.client.consumer.pull_request": "PullResult PullStatus",
    "lockstep.client.pull_config": "LitePullConsumerConfig PullConsumerConfig",
    "lockstep.client.consumer.pull": "MessageQueueListener PullConsumer",
    "lockstep.client.consumer.push": "PushConsumer",
    "lockstep.client.consumer.simple": "SimpleConsumer",
    "lockstep.client.consumer.ownership.topic_watch": "TopicMessageQueueChangeListener",
    "lockstep.client.producer.request_reply": "ReplyMessage reply_message",
    "lockstep.client.producer.selectors": "MessageQueueSelector select_by_group select_by_hash "
    "select_by_machine_room select_by_random",
    "lockstep.client.send_result": "SendResult",
    "lockstep.client.producer.transaction": (
        "HalfMessage TransactionListener TransactionProducer TransactionSendResult"
    ),
    "lockstep.protocol.codes": "SerializeType",
    "lockstep.protocol.bodies.heartbeat": "ConsumeFromWhere MessageModel",
    "lockstep.protocol.messages.compression": "CompressionType",
    "lockstep.protocol.messages.message": "MessageExt",
    "lockstep.protocol.messages.to_send": "Message",
    "lockstep.protocol.model": "MessageQueue",
    "lockstep.protocol.signature": "Credentials",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, EXPORTS)
