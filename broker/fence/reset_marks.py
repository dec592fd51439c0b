"""Queues whose offset an administrator has set, while their owner may not know of it yet."""

from typing import Final

__all__ = ["ResetMarks"]

_LIFE_MS: Final = 30_000  # unmodified clients take 10 s to store the new offset (wire.md 12.9)

_QueueKey = tuple[str, str, int]  # consumer group, topic, queue id


class ResetMarks(dict[_QueueKey, tuple[int, int]]):
    """Queue -> the offset of the reset, and the epoch ms at which the mark ends.

    A mark ends when the owner commits exactly this offset, when a new period of ownership begins, or after 30 s.
    """

    def mark(self, queue: _QueueKey, offset: int, now_ms: int) -> None:
        self[queue] = (offset, now_ms + _LIFE_MS)

    def forbids(self, queue: _QueueKey, offset: int, now_ms: int) -> bool:
        """Whether a commit of `offset` must wait, because it is not the commit that ends the mark."""
        wanted, ends_ms = self.get(queue, (offset, now_ms))
        return offset != wanted and now_ms < ends_ms

    def end(self, queue: _QueueKey) -> None:
        self.pop(queue, None)

    def expire(self, now_ms: int) -> None:
        """Remove the marks whose time is over."""
        for queue in [queue for queue, (_, ends_ms) in self.items() if now_ms >= ends_ms]:
            del self[queue]
