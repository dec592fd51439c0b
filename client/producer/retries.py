"""InnerProducer: a consumer's sends to the retry topic of its group, for another attempt or as dead letters."""

from typing import Any, Final, NamedTuple

from lockstep.client.config import ClientConfig, ProducerConfig
from lockstep.client.errors import NoRouteError, SendError, SendOutcome
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.answers import read_send_reply
from lockstep.client.producer.outgoing import Outgoing
from lockstep.client.producer.publish_queues import PublishQueues
from lockstep.client.producer.request import SendRequests
from lockstep.client.producer.round_robin import AnywhereSender
from lockstep.protocol.codes import RequestCode, SysFlag
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.ids import UniqueKeyMaker, pack_host
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from lockstep.remoting.errors import RemotingError

__all__ = ["Fence", "InnerProducer"]

_PACKED: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE)
_GROUP: Final = "CLIENT_INNER_PRODUCER"  # Java's name for it
_FIRST_RETRY_LEVEL: Final = 3
# The header has the first two. TRAN_MSG would make a half message of it. The last two belong to the pull that brought
# the message.
_TAKEN_OUT: Final = (
    names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES,
    names.TRAN_MSG,
    names.MIN_OFFSET,
    names.MAX_OFFSET,
)


class Fence(NamedTuple):
    """The lock under which a consumer has a message, for the requests that say so. Epoch 0: they say nothing."""

    epoch: int
    client_id: str
    queue: MessageQueue

    def put_into(self, header: Any) -> Any:
        """Return a header with the four `lock_` fields filled in."""
        return header._replace(
            lock_epoch=self.epoch,
            lock_client_id=self.client_id,
            lock_topic=self.queue.topic,
            lock_queue_id=self.queue.queue_id,
        )


class InnerProducer:
    """Sends messages of one consumer group to its retry topic."""

    def __init__(self, instance: MQClientInstance, group: str, config: ClientConfig) -> None:
        self._instance = instance
        self._topic = retry_topic(group)
        identity = instance.identity
        keys = UniqueKeyMaker(pack_host(identity.host), identity.pid, identity.serial)
        producer_config = ProducerConfig(serialize_type=config.serialize_type)
        self._timeout_ms = producer_config.send_timeout_ms
        self._requests = SendRequests(_GROUP, producer_config, instance.client_id, keys, instance.runtime)
        queues = PublishQueues(instance.routes, producer_config.default_topic_queue_nums)
        self._anywhere = AnywhereSender(instance, self._requests, producer_config, queues)

    def retry(self, message: MessageExt, reconsume_times: int, limit: int) -> Outgoing:
        """Return a copy with the first topic and the first id, at delay level 3 + its attempts.

        Args:
            reconsume_times: goes into the header; from `limit` on the broker makes a dead letter (wire.md 10.3, 12.7).
        """
        # The body as it is stored: a listener may have changed `body`; one that cannot be unpacked stays as it is.
        packed = message.sys_flag & _PACKED if message.sys_flag & SysFlag.COMPRESSED else 0
        properties = {name: value for name, value in message.properties.items() if name not in _TAKEN_OUT}
        properties.setdefault(names.RETRY_TOPIC, message.first_topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_message_id)
        properties[names.DELAY] = str(_FIRST_RETRY_LEVEL + message.reconsume_times)
        return Outgoing(
            RequestCode.SEND_MESSAGE_V2,
            self._topic,
            message.stored_body,
            message.flag,
            encode_properties(properties),
            message.msg_id,
            message.sharding_key,
            self._instance.runtime.now_ms(),
            reconsume_times,
            limit,
            packed,
        )

    async def send_anywhere(self, outgoing: Outgoing, avoid: str) -> None:
        """Send to any broker that has the retry topic, if possible not to `avoid`. Raises SendError.

        RocketMQ may spend all its time on the broker that just did not answer.
        """
        try:
            await self._anywhere.send(outgoing, self._timeout_ms, avoid=avoid)
        except NoRouteError as error:
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None

    async def send_to(self, broker_name: str, outgoing: Outgoing, fence: Fence) -> None:
        """Send to one broker. Raises SendError when it did not store the message."""
        queue = MessageQueue(self._topic, broker_name, 0)
        command = self._requests.command(queue, outgoing)
        try:
            endpoint = await self._instance.sender(broker_name)
            if fence.epoch and endpoint.agreed:
                command.header = fence.put_into(command.header)
            reply = await endpoint.request(command, self._timeout_ms)
        except NoRouteError as error:
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except RemotingError as error:
            raise SendError(str(error), SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None
        read_send_reply(reply, queue, outgoing)
