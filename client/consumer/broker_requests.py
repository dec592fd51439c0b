"""What a broker asks of a consumer: running info, its offsets, a reset of them, one message directly (wire.md 2.2)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lockstep.client.config import ClientConfig, ConsumerConfig
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.stats import ConsumeStats
from lockstep.client.consumer.offsets.store import OffsetStore
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.instance.client import BrokerCall, MQClientInstance
from lockstep.protocol.bodies.client import ConsumerRunningInfo, GetConsumerStatusBody, ResetOffsetBody
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.heartbeat import ConsumeType, MessageModel, SubscriptionData
from lockstep.protocol.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.pulled import Pulled, decode_records
from lockstep.protocol.versions import version_name
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.settings import as_properties

__all__ = ["BrokerCalls"]

_R = RequestCode
_JSTACK_MAX: Final = 1024 * 1024  # characters


class BrokerCalls:
    """`subscriptions()` are the present ones; `reset(topic, offsets)` begins a reset.

    A consumer that pulls by itself has no listener and is not reset: as in RocketMQ it then does not know the group.
    """

    def __init__(
        self,
        instance: MQClientInstance,
        group: str,
        config: ClientConfig,
        table: Mapping[MessageQueue, ProcessQueue],
        *,
        offsets: OffsetStore,
        stats: ConsumeStats,
        subscriptions: Callable[[], list[SubscriptionData]],
        orderly: bool = True,
        message_model: MessageModel = MessageModel.CLUSTERING,
        directly: ConsumeDirectly | None = None,
        reset: Callable[[str, Mapping[MessageQueue, int]], None] | None = None,
    ) -> None:
        self._instance = instance
        self._runtime = instance.runtime
        self._group = group
        self._config = config
        self._table = table
        self._offsets = offsets
        self._stats = stats
        self._directly = directly
        self._subscriptions = subscriptions
        self._reset = reset
        self._orderly = orderly
        self._message_model = message_model
        self.consume_thread_count = config.consume_threads if isinstance(config, ConsumerConfig) else 0
        self._started_ms = self._runtime.now_ms()
        self.handlers: Mapping[int, BrokerCall] = {
            _R.GET_CONSUMER_RUNNING_INFO: self._running_info,
            _R.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            _R.GET_CONSUMER_STATUS_FROM_CLIENT: self._consumer_status,
            _R.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def _stranger(self, command: RemotingCommand, group: str) -> RemotingCommand | None:
        return None if group == self._group else _unknown(command, group)

    # Running info --------------------------------------------------------------------------------------------

    def _running_info(self, _endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        header = command.decode_header(GetConsumerRunningInfoRequestHeader)
        refusal = self._stranger(command, header.consumer_group)
        if refusal is not None:
            return refusal
        subscriptions = sorted(self._subscriptions())
        info = ConsumerRunningInfo(
            self._properties(),
            tuple(subscriptions),
            {queue: self._table[queue].info(self._offsets.in_memory(queue)) for queue in sorted(self._table)},
            {data.topic: self._stats.status(data.topic) for data in subscriptions},
            self._runtime.stacks()[:_JSTACK_MAX] if header.jstack_enable else None,
        )
        return _reply(command, info)

    def _properties(self) -> dict[str, str]:
        config = self._config
        properties = as_properties(config) | {
            "PROP_CLIENT_VERSION": version_name(PROTOCOL_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.name,
            "PROP_NAMESERVER_ADDR": self._instance.name_servers.text,
            "consumerGroup": self._group,
        }
        if isinstance(config, ConsumerConfig):
            properties |= {
                "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.name,
                "PROP_CONSUMEORDERLY": str(self._orderly).lower(),
                "PROP_THREADPOOL_CORE_SIZE": str(self.consume_thread_count),
                "consumeThreadMin": str(self.consume_thread_count),
                "messageModel": self._message_model.name,
                "listenerLongestWaitMs": str(self._stats.longest_wait_ms),
                "listenerCallsNotBegun": str(self._stats.calls_not_begun),
            }
        return properties

    # Offsets -------------------------------------------------------------------------------------------------

    def _consumer_status(self, _endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        """The offsets this client would commit, of one topic or, without a name, of all."""
        header = command.decode_header(ConsumerStatusRequestHeader)
        known = self._table if header.group == self._group else ()
        offsets = {
            queue: self._offsets.in_memory(queue)
            for queue in sorted(known)
            if header.topic in ("", queue.topic) and self._offsets.in_memory(queue) >= 0
        }
        return _reply(command, GetConsumerStatusBody(offsets, {}))

    def _reset_offset(self, _endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        header = command.decode_header(ResetOffsetRequestHeader)
        body = decode_body(ResetOffsetBody, command.body, command.serialize_type)
        self._instance.log.info(
            "told to reset offsets", group=header.group, topic=header.topic, queues=len(body.offset_table)
        )
        if header.group == self._group and self._reset is not None:
            self._reset(header.topic, body.offset_table)
        return None

    # One message ---------------------------------------------------------------------------------------------

    def _consume_directly(self, endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        header = command.decode_header(ConsumeMessageDirectlyRequestHeader)
        refusal = self._stranger(command, header.consumer_group)
        if refusal is not None:
            return refusal
        pulled = decode_records(command.body, header.broker_name or "")
        if len(pulled.messages) != 1:
            raise BodyError(f"one message is expected, not {len(pulled.messages)}")
        if self._directly is None:
            return _unknown(command, header.consumer_group)
        answering = self._consume_and_reply(self._directly, endpoint, command, pulled)
        self._runtime.create_task(answering, name="consume directly")
        return None

    async def _consume_and_reply(
        self, directly: ConsumeDirectly, endpoint: Endpoint, command: RemotingCommand, pulled: Pulled
    ) -> None:
        try:
            (message,) = await self._instance.unpack_all(pulled)
            reply = _reply(command, await directly(message))
        except Exception as error:
            reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        endpoint.reply(reply)


def _unknown(command: RemotingCommand, group: str) -> RemotingCommand:
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{group}> not exist in this consumer")


def _reply(command: RemotingCommand, body: WireBody | Any) -> RemotingCommand:
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))
