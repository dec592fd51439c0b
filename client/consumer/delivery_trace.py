"""DeliveryTrace: the records of a consumer that pops, from which `lockstep.order` judges order."""

from collections.abc import Sequence
from typing import Any

from lockstep.client.consumer.delivery import Delivery
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import pop_retry_topic
from lockstep.protocol.receipts import TopicKind
from lockstep.protocol.selector import SHARDING_KEY_OF, KeyOf

__all__ = ["DeliveryTrace"]


class DeliveryTrace:
    """Writes what becomes of each delivery.

    Args:
        key_of: Returns the key of a message.
    """

    def __init__(self, writer: TraceWriter, group: str, key_of: KeyOf = SHARDING_KEY_OF) -> None:
        self._writer = writer
        self._group = group
        self._key_of = key_of
        self.close = writer.close
        self.now = writer.now

    def delivered(self, deliveries: Sequence[Delivery], sent_ns: int) -> None:
        """The answer to a pop that was sent at `sent_ns` has come."""
        for one in deliveries:
            fence = {} if one.until_ns is None else {"epoch": one.receipt.pop_ms}
            fields = {"invisible_ms": one.receipt.invisible_ms, "reconsume_times": one.times_before, **fence}
            self._write("delivered", one, **self._of_message(one), **fields, begin_mono_ns=sent_ns)

    def handled(self, deliveries: Sequence[Delivery], status: str, begin: tuple[int, int]) -> None:
        """A call returned.

        Args:
            begin: (wall_ms, mono_ns) before the call.
        """
        fields = {"status": status, "ordering": "key", "begin_wall_ms": begin[0], "begin_mono_ns": begin[1]}
        for one in deliveries:
            self._write("handled", one, **self._of_message(one), **fields, reconsume_times=one.times_before)

    def answered(self, event: str, delivery: Delivery, sent_ns: int, **fields: Any) -> None:
        """The broker answered: `acked`, `renewed` or `refused`."""
        self._write(event, delivery, **fields, begin_mono_ns=sent_ns)

    def dead_lettered(self, delivery: Delivery, sent_ns: int) -> None:
        """The broker took the message as a dead letter."""
        self._write("dead_lettered", delivery, **self._of_message(delivery), begin_mono_ns=sent_ns)

    def _of_message(self, delivery: Delivery) -> dict[str, Any]:
        return {"key": self._key_of(delivery.message), "msg_id": delivery.message.msg_id}

    def _write(self, event: str, delivery: Delivery, **fields: Any) -> None:
        receipt, topic = delivery.receipt, delivery.message.topic
        if receipt.topic_kind != TopicKind.TOPIC:
            # Its offset is one of the retry topic.
            topic = pop_retry_topic(self._group, topic, version=receipt.topic_kind)
        queue = MessageQueue(topic, receipt.broker_name, receipt.queue_id)
        self._writer.queue_event(event, queue, offset=receipt.queue_offset, pop_ms=receipt.pop_ms, **fields)
