"""Rule (b) for calls that do not keep the order of a whole queue: the repeats that a period may do in each *scope*.

A scope is what must stay in order: the messages of one key (`ordering` "key"), or a single message ("none"). A failed
attempt allows its own scope to go back and delays no other scope. A new period begins at the stored commit and
repeats every scope from there. Messages above the commit that were already handled are duplicates of that takeover.
"""

from typing import Any, NamedTuple

from lockstep.order.traces.reader import Record

__all__ = ["Scopes"]


class _Scope(NamedTuple):
    """The position of a scope: one past the last handled offset, and one past the highest handled offset."""

    stands_at: int = -1
    end: int = -1
    rewinds_to: int = -1  # the first offset of the last call if it failed, else -1
    call_begin: Any = None
    call_first: int = -1
    call_end: int = -(1 << 63)


_UNTOUCHED = _Scope()


class Scopes:
    """The scopes of one ownership period. Memory grows with its keys; with ordering "none", with failed messages."""

    __slots__ = ("_scopes",)

    def __init__(self) -> None:
        self._scopes: dict[tuple[str, str | int | None], _Scope] = {}

    def stands_at(self, record: Record, offset: int) -> int:
        """One past the last handled offset in the scope of a record; -1 before the first."""
        return self._scopes.get(_name(record, offset), _UNTOUCHED).stands_at

    def is_second_attempt(self, record: Record, offset: int) -> bool:
        """Whether the record repeats a failed call: from its first message up to the highest handled offset."""
        scope = self._scopes.get(_name(record, offset), _UNTOUCHED)
        return 0 <= scope.rewinds_to <= offset < scope.end or 0 <= scope.stands_at <= offset < scope.end

    def runs_beside(self, record: Record, offset: int, begin: int) -> bool:
        """Whether the previous call of the scope was still running when this one began."""
        scope = self._scopes.get(_name(record, offset), _UNTOUCHED)
        return begin < scope.call_end and begin != scope.call_begin

    def note(self, record: Record, offset: int, failed: bool) -> None:
        """Update the scope after a call for a message, successful or failed."""
        name = _name(record, offset)
        if record["ordering"] == "none" and not failed:
            self._scopes.pop(name, None)  # its only message is done
            return
        begin = record.get("begin_mono_ns")
        scope = self._scopes.get(name, _UNTOUCHED)
        first = scope.call_first if begin is not None and begin == scope.call_begin else offset
        self._scopes[name] = _Scope(
            offset + 1, max(scope.end, offset + 1), first if failed else -1, begin, first, record.get("mono_ns", -1)
        )


def _name(record: Record, offset: int) -> tuple[str, str | int | None]:
    return record["ordering"], record.get("key") if record["ordering"] == "key" else offset
