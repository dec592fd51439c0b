"""Who owns a queue by the answers that left a broker, and which requests come too late."""

from typing import Any, cast

import pytest

from lockstep.client import MessageQueue
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.lab.findings import Findings
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.world import World
from lockstep.simulation.worlds.asked import Asked
from lockstep.simulation.worlds.owners import Grant, Owners
from lockstep.simulation.worlds.plan import WorldPlan

QUEUE = MessageQueue("orders", "broker", 0)
LEASE_MS = 6000


class Clock:
    """What owners read of a world."""

    now_ms = 0

    def clock_ms(self, host: str) -> int:
        return self.now_ms

    def record(self, text: str) -> None:
        pass


def asked(address: str, at_ms: int, code: RequestCode, *, lock: bool = False) -> Asked:
    """A request without an epoch."""
    body = LockBatchBody("group", address, (QUEUE,)) if lock else None
    return Asked(code, address, cast("Endpoint", address), at_ms, None, QUEUE, body)


class Told:
    """A broker in one lock mode, and what two unmodified members asked of it."""

    def __init__(self, mode: LockMode) -> None:
        self.world = Clock()
        plan: WorldPlan = cast("Any", find_experiment("worlds/mixed")).draw(1, mode)
        self.owners = Owners(Findings(cast("World", self.world)), plan, fenced=plan.fenced)

    def grant(self, address: str, at_ms: int, epoch: int = 0) -> None:
        request = asked(address, at_ms, RequestCode.LOCK_BATCH_MQ, lock=True)
        self.owners.granted(request, QUEUE, Grant(epoch, address), LEASE_MS, 0)

    def unlock(self, address: str, at_ms: int, epoch: int | None = None) -> None:
        self.owners.unlocked(asked(address, at_ms, RequestCode.UNLOCK_BATCH_MQ, lock=True), QUEUE, epoch)

    def too_late(self, address: str, at_ms: int, epoch: int | None = None) -> Grant | None:
        pull = asked(address, at_ms, RequestCode.PULL_MESSAGE)._replace(epoch=epoch)
        return self.owners.of(QUEUE).follows(pull)


def test_a_pull_of_the_last_owner_but_one_is_late_while_another_holds_the_queue() -> None:
    """The broker may not serve it: in both lock modes, and also when the lease of the new owner has ended."""
    for mode in LOCKING:
        told = Told(mode)
        told.grant("a", 0)
        told.unlock("a", 1000)
        told.grant("b", 1000)
        assert told.too_late("a", 1500) == Grant(0, "b")
        assert told.too_late("a", 1000 + 2 * LEASE_MS) == Grant(0, "b")
        assert told.too_late("b", 1500) is None


@pytest.mark.parametrize("leaves", [False, True])
def test_a_queue_that_was_given_back_is_open_to_unmodified_members(leaves: bool) -> None:
    """A broker with fenced locks knows no owner of it, and serves the pull of any member without epochs."""
    told = Told(LockMode.FENCED)
    told.grant("a", 0)
    told.unlock("a", 1000)
    told.grant("b", 1000)
    told.world.now_ms = 2000
    if leaves:
        told.owners.left("b")
    else:
        told.unlock("b", 2000)
    assert told.too_late("a", 2500) is None
    told.grant("c", 3000)
    assert told.too_late("a", 3500) == Grant(0, "c")
    assert told.too_late("b", 3500) == Grant(0, "c")


def test_an_epoch_is_over_although_the_queue_was_given_back() -> None:
    """A request under an epoch is compared with epochs alone."""
    told = Told(LockMode.FENCED)
    told.grant("a", 0, 1)
    told.unlock("a", 1000, 1)
    told.grant("b", 1000, 2)
    told.unlock("b", 2000, 2)
    assert told.too_late("a", 2500, 1) == Grant(2, "b")


def test_the_unlock_of_an_earlier_owner_frees_nothing() -> None:
    """It comes late, and the queue belongs to another one."""
    told = Told(LockMode.FENCED)
    told.grant("a", 0)
    told.unlock("a", 1000)
    told.grant("b", 1000)
    told.unlock("a", 1500)
    assert told.too_late("a", 2000) == Grant(0, "b")


def test_a_renewal_that_is_answered_behind_an_unlock_takes_nothing_back() -> None:
    """It was handled before the unlock."""
    told = Told(LockMode.FENCED)
    told.grant("a", 0)
    told.unlock("a", 500)
    told.grant("b", 1000)
    told.unlock("b", 2000)
    told.grant("b", 1900)
    assert told.too_late("a", 2500) is None


def test_a_grant_that_is_answered_behind_its_unlock_is_over() -> None:
    """The first answer of all leaves late."""
    told = Told(LockMode.FENCED)
    told.grant("a", 0)
    told.unlock("a", 500)
    told.unlock("b", 2000)
    told.grant("b", 1000)
    assert told.too_late("a", 2500) is None


def test_a_broker_in_memory_that_started_again_knows_no_owner() -> None:
    """Its messages are lost too, and the next owner begins anew."""
    told = Told(LockMode.FENCED)
    told.owners = Owners(
        Findings(cast("World", told.world)),
        cast("Any", find_experiment("worlds/restarts")).draw(_of_memory(), LockMode.FENCED),
        fenced=True,
    )
    told.grant("a", 0)
    told.unlock("a", 1000)
    told.grant("b", 1000)
    told.owners.broker_started(offsets_lost=True)
    assert told.too_late("a", 2000) is None


def _of_memory() -> int:
    draw = cast("Any", find_experiment("worlds/restarts")).draw
    return next(seed for seed in range(1, 100) if draw(seed, LockMode.FENCED).store == "memory")
