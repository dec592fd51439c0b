"""Giving up on a message in orderly mode: sent to the retry topic, it becomes a dead letter (wire.md 10.3)."""

from lockstep.client.config import ClientConfig
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.retries import InnerProducer
from lockstep.order.trace import TraceWriter
from lockstep.protocol.message import MessageExt

__all__ = ["DeadLetters"]


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
