"""ProcessQueue: one period of ownership of a message queue, with three parts (wire.md 12.5). Synchronous.

Three facts are independent: the lock (`hold`), consumption (`cache.consuming`, `life.listener_running`) and
`life.dropped`. Each ownership period has a new ProcessQueue. A dropped one is never used again and commits nothing. One
that outlived its lock is dropped too, because another client may have owned the queue meanwhile.
"""

from typing import Any

from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.ownership.hold import Hold
from lockstep.client.consumer.ownership.life import PeriodLife
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.model import MessageQueue

__all__ = ["ProcessQueue"]


class ProcessQueue:
    """One ownership period of a message queue. Times are epoch milliseconds.

    Args:
        period: the number of the period, counted by the client.
        hold: the lock under which it begins.

    Attributes:
        positioned: its first offset was read under the lock.
        log_run: of the broker's log, when the offset of the next pull was known to be in it; 0: the broker has none.
    """

    __slots__ = (
        "__weakref__", "cache", "hold", "last_consume_ms", "last_pull_ms", "life", "log_run", "period", "positioned",
        "queue", "trace_fields",
    )  # fmt: skip

    def __init__(
        self, queue: MessageQueue, period: int, now_ms: int, hold: Hold, cache: MessageCache | None = None
    ) -> None:
        self.queue = queue
        self.period = period
        self.hold = hold
        self.cache = cache or MessageCache()
        self.life = PeriodLife()
        self.trace_fields = hold.trace_fields(period)
        self.positioned = False
        self.log_run = 0
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms

    def pull_expired(self, now_ms: int, pull_max_idle_ms: int) -> bool:
        return now_ms - self.last_pull_ms > pull_max_idle_ms

    def call_fields(self, now_ms: int) -> dict[str, Any]:
        """The fields of a trace record of a call that ends now."""
        return self.hold.call_fields(now_ms, lost=self.life.lost)

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """For GET_CONSUMER_RUNNING_INFO (wire.md 2.5)."""
        return self.cache.info()._replace(
            commit_offset=commit_offset,
            locked=self.hold.locked,
            try_unlock_times=self.life.try_unlock_times,
            last_lock_timestamp=self.hold.last_lock_ms,
            dropped=self.life.dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )
