"""Watches the demo's cluster by public admin calls: owners, locks, offsets, rates.

RocketMQ has no call for the owner of a lock; for its brokers the owners come from the consumers' traces.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.client import AdminClient, MessageQueue
from scripts.demo.consumer import GROUP, QUEUES, TOPIC

__all__ = ["QueueRow", "Snapshot", "TraceOwners", "Watch"]

RATE_WINDOW_S = 2.0


class QueueRow(NamedTuple):
    """One queue at one moment.

    Args:
        owner_pid: Whose lock it is; of a FIFO group: who has the oldest message that is not acknowledged. 0: nobody.
    """

    queue_id: int
    owner_pid: int
    lock_age_ms: int | None  # None if the broker does not list locks
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
    def lag(self) -> int:
        return sum(row.lag for row in self.rows)

    @property
    def rate(self) -> float:
        return sum(row.rate for row in self.rows)

    def queues_of(self, pid: int) -> list[int]:
        """The queues that a process owns."""
        return [row.queue_id for row in self.rows if row.owner_pid == pid]


class TraceOwners:
    """Owners of queues by the consumers' `traces`, a list that may grow."""

    def __init__(self, traces: Sequence[Path]) -> None:
        self._traces = traces
        self._read: dict[Path, int] = {}
        self._owners: dict[int, tuple[int, int]] = {}  # queue id -> (since, process id; 0 for none)

    def look(self) -> Mapping[int, int]:
        """Process ids by queue id. What a killed consumer held stays its own until somebody else has acquired it."""
        for path in self._traces:
            if path.exists():
                self._read_on(path)
        return {queue_id: pid for queue_id, (_, pid) in self._owners.items()}

    def _read_on(self, path: Path) -> None:
        with path.open("rb") as lines:
            lines.seek(self._read.get(path, 0))
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._read[path] = self._read.get(path, 0) + len(line)
                if line.startswith(_OWNERSHIP):
                    self._note(json.loads(line))

    def _note(self, record: Mapping[str, Any]) -> None:
        queue_id, at, pid = record["queue_id"], record["mono_ns"], pid_of(record["client_id"])
        since, owner = self._owners.get(queue_id, (0, 0))
        if record["topic"] != TOPIC or at < since:
            return
        if record["event"] == "acquired":
            self._owners[queue_id] = (at, pid)
        elif owner == pid:
            self._owners[queue_id] = (since, 0)


_OWNERSHIP = tuple(f'{{"event":"{event}"'.encode() for event in ("acquired", "dropped", "lock_lost"))


class Watch:
    """Takes snapshots, and keeps those of the last two seconds for rates.

    Args:
        owners: For brokers that do not list locks.
        fifo: The group has no locks, but deliveries.
    """

    def __init__(self, admin: AdminClient, owners: TraceOwners | None = None, *, fifo: bool = False) -> None:
        self._admin = admin
        self._fifo = fifo
        self._owners = owners
        self._queues: list[MessageQueue] = []
        self._past: deque[tuple[float, list[int]]] = deque()

    async def look(self, now_s: float) -> Snapshot:
        """Ask the broker for everything. Raises RemotingError when it does not answer."""
        if not self._queues:
            route = await self._admin.route(TOPIC)
            self._queues = route.readable_queues(TOPIC)[:QUEUES]
        holders = await self._holders()
        # In this order: messages handled between the two reads would give a lag below 0.
        handled = [await self._admin.consumer_offset(GROUP, queue) or 0 for queue in self._queues]
        stored = [await self._admin.max_offset(queue) for queue in self._queues]
        rates = self._rates(now_s, handled)
        rows: list[QueueRow] = []
        for place, queue in enumerate(self._queues):
            owner, age_ms = holders.get(queue.queue_id, (0, 0))
            rows.append(QueueRow(queue.queue_id, owner, age_ms, stored[place], handled[place], rates[place]))
        return Snapshot(rows)

    async def _holders(self) -> Mapping[int, tuple[int, int | None]]:
        """(process id, age of the lock) by queue id."""
        if self._owners is not None:
            return {queue_id: (pid, None) for queue_id, pid in self._owners.look().items()}
        if self._fifo:
            oldest_last = reversed((await self._admin.list_deliveries(GROUP)).rows)
            return {row.queue.queue_id: (pid_of(row.client_id or ""), None) for row in oldest_last}
        locks = [row for row in await self._admin.list_locks(GROUP) if row.remaining_ms > 0]
        return {row.queue.queue_id: (pid_of(row.client_id), row.age_ms) for row in locks if row.queue in self._queues}

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
