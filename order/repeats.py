"""Rule (b) for calls that keep less than queue order in order: what an ownership period may repeat of each *lane*.

A lane is what must stay in order among itself: the messages of a key (`ordering` "key"), or a message alone ("none"). A
failed attempt opens the way back for its lane and holds up no other. A new period begins at the stored commit and goes
through every lane anew; what other keys had handled above the commit repeats then, and is a takeover's duplicate.
"""

from typing import Any, NamedTuple

from lockstep.order.reader import Record

__all__ = ["Lanes"]


class _Lane(NamedTuple):
    """Where a lane stands: the offset after the last one handled, and one past the highest that was."""

    stands_at: int = -1
    end: int = -1
    rewinds_to: int = -1  # the first of the last call, if that failed
    call_begin: Any = None
    call_first: int = -1
    call_end: int = -(1 << 63)


_UNTOUCHED = _Lane()


class Lanes:
    """Of one ownership period. Memory grows with its keys, and without order with what failed."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str | int | None], _Lane] = {}

    def stands_at(self, record: Record, offset: int) -> int:
        """The offset after the last one handled in the lane of a handled record; -1 before the first."""
        return self._lanes.get(_name(record, offset), _UNTOUCHED).stands_at

    def is_second_attempt(self, record: Record, offset: int) -> bool:
        """A failed call comes again from its first message on, and then goes through all that was handled of it."""
        lane = self._lanes.get(_name(record, offset), _UNTOUCHED)
        return 0 <= lane.rewinds_to <= offset < lane.end or 0 <= lane.stands_at <= offset < lane.end

    def runs_beside(self, record: Record, offset: int, begin: int) -> bool:
        """Whether the last call of the lane still ran when this one began."""
        lane = self._lanes.get(_name(record, offset), _UNTOUCHED)
        return begin < lane.call_end and begin != lane.call_begin

    def note(self, record: Record, offset: int, failed: bool) -> None:
        """A message of the lane was handled, or an attempt at it failed."""
        name = _name(record, offset)
        if record["ordering"] == "none" and not failed:
            self._lanes.pop(name, None)  # it is done, and no other message waits for it
            return
        begin = record.get("begin_mono_ns")
        lane = self._lanes.get(name, _UNTOUCHED)
        first = lane.call_first if begin is not None and begin == lane.call_begin else offset
        self._lanes[name] = _Lane(
            offset + 1, max(lane.end, offset + 1), first if failed else -1, begin, first, record.get("mono_ns", -1)
        )


def _name(record: Record, offset: int) -> tuple[str, str | int | None]:
    return record["ordering"], record.get("key") if record["ordering"] == "key" else offset
