"""A consume queue in memory: commit log offset, size and tag hash of each message (wire.md 5)."""

from array import array
from bisect import bisect_left

__all__ = ["ConsumeQueue"]


class ConsumeQueue:
    """Entry i belongs to queue offset `min_offset` + i. `max_offset` is exclusive."""

    __slots__ = ("commit_log_offsets", "min_offset", "sizes", "tags_codes")

    def __init__(self) -> None:
        self.min_offset = 0
        self.commit_log_offsets = array("q")
        self.sizes = array("i")
        self.tags_codes = array("q")

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.sizes)

    def append(self, commit_log_offset: int, size_bytes: int, tags_code: int) -> None:
        self.commit_log_offsets.append(commit_log_offset)
        self.sizes.append(size_bytes)
        self.tags_codes.append(tags_code)

    def stored_bytes(self, first_offset: int, end_offset: int) -> int:
        low = self.min_offset
        return sum(self.sizes[max(first_offset - low, 0) : max(end_offset - low, 0)])

    def trim(self, commit_log_min_offset: int) -> int:
        """Drop the entries of dropped messages. Returns their number."""
        gone = bisect_left(self.commit_log_offsets, commit_log_min_offset)
        if gone:
            del self.commit_log_offsets[:gone]
            del self.sizes[:gone]
            del self.tags_codes[:gone]
            self.min_offset += gone
        return gone
