"""What the demo sees of its cluster, asked over the admin calls that anybody may use: owners, locks, offsets, rates."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from demo_settings import GROUP, QUEUES, TOPIC

from lockstep.client import AdminClient, MessageQueue

__all__ = ["QueueRow", "Snapshot", "Watch"]

RATE_WINDOW_S = 2.0


class QueueRow(NamedTuple):
    """One queue at one moment. `owner_pid` is 0 while nobody holds its lock."""

    queue_id: int
    owner_pid: int
    lock_age_ms: int
    stored: int
    handled: int  # as committed
    rate: float  # handled per second

    @property
    def lag(self) -> int:
        return max(self.stored - self.handled, 0)


class Snapshot(NamedTuple):
    """All queues at one moment."""

    rows: Sequence[QueueRow]

    @property
    def stored(self) -> int:
        return sum(row.stored for row in self.rows)

    @property
    def handled(self) -> int:
        return sum(row.handled for row in self.rows)

    @property
    def rate(self) -> float:
        return sum(row.rate for row in self.rows)

    def queues_of(self, pid: int) -> list[int]:
        """The queues whose lock a process holds."""
        return [row.queue_id for row in self.rows if row.owner_pid == pid]


class Watch:
    """Asks for snapshots, and remembers the last two seconds for the rates."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._queues: list[MessageQueue] = []
        self._past: deque[tuple[float, list[int]]] = deque()

    async def look(self, now_s: float) -> Snapshot:
        """Ask the broker for everything. Raises RemotingError when it does not answer."""
        if not self._queues:
            route = await self._admin.route(TOPIC)
            self._queues = route.readable_queues(TOPIC)[:QUEUES]
        locks = {row.queue: row for row in await self._admin.list_locks(GROUP) if row.remaining_ms > 0}
        stored = [await self._admin.max_offset(queue) for queue in self._queues]
        handled = [await self._admin.consumer_offset(GROUP, queue) or 0 for queue in self._queues]
        rates = self._rates(now_s, handled)
        rows: list[QueueRow] = []
        for place, queue in enumerate(self._queues):
            lock = locks.get(queue)
            owner, age_ms = (pid_of(lock.client_id), lock.age_ms) if lock else (0, 0)
            rows.append(QueueRow(queue.queue_id, owner, age_ms, stored[place], handled[place], rates[place]))
        return Snapshot(rows)

    def _rates(self, now_s: float, handled: list[int]) -> list[float]:
        self._past.append((now_s, handled))
        while len(self._past) > 2 and self._past[1][0] <= now_s - RATE_WINDOW_S:
            self._past.popleft()
        then_s, before = self._past[0]
        passed_s = max(now_s - then_s, 0.001)
        return [max(now - past, 0) / passed_s for now, past in zip(handled, before, strict=True)]


def pid_of(client_id: str) -> int:
    """The process id in `127.0.0.1@4711#123456789`."""
    return int(client_id.partition("@")[2].partition("#")[0])
