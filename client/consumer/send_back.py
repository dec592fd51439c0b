"""Sending a message back that a listener failed at: the broker delivers it again, later (wire.md 10.1, 12.8)."""

from typing import Final

from lockstep.client.config import ClientConfig, ConsumerConfig
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.errors import NoRouteError, SendError
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.retries import InnerProducer
from lockstep.order.trace import TraceWriter
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.message import MessageExt
from lockstep.remoting.errors import RemotingError, RequestRefused

__all__ = ["DeadLetters", "SendBack"]

_TIMEOUT_MS: Final = 5000
_DEFAULT_MAX_RECONSUME_TIMES: Final = 16


class SendBack:
    def __init__(
        self, instance: MQClientInstance, group: str, config: ConsumerConfig, trace: TraceWriter | None
    ) -> None:
        self._instance = instance
        self._log = instance.log
        self._group = group
        self._trace = trace
        self._producer = InnerProducer(instance, group, config)
        limit = config.max_reconsume_times
        self._limit = _DEFAULT_MAX_RECONSUME_TIMES if limit < 0 else limit

    async def send(self, process_queue: ProcessQueue, message: MessageExt, delay_level: int) -> bool:
        """Has a broker taken it? `delay_level` 0 leaves the delay to it, a negative one makes a dead letter.

        The message's own broker makes the copy. When it does not, the copy is sent as a new message to whichever broker
        has the retry topic; there the delay is level 3 + the times it was tried, whatever was asked for.
        """
        try:
            await self._ask_broker(process_queue.queue.broker_name, message, delay_level)
        except (RemotingError, NoRouteError) as error:
            self._warn("message not sent back by its broker: sent anew", process_queue, message, error)
            try:
                outgoing = self._producer.retry(message, message.reconsume_times + 1, self._limit)
                await self._producer.send_anywhere(outgoing, process_queue.queue.broker_name)
            except SendError as error_too:
                self._warn("message not sent back", process_queue, message, error_too)
                return False
        if self._trace is not None:
            self._trace.queue_event(
                "sent_back",
                process_queue.queue,
                period=process_queue.period,
                offset=message.queue_offset,
                key=message.sharding_key,
                msg_id=message.msg_id,
            )
        return True

    async def _ask_broker(self, broker_name: str, message: MessageExt, delay_level: int) -> None:
        header = SendMessageBackRequestHeader(
            message.commit_log_offset,
            self._group,
            delay_level,
            message.msg_id,
            message.first_topic,
            False,
            self._limit,
        )
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        reply = await self._instance.call(broker_name, code, header, timeout_ms=_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise RequestRefused(broker_name, request_name(code), reply.code, reply.remark)

    def _warn(self, event: str, process_queue: ProcessQueue, message: MessageExt, error: Exception) -> None:
        self._log.warning(
            event,
            queue=str(process_queue.queue),
            offset=message.queue_offset,
            msg_id=message.msg_id,
            error=str(error),
        )


class DeadLetters:
    def __init__(self, instance: MQClientInstance, group: str, config: ClientConfig, trace: TraceWriter | None) -> None:
        self._log = instance.log
        self._trace = trace
        self._producer = InnerProducer(instance, group, config)

    async def send(self, process_queue: ProcessQueue, message: MessageExt, limit: int) -> None:
        """Raises SendError when the broker did not take it; the message then stays where it is."""
        outgoing = self._producer.retry(message, message.reconsume_times, limit)
        await self._producer.send_to(process_queue.queue.broker_name, outgoing)
        self._log.warning(
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
