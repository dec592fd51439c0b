"""Who owned which queue, by the answers that a broker sent, and when it may give a queue to another."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from lockstep.client import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.findings import Findings, Wrong, place_of
from lockstep.simulation.worlds.asked import Asked
from lockstep.simulation.worlds.plan import Store, WorldPlan

__all__ = ["Grant", "Owners"]


class Grant(NamedTuple):
    epoch: int  # 0: the broker named none
    address: str

    def __str__(self) -> str:
        return f"{self.address} under epoch {self.epoch}" if self.epoch else self.address


@dataclass
class _Queue:
    """
    Args:
        free_ms: before it no new period may begin, by lease, unlock and lock delay.
        ended_ms: of the last unlock.
        is_free: a broker with fenced locks knows no owner: the last one gave the queue back, or its locks are lost.
    """

    grants: list[Grant] = field(default_factory=list)
    leases: dict[tuple[str, int], int] = field(default_factory=dict)  # (address, epoch) -> its end, in ms
    client_id: str = ""
    connection: Endpoint | None = None  # of the last grant or renewal
    granted_ms: int = 0
    free_ms: int = 0
    ended_ms: int = 0
    is_free: bool = False
    unlocks: list[tuple[int, Grant]] = field(default_factory=list)  # when each arrived, with epoch 0 for none
    forgotten: bool = False  # a faithful broker started again since the last grant
    released: str = ""  # how the last period ended before its lease did
    began_at: int = -1  # the stored offset when the last period began; -1: unknown, or it was moved, or the queue freed

    def follows(self, asked: Asked) -> Grant | None:
        """A grant that followed the one under which this was asked; None if there is none.

        Without an epoch it matters only while the queue is not free: then it is open to all (docs/fencing.md).
        """
        if not self.grants:
            return None
        last = self.grants[-1]
        if asked.epoch is not None:
            own = [grant for grant in self.grants if grant.epoch == asked.epoch]
            is_last = own[-1] == last if own else last.epoch <= asked.epoch
            return None if is_last else last
        held = any(grant.address == asked.address for grant in self.grants)
        return last if held and last.address != asked.address and not self.is_free else None


class Owners:
    def __init__(self, findings: Findings, plan: WorldPlan, *, fenced: bool) -> None:
        self._findings = findings
        self._plan = plan
        self._fenced = fenced
        self._queues: dict[MessageQueue, _Queue] = {}
        self._kept: dict[MessageQueue, Grant] = {}  # who owned what when the broker ended

    def of(self, queue: MessageQueue) -> _Queue:
        return self._queues.setdefault(queue, _Queue())

    # Grants --------------------------------------------------------------------------------------------------

    def granted(self, asked: Asked, queue: MessageQueue, grant: Grant, lease_ms: int, presented: int | None) -> bool:
        """A grant has left the broker. Returns whether it begins a period.

        Args:
            presented: the epoch that the request had, 0: none; None: for a reset of the owner, which begins an epoch.
        """
        of = self.of(queue)
        last = of.grants[-1] if of.grants else None
        begins = grant != last or (not grant.epoch and self._begins_anew(of, asked))
        if last is not None:
            self._check(of, asked, queue, grant, presented)
            if last.address != grant.address:
                self._findings.saw("takeovers")
            if self._kept.pop(queue, None) == grant and grant.epoch:
                self._findings.saw("reclaims")
            if grant != last and of.released:
                self._findings.saw(of.released)
        if grant != last:
            of.grants.append(grant)
        elif asked.handled_ms < of.ended_ms:  # the answer to a renewal left late, and the owner had unlocked meanwhile
            return begins
        of.client_id = asked.lock.client_id if asked.lock is not None else of.client_id
        of.connection, of.granted_ms, of.released, of.forgotten = asked.endpoint, asked.handled_ms, "", False
        of.free_ms, of.is_free = asked.handled_ms + lease_ms, False
        key = (grant.address, grant.epoch)
        for at_ms, unlock in of.unlocks:
            if at_ms > asked.handled_ms and unlock == grant:
                self._given_back(of, at_ms)  # before the answer left
                break
        of.leases[key] = max(of.free_ms, of.leases.get(key, 0))
        return begins

    def _begins_anew(self, of: _Queue, asked: Asked) -> bool:
        """Whether the last owner's address begins a period, which an unmodified client does not say.

        Its process may not know that its lock ended, so it does after an unlock only, or as another process.
        """
        if asked.lock is not None and of.client_id not in ("", asked.lock.client_id):
            return True
        return of.released == "handovers" and asked.handled_ms >= of.free_ms

    def _check(self, of: _Queue, asked: Asked, queue: MessageQueue, grant: Grant, presented: int | None) -> None:
        last, highest = of.grants[-1], max(of.grants)
        early_ms = of.free_ms - asked.handled_ms
        if grant.epoch and grant.epoch < highest.epoch:
            wrong = Wrong.STALE_RENEWAL if presented == grant.epoch else Wrong.EPOCH_BACK
            self._findings.add(wrong, f"{queue}: granted to {grant} after {highest}", queue=place_of(queue))
        elif grant.epoch and grant.epoch == last.epoch and grant.address != last.address:
            self._findings.add(Wrong.SHARED_EPOCH, f"{queue}: granted to {grant} and to {last}", queue=place_of(queue))
        elif grant != last and presented is not None and early_ms > 0:
            anew = presented == last.epoch and grant.address == last.address
            early = Wrong.LOCK_FORGOTTEN if of.forgotten else Wrong.GRANTED_EARLY
            text = f"{queue}: granted to {grant} {early_ms} ms before the time of {last} was over"
            self._findings.add(Wrong.EPOCH_OF_RENEWAL if anew else early, text, queue=place_of(queue))

    # Ends ----------------------------------------------------------------------------------------------------

    def unlocked(self, asked: Asked, queue: MessageQueue, epoch: int | None) -> bool:
        """An unlock arrived. Returns whether it ends a period."""
        of = self.of(queue)
        of.unlocks.append((asked.handled_ms, Grant(epoch or 0, asked.address)))
        if not of.grants or Grant(epoch or 0, asked.address) != of.grants[-1]:
            return False
        live, of.began_at = asked.handled_ms < of.free_ms, -1
        of.ended_ms = of.leases[of.grants[-1].address, of.grants[-1].epoch] = asked.handled_ms  # no call begins later
        self._given_back(of, asked.handled_ms)
        return live

    def left(self, client_id: str) -> None:
        """UNREGISTER_CLIENT."""
        for of in self._queues.values():
            if of.client_id == client_id:
                of.began_at = -1
                self._given_back(of, self._findings.world.clock_ms(BROKER))

    def connection_ended(self, connection: Endpoint) -> None:
        now_ms = self._findings.world.clock_ms(BROKER)
        for of in self._queues.values():
            if self._fenced and of.connection is connection:
                delay_ms = self._plan.lock_delay_ms
                if of.grants[-1].epoch == 0:  # not one of our fenced clients
                    delay_ms = max(of.granted_ms + self._plan.lock_delay_legacy_ms - now_ms, 0)
                self._released(of, now_ms + delay_ms, "lock delays")

    def _given_back(self, of: _Queue, at_ms: int) -> None:
        of.is_free = self._fenced
        self._released(of, at_ms, "handovers")

    @staticmethod
    def _released(of: _Queue, free_ms: int, how: str) -> None:
        if free_ms < of.free_ms:
            of.free_ms, of.released = free_ms, how

    def kept_offsets(self) -> Iterator[tuple[MessageQueue, int]]:
        """Queues whose last period a broker keeps with the offset at which it began."""
        for queue, of in self._queues.items():
            if of.began_at > 0 and of.grants[-1].epoch:
                yield queue, of.began_at

    def broker_started(self, *, offsets_lost: bool) -> None:
        """With a store in memory the broker has forgotten its locks, else they hold for at least what was left.

        Args:
            offsets_lost: those at which the periods began are lost, or beyond the end of a log that was cut.
        """
        self._kept = {queue: of.grants[-1] for queue, of in self._queues.items() if of.grants}
        for of in self._queues.values():
            of.connection = None
            of.forgotten = not self._fenced
            of.began_at = -1 if offsets_lost else of.began_at
            if self._plan.store is Store.MEMORY:
                of.free_ms, of.is_free = 0, self._fenced
