"""A table of fenced locks, and one client's calls to it."""

from collections.abc import Generator
from typing import Any, Final, TypeVar

from lockstep.broker.core.broker import Broker
from lockstep.broker.ownership.answers import FenceAnswer, LockAnswer
from lockstep.broker.ownership.changes import OwnerChange
from lockstep.broker.ownership.fenced.locks import FencedLocks, FenceSettings
from lockstep.broker.ownership.fenced.ownership import FencedOwnership
from lockstep.broker.ownership.fenced.waiters import Woken
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS, FakeConnection

__all__ = ["DELAY_MS", "LEASE_MS", "LEGACY_MS", "QUEUE", "Fences", "fenced", "steps_of"]

T = TypeVar("T")

LEASE_MS: Final = 60_000
DELAY_MS: Final = 3000
LEGACY_MS: Final = 31_000
QUEUE: Final = MessageQueue("T", "broker-a", 0)


def steps_of(steps: Generator[None, None, T]) -> T:
    """Run all steps; what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def fenced(broker: Broker) -> FencedOwnership:
    """The ownership of a broker with fenced locks."""
    assert isinstance(broker.ownership, FencedOwnership)
    return broker.ownership


class Fences:
    """`locks` with RocketMQ's lease and the default delays. Connections have names: a client's first one has its id."""

    def __init__(self, boot: int = NOW_MS, **settings: Any) -> None:
        self.locks = FencedLocks(FenceSettings(LEASE_MS, DELAY_MS, LEGACY_MS, **settings), boot)
        self.connections: dict[str, FakeConnection] = {}
        self.seen: list[OwnerChange] = []
        self.removed: list[int] = []
        self.locks.on_owner_changed = self.seen.append
        self.locks.on_removed = lambda lock: self.removed.append(lock.epoch)

    def connection(self, name: str) -> FakeConnection:
        return self.connections.setdefault(name, FakeConnection(name))

    def ask(
        self, client_id: str, epoch: int | None, now_ms: int, queue: MessageQueue = QUEUE, connection: str = ""
    ) -> LockAnswer:
        epochs = None if epoch is None else [epoch]
        over = self.connection(connection or client_id)
        (answer,) = self.locks.try_lock_batch("G", client_id, [queue], epochs, over, now_ms)
        return answer

    def claim(self, client_id: str, now_ms: int, queue: MessageQueue = QUEUE) -> int:
        """The epoch that a claim gets; 0 when it is refused."""
        return self.epoch_of(self.ask(client_id, 0, now_ms, queue))

    def claim_legacy(self, client_id: str, now_ms: int, queue: MessageQueue = QUEUE) -> int:
        return self.epoch_of(self.ask(client_id, None, now_ms, queue))

    def renews(self, client_id: str, epoch: int, now_ms: int, connection: str = "") -> bool:
        asked = LockBatchBody("G", client_id, (QUEUE,), (epoch,))
        if self.locks.renew_all(asked, self.connection(connection or client_id), now_ms):  # as the broker asks
            return True
        answer = self.ask(client_id, epoch, now_ms, connection=connection)
        assert answer.grant is None or answer.grant.epoch == epoch
        return answer.grant is not None

    def unlock(self, client_id: str, epoch: int | None, now_ms: int) -> list[LockAnswer]:
        return self.locks.unlock_batch("G", client_id, [QUEUE], None if epoch is None else [epoch], now_ms)

    def check(self, client_id: str, epoch: int, now_ms: int, *, pull: bool = False) -> str:
        return self.locks.check("G", "T", 0, client_id, epoch, now_ms, needs_lease=pull).name

    def resets(self, client_id: str, epoch: int, now_ms: int) -> LockGrant | FenceAnswer:
        return self.locks.begin_epoch("G", ("T", 0), client_id, epoch, self.connection(client_id), now_ms)

    def waiting_count(self) -> int:
        return self.locks.waiters.count("G", ("T", 0))

    def ended(self, connection: str, now_ms: int, *, by_peer: bool = True) -> None:
        self.locks.connection_ended(self.connection(connection), by_peer, now_ms, 1000)

    def left(self, client_id: str, now_ms: int, group: str = "G", connection: str = "") -> None:
        self.locks.client_left(group, client_id, self.connection(connection or client_id), now_ms)

    def due_ms(self) -> int | None:
        return self.locks.next_due_ms

    def woken(self) -> list[str]:
        """The connections that are told that a queue is free."""
        return [woken.connection.address for woken in self.take_woken()]

    def take_woken(self) -> list[Woken]:
        return steps_of(self.locks.waiters.take())

    @staticmethod
    def epoch_of(answer: LockAnswer) -> int:
        return answer.grant.epoch if answer.grant is not None else 0
