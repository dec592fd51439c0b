"""Giving up on a message in orderly mode: sent to the retry topic, it becomes a dead letter (wire.md 10.3)."""

from lockstep.client.config import ClientConfig, ProducerConfig
from lockstep.client.errors import NoRouteError, SendError, SendOutcome
from lockstep.client.instance import MQClientInstance
from lockstep.client.process_queue import ProcessQueue
from lockstep.client.send_request import Outgoing, SendRequests, read_send_reply
from lockstep.client.trace import TraceWriter
from lockstep.protocol import properties as names
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.ids import UniqueKeyMaker, pack_host
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from lockstep.protocol.properties import encode_properties
from lockstep.remoting.errors import RemotingError

__all__ = ["DeadLetters"]

_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"  # Java's name for a consumer's own sends
_FIRST_RETRY_LEVEL = 3
# These two travel in the header instead; TRAN_MSG must not make a half message of a dead letter.
_TAKEN_OUT = (names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES, names.TRAN_MSG)


class DeadLetters:
    def __init__(self, instance: MQClientInstance, group: str, config: ClientConfig, trace: TraceWriter | None) -> None:
        self._instance = instance
        self._group = group
        self._trace = trace
        identity = instance.identity
        keys = UniqueKeyMaker(pack_host(identity.host), identity.pid, identity.serial)
        producer_config = ProducerConfig(serialize_type=config.serialize_type)
        self._timeout_ms = producer_config.send_timeout_ms
        self._requests = SendRequests(_INNER_PRODUCER, producer_config, instance.client_id, keys, instance.runtime)

    async def send(self, process_queue: ProcessQueue, message: MessageExt, limit: int) -> None:
        """Raises SendError when the broker did not take it; the message then stays where it is."""
        properties = {name: value for name, value in message.properties.items() if name not in _TAKEN_OUT}
        properties.setdefault(names.RETRY_TOPIC, message.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_message_id)
        properties[names.DELAY] = str(_FIRST_RETRY_LEVEL + message.reconsume_times)
        topic = retry_topic(self._group)
        outgoing = Outgoing(
            RequestCode.SEND_MESSAGE_V2,
            topic,
            message.body,
            message.flag,
            encode_properties(properties),
            message.msg_id,
            message.sharding_key,
            self._instance.runtime.now_ms(),
            message.reconsume_times,
            limit,
        )
        queue = MessageQueue(topic, process_queue.queue.broker_name, 0)
        try:
            endpoint = await self._instance.dialer.endpoint(self._instance.address_of(queue.broker_name))
            reply = await endpoint.request(self._requests.command(queue, outgoing), self._timeout_ms)
        except NoRouteError as error:
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=message.msg_id) from None
        except RemotingError as error:
            raise SendError(str(error), SendOutcome.UNKNOWN, msg_id=message.msg_id) from None
        read_send_reply(reply, queue, outgoing)
        self._instance.log.warning(
            "message given up: sent to the dead letters",
            queue=str(process_queue.queue),
            offset=message.queue_offset,
            msg_id=message.msg_id,
            reconsume_times=message.reconsume_times,
        )
        if self._trace is not None:
            self._trace.queue_event(
                "dead_lettered",
                process_queue.queue,
                period=process_queue.period,
                offset=message.queue_offset,
                key=message.sharding_key,
                msg_id=message.msg_id,
            )
