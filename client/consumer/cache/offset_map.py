"""OffsetMap: the cached messages of one queue by offset, lowest first. Synchronous."""

from collections import deque
from collections.abc import Mapping

from lockstep.protocol.messages.message import MessageExt

__all__ = ["OffsetMap"]


class OffsetMap:
    """Pulls bring messages in the order of offsets, so each operation costs O(1) for each message, amortised.

    Only messages that are put below the last one, after a rollback, cost a sort of all. `by_offset` is for reading.
    """

    # Not a SortedDict of sortedcontainers: with it a consumer spends 7.1 us of processor time on a message instead of
    # 5.6, and 3.8 us instead of 2.8 when its listener takes 32 at once (medians of five drains, in turns).

    __slots__ = ("_offsets", "by_offset")

    def __init__(self) -> None:
        self.by_offset: dict[int, MessageExt] = {}  # ascending
        # Its keys, and some that were removed: a dict has no cheap first key.
        self._offsets: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.by_offset)

    def __contains__(self, offset: int) -> bool:
        return offset in self.by_offset

    def put(self, messages: Mapping[int, MessageExt]) -> int:
        """Add messages by offset; those at the same offsets are replaced. Returns the number of bytes of the new."""
        by_offset, offsets = self.by_offset, self._offsets
        in_order = sorted(messages)
        if messages and in_order == [*messages] and (not offsets or in_order[0] > offsets[-1]):
            # As pulls bring them.
            by_offset.update(messages)
            offsets.extend(in_order)
            return sum([message.body_bytes for message in messages.values()])
        new = [offset for offset in in_order if offset not in by_offset]
        below = bool(new and offsets and new[0] <= offsets[-1])
        by_offset.update(messages)
        if below or [*messages] != new:
            self.by_offset = {offset: by_offset[offset] for offset in sorted(by_offset)}
            self._offsets = deque(self.by_offset)
        else:
            offsets.extend(new)
        return sum([messages[offset].body_bytes for offset in new])

    def take(self, count: int, into: dict[int, MessageExt]) -> list[MessageExt]:
        """Move the first `count` messages, or all if they are fewer, to `into` and return them; lowest first."""
        by_offset, offsets = self.by_offset, self._offsets
        if count >= len(by_offset):
            into.update(by_offset)
            self.by_offset = {}
            offsets.clear()
            return list(by_offset.values())
        if count == 1:  # the usual case, at half the cost
            while (offset := offsets.popleft()) not in by_offset:
                pass
            into[offset] = message = by_offset.pop(offset)
            return [message]
        taken: list[MessageExt] = []
        while len(taken) < count:
            offset = offsets.popleft()
            if offset in by_offset:
                into[offset] = message = by_offset.pop(offset)
                taken.append(message)
        return taken

    def pop(self, offset: int) -> MessageExt | None:
        """Remove and return the message at `offset`; None: there is none."""
        return self.by_offset.pop(offset, None)

    @property
    def first(self) -> int:
        """The lowest offset. The map must not be empty."""
        while self._offsets[0] not in self.by_offset:
            self._offsets.popleft()
        return self._offsets[0]

    @property
    def last(self) -> int:
        """The highest offset. The map must not be empty."""
        while self._offsets[-1] not in self.by_offset:
            self._offsets.pop()
        return self._offsets[-1]

    @property
    def first_message(self) -> MessageExt:
        """The message at the lowest offset. The map must not be empty."""
        return self.by_offset[self.first]
