"""Fence: what a broker with fenced locks does beside its lock table (docs/fencing.md)."""

from collections.abc import Iterable

from lockstep.broker.connection import Connection
from lockstep.broker.fence.checks import FenceChecks, FenceTables
from lockstep.broker.fence.fenced_pulls import FencedPulls
from lockstep.broker.state.fenced_locks import OwnerChange
from lockstep.broker.state.held_pulls import PullHold
from lockstep.remoting.logs import EventLog

__all__ = ["Fence"]


class Fence:
    """`checks` decide on requests, `pulls` are those that are held.

    Args:
        tables: What the checks look at.
        served: The held pulls of the broker.
        refused: An empty table for held pulls that only wait for their end.
        legacy: What to do with requests of unmodified clients that are not the owner's: "refuse", "warn" or "off".
        log: Gets an event for refused requests, at a bounded rate.
    """

    def __init__(self, tables: FenceTables, served: PullHold, refused: PullHold, legacy: str, log: EventLog) -> None:
        self.checks = FenceChecks(tables, legacy, log)
        self.pulls = FencedPulls(self.checks, served, refused, tables.store)

    def bind(self, connection: Connection, client_id: str, consumer_groups: Iterable[str], now_ms: int) -> None:
        """A heartbeat or lock request says that this client, with these groups, speaks over the connection."""
        new_count = sum(self.checks.clients.bind(connection, group, client_id) for group in consumer_groups)
        if new_count:
            self.pulls.bound(connection, now_ms)

    def owner_changed(self, change: OwnerChange) -> None:
        """Another period of ownership began, or one ended."""
        group, queue = change.consumer_group, change.queue
        if change.new is not None:  # it begins at the stored offset
            self.checks.resets.end((group, queue.topic, queue.queue_id))
        self.pulls.owner_changed(group, (queue.topic, queue.queue_id), change.now_ms)

    def on_closed(self, connection: Connection) -> None:
        self.checks.clients.on_closed(connection)
        self.pulls.on_closed(connection)

    def expire(self, now_ms: int) -> None:
        """Called every 10 s."""
        self.checks.resets.expire(now_ms)
