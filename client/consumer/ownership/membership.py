"""Membership: the facts about one member of a consumer group that all parts of a consumer share."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.offsets.store import OffsetStore
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.instance.client import MQClientInstance
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.bodies.heartbeat import MessageModel
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog

__all__ = ["Membership"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One member of a consumer group.

    Args:
        offsets: the store of consume offsets.
        table: the process queues of the queues that this member owns; all parts share this one dictionary.
        trace: None when the consumer writes no trace.
    """

    instance: MQClientInstance
    group: str
    config: ConsumerConfig
    offsets: OffsetStore
    message_model: MessageModel = MessageModel.CLUSTERING
    table: dict[MessageQueue, ProcessQueue] = field(default_factory=dict)
    trace: TraceWriter | None = None

    @property
    def runtime(self) -> Runtime:
        return self.instance.runtime

    @property
    def log(self) -> EventLog:
        return self.instance.log

    def record(self, event: str, process_queue: ProcessQueue, **fields: Any) -> None:
        """Write an event of a queue to the trace, if there is one."""
        if self.trace is not None:
            self.trace.queue_event(event, process_queue.queue, **process_queue.trace_fields, **fields)

    def record_offsets(self, event: str, offsets: Iterable[tuple[ProcessQueue, int]]) -> None:
        """Write an event of several queues at once, each with an offset."""
        if self.trace is not None:
            self.trace.offsets(event, [(known.queue, known.trace_fields, at) for known, at in offsets])

    def holds_lock(self, process_queue: ProcessQueue) -> bool:
        """Return whether this member may still trust the lock of the queue."""
        return process_queue.hold.is_trusted(self.runtime.now_ms())

    def commit_leaves(self, process_queue: ProcessQueue, offset: int) -> None:
        """A commit leaves with a pull. Under an epoch only what the broker answers that it took counts as committed."""
        if not process_queue.hold.epoch:
            self.offsets.commits += 1
            self.record_offsets("committed", [(process_queue, offset)])
