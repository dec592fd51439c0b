"""The process queue of `ordering="key"`: its content lies in lanes, one a key."""

from collections.abc import Sequence

from lockstep.client.consumer.dispatch.key_queues import KeyLanes, Lane
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.selector import SHARDING_KEY_OF, KeyOf

__all__ = ["KeyedProcessQueue"]


class KeyedProcessQueue(ProcessQueue):
    """`message_count` leaves out parked lanes, so that a key that fails does not use up `pull_threshold_for_queue`.

    `message_bytes` has them, for they are in memory. Beyond `span_max` nothing is pulled (`is_full`).
    """

    def __init__(
        self,
        queue: MessageQueue,
        period: int,
        now_ms: int,
        *,
        locked_ms: int | None = None,
        needs_lock: bool = True,
        span_max: int,
        key_of: KeyOf = SHARDING_KEY_OF,
    ) -> None:
        super().__init__(queue, period, now_ms, locked_ms=locked_ms, needs_lock=needs_lock)
        self.lanes = KeyLanes(span_max, key_of)

    def put_in_lanes(self, messages: Sequence[MessageExt]) -> list[Lane]:
        """The lanes that may be started for what was pulled."""
        started = self.lanes.put(messages)
        self.note_content()
        return started

    def note_content(self) -> None:
        """After a change of the lanes: count anew, and wake the pull loop when there is room."""
        lanes = self.lanes
        self.message_count = lanes.ready_count
        self.message_bytes = lanes.message_bytes
        if self._room is not None and lanes.ready_count < self._room_below and not lanes.is_full:
            self._room.set_result(None)
            self._room = None

    @property
    def position(self) -> int:
        """The lowest offset that is not handled; -1 before the first pull is placed."""
        return self.next_offset if self.lanes.is_empty else self.lanes.commit_offset

    @property
    def is_empty(self) -> bool:
        return self.lanes.is_empty

    @property
    def max_span(self) -> int:
        """From the lowest offset that is not handled to the highest one pulled."""
        return self.lanes.span

    @property
    def is_full(self) -> bool:
        return self.lanes.is_full

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """As ProcessQueue's. What is parked counts as cached; nothing is ever in hand for a commit."""
        lanes = self.lanes
        bounds = (lanes.commit_offset, lanes.highest) if not lanes.is_empty else (0, 0)
        return (
            super()
            .info(commit_offset)
            ._replace(
                cached_msg_min_offset=bounds[0],
                cached_msg_max_offset=bounds[1],
                cached_msg_count=lanes.unhandled_count,
            )
        )
