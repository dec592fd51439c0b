"""The last changes of queue owners, in the order in which they happened: who owns what, since when, and why.

Both kinds of locks report to it. LIST_LOCK_CHANGES reads it with a cursor, and metrics count it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.model import MessageQueue

__all__ = ["LockJournal"]

_REFUSED: Final = "refused"
_GRANTED_AGAIN: Final = "granted again"
# Of one queue, each of which is written once until the owner changes.
_REFUSED_CLIENTS_MAX: Final = 16
# A lock without a lease: it ends when another takes over.
_EXPIRED: Final = "expired"
_Key = tuple[str, MessageQueue]


class _Rest(NamedTuple):
    """A queue without an owner. `sign_ms`: when the last sign of the last owner arrived."""

    owner: str | None
    cause: str
    sign_ms: int


class LockJournal:
    """The last `changes_max` changes; the oldest goes first.

    Args:
        started_ms: Epoch ms of the broker's start: a cursor of an earlier start means nothing.
        lock_delay_ms: Of fenced locks: a queue whose owner's connection ended rests for so long.

    Attributes:
        end: The number of the next change; the first one has number 0.
        on_takeover: Called when a queue has another owner than before: consumer group and queue, why the last period
            ended, and `rest_ms`.
    """

    def __init__(self, changes_max: int, started_ms: int, lock_delay_ms: int) -> None:
        self.started_ms = started_ms
        self.end = 0
        self.on_takeover: Callable[[_Key, str, int], None] = lambda _key, _cause, _rest_ms: None
        self._changes: deque[LockChange] = deque(maxlen=changes_max)
        self._changes_max = changes_max
        self._lock_delay_ms = lock_delay_ms
        self._rests: OrderedDict[_Key, _Rest] = OrderedDict()  # of queues without an owner
        self._refused: OrderedDict[_Key, set[str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def first(self) -> int:
        """The number of the oldest change that is kept."""
        return self.end - len(self._changes)

    def owner_changed(self, change: OwnerChange) -> None:
        group, queue, old, new, epoch, cause, now_ms, seen_ms = change
        key, text, rest_ms = (group, queue), cause.value, 0
        if new is None:
            self._rests[key] = _Rest(old, text, self._sign_ms(cause, seen_ms, now_ms))
            if len(self._rests) > self._changes_max:
                self._rests.popitem(last=False)
        elif cause is not ChangeCause.RESET:
            rest = self._rests.pop(key, None)
            if rest is None and old is not None:
                rest = _Rest(old, _EXPIRED, seen_ms)
            if rest is not None:
                rest_ms = max(now_ms - rest.sign_ms, 0)
                if rest.owner == new:
                    text = _GRANTED_AGAIN
                else:
                    self.on_takeover(key, rest.cause, rest_ms)
            self._refused.pop(key, None)
        self._add(LockChange(self.end, now_ms, group, queue, old, new, epoch or None, text, rest_ms))

    def _sign_ms(self, cause: ChangeCause, seen_ms: int, now_ms: int) -> int:
        if cause is ChangeCause.LEASE_ENDED:
            return seen_ms
        return max(seen_ms, now_ms - self._lock_delay_ms) if cause is ChangeCause.CONNECTION_LOST else now_ms

    def refused(self, consumer_group: str, queue: MessageQueue, client_id: str, owner: str | None, now_ms: int) -> None:
        """A client asked for the queue of another. Clients ask each 20 s: each is written once for each owner."""
        key = (consumer_group, queue)
        clients = self._refused.get(key)
        if clients is None:
            clients = self._refused[key] = set()
            if len(self._refused) > self._changes_max:
                self._refused.popitem(last=False)
        if client_id not in clients and len(clients) < _REFUSED_CLIENTS_MAX:
            clients.add(client_id)
            self._add(LockChange(self.end, now_ms, consumer_group, queue, owner, client_id, None, _REFUSED, 0))

    def _add(self, change: LockChange) -> None:
        self._changes.append(change)
        self.end += 1

    def since(self, cursor: int, consumer_group: str | None, count_max: int) -> tuple[tuple[LockChange, ...], int]:
        """Changes from number `cursor` on, of one group or of all.

        Returns:
            At most `count_max` changes, oldest first, and the cursor of the next call.
        """
        if not self.first <= cursor <= self.end:
            cursor = self.first
        found: list[LockChange] = []
        for change in self._from(cursor):
            if len(found) == count_max:
                return tuple(found), change.number
            if consumer_group is None or change.consumer_group == consumer_group:
                found.append(change)
        return tuple(found), self.end

    def _from(self, cursor: int) -> Iterator[LockChange]:
        newest_first = islice(reversed(self._changes), self.end - cursor)
        return reversed(list(newest_first))
