"""FirstOffset: the offset of the first pull in an ownership period, computePullFromWhere (wire.md 12.3)."""

from lockstep.client.admin.queues import QueueQueries
from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.offsets.store import NO_OFFSET, OffsetStore
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.errors import ClientError
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.protocol.names import is_retry_topic

__all__ = ["DEFAULT_LOOK_BACK_MS", "FirstOffset"]

_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
_TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
DEFAULT_LOOK_BACK_MS = 30 * 60 * 1000


class FirstOffset:
    """Computed once in an ownership period, after the lock was granted.

    RocketMQ computes the offset twice, before and after the lock. With CONSUME_FROM_LAST_OFFSET the second time reads a
    later maximum, and messages between the two are skipped (wire.md 14, #10955).
    """

    def __init__(self, instance: MQClientInstance, group: str, config: ConsumerConfig, offsets: OffsetStore) -> None:
        self._instance = instance
        self._group = group
        self._offsets = offsets
        self._from_where = config.consume_from_where
        self._timestamp_ms = (
            config.consume_timestamp_ms
            if config.consume_timestamp_ms is not None
            else instance.runtime.now_ms() - DEFAULT_LOOK_BACK_MS
        )

    async def __call__(self, process_queue: ProcessQueue) -> int:
        """Return the offset. Raises RemotingError, NoRouteError; ClientError for an offset below 0."""
        queue = process_queue.queue
        stored = await self._offsets.read(queue)
        offset = stored if stored != NO_OFFSET else await self._without_stored(process_queue)
        if offset < 0:
            # Article 2: a queue with such an offset is not pulled.
            raise ClientError(f"the brokers say that queue {queue} begins at {offset}; an offset must not be below 0")
        return offset

    async def _without_stored(self, process_queue: ProcessQueue) -> int:
        queue = process_queue.queue
        queries = QueueQueries(self._instance, self._group, process_queue.hold.epoch)
        is_retry = is_retry_topic(queue.topic)
        if self._from_where is _FIRST or (is_retry and self._from_where is not _TIMESTAMP):
            return 0
        if self._from_where is _TIMESTAMP and not is_retry:
            return await queries.search_offset(queue, self._timestamp_ms)
        return await queries.max_offset(queue)
