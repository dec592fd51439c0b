"""The requests that a broker sends to a consumer: running info, offsets, a reset, one message (wire.md 2.2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lockstep.client.callables import must_propagate
from lockstep.client.config import ClientConfig
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.ownership.explained import PROPERTY as EXPLAINED
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.instance.client import BrokerCall
from lockstep.protocol.bodies.client import POPS, ConsumerRunningInfo, GetConsumerStatusBody, ResetOffsetBody
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.heartbeat import ConsumeType, SubscriptionData
from lockstep.protocol.bodies.locks import LocksReleasedBody
from lockstep.protocol.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from lockstep.protocol.messages.pulled import Pulled, decode_records
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.versions import version_name
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.settings import as_properties

__all__ = ["BrokerCalls", "Listening"]

_R = RequestCode
_JSTACK_MAX: Final = 1024 * 1024  # characters


@dataclass(slots=True)
class Listening:
    """What a consumer with a listener answers besides.

    Args:
        orderly: its queues are consumed under locks.
        consume_thread_count: of its listener; it may change while the consumer runs.
        directly: calls the listener with one message.
        reset: begins a reset of the offsets of a topic.
        released: called with queues of which a broker says that they have no owner any more.
        pops: it owns no queues.
    """

    orderly: bool
    consume_thread_count: int
    directly: ConsumeDirectly
    reset: Callable[[str, Mapping[MessageQueue, int]], None]
    released: Callable[[tuple[MessageQueue, ...]], None] = lambda _queues: None
    pops: bool = False


class BrokerCalls:
    """Answers the requests that brokers send to a consumer.

    Args:
        config: shown as the properties of the consumer.
        subscriptions: by topic.
        listening: None for a consumer that pulls by itself. As in RocketMQ, it has no offsets to reset, and answers
            a request to consume one message that it does not know the group.
        explained: returns the explanations of its rebalances, as text.
        strategy: the name of the one that shares the queues; None: it gets all of them, or owns none.
        pops_in_order: of a consumer without a listener that owns no queues; None: it pulls.
    """

    def __init__(
        self,
        member: Membership,
        config: ClientConfig,
        stats: ConsumerStatsManager,
        subscriptions: Mapping[str, SubscriptionData],
        listening: Listening | None = None,
        explained: Callable[[], str] = lambda: "[]",
        strategy: str | None = None,
        pops_in_order: bool | None = None,
    ) -> None:
        self._pops_in_order = pops_in_order
        self._member = member
        self._instance = member.instance
        self._runtime = member.runtime
        self._config = config
        self._table = member.table
        self._offsets = member.offsets
        self._stats = stats
        self._subscriptions = subscriptions
        self._explained = explained
        self._strategy = strategy
        self._listening = listening
        self._started_ms = self._runtime.now_ms()
        self.handlers: Mapping[int, BrokerCall] = {
            _R.GET_CONSUMER_RUNNING_INFO: self._running_info,
            _R.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            _R.GET_CONSUMER_STATUS_FROM_CLIENT: self._consumer_status,
            _R.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            _R.LOCKS_RELEASED: self._locks_released,
        }

    def _refusal(self, command: RemotingCommand, group: str) -> RemotingCommand | None:
        return None if group == self._member.group else _unknown(command, group)

    # Running info --------------------------------------------------------------------------------------------

    def _running_info(self, _endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        header = command.decode_header(GetConsumerRunningInfoRequestHeader)
        refusal = self._refusal(command, header.consumer_group)
        if refusal is not None:
            return refusal
        subscriptions = sorted(self._subscriptions.values())
        info = ConsumerRunningInfo(
            self._properties(),
            tuple(subscriptions),
            {queue: self._table[queue].info(self._offsets.in_memory(queue)) for queue in sorted(self._table)},
            {data.topic: self._stats.status(data.topic) for data in subscriptions},
            self._runtime.stacks()[:_JSTACK_MAX] if header.jstack_enable else None,
        )
        return _reply(command, info)

    def _properties(self) -> dict[str, str]:
        listening = self._listening
        properties = as_properties(self._config) | {
            "PROP_CLIENT_VERSION": version_name(PROTOCOL_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.name,
            "PROP_NAMESERVER_ADDR": self._instance.name_servers.text,
            "consumerGroup": self._member.group,
            EXPLAINED: self._explained(),
        }
        if self._strategy is not None:
            properties["allocateMessageQueueStrategy"] = self._strategy
        if self._pops_in_order is not None:
            properties |= {POPS: "true", "PROP_CONSUMEORDERLY": str(self._pops_in_order).lower()}
        if listening is not None:
            threads, totals = str(listening.consume_thread_count), self._stats.totals.values()
            properties |= {
                "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.name,
                "PROP_CONSUMEORDERLY": str(listening.orderly).lower(),
                POPS: str(listening.pops).lower(),
                "PROP_THREADPOOL_CORE_SIZE": threads,
                "consumeThreadMin": threads,
                "messageModel": self._member.message_model.name,
                "listenerCalls": str(sum(of.calls for of in totals)),
                "listenerCallsSlow": str(sum(of.slow for of in totals)),
                "listenerLongestWaitMs": str(self._stats.longest_wait_ms),
                "listenerCallsNotBegun": str(self._stats.calls_not_begun),
                "listenerCallsOutlived": str(self._stats.calls_outlived),
                "listenerCallsCancelled": str(self._stats.calls_cancelled),
                "deliveriesLost": str(self._stats.deliveries_lost),
            }
        return properties

    # Offsets -------------------------------------------------------------------------------------------------

    def _consumer_status(self, _endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        """The offsets that this client would commit, of one topic or, without a name, of all."""
        header = command.decode_header(ConsumerStatusRequestHeader)
        known = self._table if header.group == self._member.group else ()
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
            "offset_reset_requested", group=header.group, topic=header.topic, queues=len(body.offset_table)
        )
        if header.group == self._member.group and self._listening is not None:
            self._listening.reset(header.topic, body.offset_table)
        return None

    def _locks_released(self, _endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        body = decode_body(LocksReleasedBody, command.body, command.serialize_type)
        if body.consumer_group == self._member.group and self._listening is not None:
            self._listening.released(body.queues)
        return None

    # One message ---------------------------------------------------------------------------------------------

    def _consume_directly(self, endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        header = command.decode_header(ConsumeMessageDirectlyRequestHeader)
        refusal = self._refusal(command, header.consumer_group)
        if refusal is not None:
            return refusal
        pulled = decode_records(command.body, header.broker_name or "")
        if len(pulled.messages) != 1:
            raise BodyError(f"one message is expected, not {len(pulled.messages)}")
        if self._listening is None:
            return _unknown(command, header.consumer_group)
        answering = self._consume_and_reply(self._listening.directly, endpoint, command, pulled)
        self._runtime.create_task(answering, name="consume directly")
        return None

    async def _consume_and_reply(
        self, directly: ConsumeDirectly, endpoint: Endpoint, command: RemotingCommand, pulled: Pulled
    ) -> None:
        try:
            (message,) = await self._instance.unpack_all(pulled)
            reply = _reply(command, await directly(message))
        except BaseException as error:
            if must_propagate(error):
                raise
            reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        endpoint.reply(reply)


def _unknown(command: RemotingCommand, group: str) -> RemotingCommand:
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{group}> not exist in this consumer")


def _reply(command: RemotingCommand, body: WireBody | Any) -> RemotingCommand:
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))
