"""Tells clients that wait for a lock that queues are free, and logs why periods of ownership ended."""

from typing import Final

from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.broker.ownership.fenced.locks import FencedLocks
from lockstep.broker.ownership.port import Around
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.epochs import epoch_text

__all__ = ["LockNotices"]

_NOTICES_A_STEP: Final = 32
# One with more queues counts as several.
_QUEUES_A_NOTICE: Final = 64
# Log events of one turn, group, client and cause; above that, one event has their count.
_LINES_MAX: Final = 100
_LOGGED: Final = (
    ChangeCause.LEFT,
    ChangeCause.CONNECTION_LOST,
    ChangeCause.LEASE_ENDED,
    ChangeCause.WITHDRAWN,
)  # an unlock logs itself


class LockNotices:
    """Each waiting connection is told once for each group and turn of the loop, however many queues are free."""

    def __init__(self, locks: FencedLocks, around: Around) -> None:
        self._locks = locks
        self._work = around.work
        self._tell_free = around.tell_free
        self._log = around.log
        self._ended: dict[tuple[str, str, ChangeCause], list[OwnerChange]] = {}

    def owner_changed(self, change: OwnerChange) -> None:
        if change.old is not None and change.cause in _LOGGED:
            self._ended.setdefault((change.consumer_group, change.old, change.cause), []).append(change)
        self.check()

    def check(self) -> None:
        """Begin to notify, in the next turn of the loop, unless that has begun."""
        if (self._locks.waiters.any_woken or self._ended) and not self._work.count_of(self):
            self._work.start(self, self._notify_all())

    def _notify_all(self) -> Steps:
        # The rest of this turn may free more queues.
        yield None
        while self._locks.waiters.any_woken or self._ended:
            self._log_ended()
            sent_count = 0
            for woken in (yield from self._locks.waiters.take()):
                self._tell_free(woken.connection, woken.consumer_group, woken.queues, woken.fenced)
                sent_count += 1 + len(woken.queues) // _QUEUES_A_NOTICE
                if sent_count >= _NOTICES_A_STEP:
                    sent_count = 0
                    yield None

    def _log_ended(self) -> None:
        ended, self._ended = self._ended, {}
        for (group, client_id, cause), changes in ended.items():
            if len(changes) > _LINES_MAX:
                self._log.info(
                    "locks_ended",
                    group=group,
                    client_id=client_id,
                    why=cause.value,
                    count=len(changes),
                    first=str(changes[0].queue),
                )
                continue
            for change in changes:
                epoch = epoch_text(change.epoch)
                self._log.info(
                    "lock_ended",
                    group=group,
                    client_id=client_id,
                    why=cause.value,
                    queue=str(change.queue),
                    epoch=epoch,
                )
