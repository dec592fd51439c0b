"""Worlds of FIFO groups over HTTP/2: fenced brokers keep the order of each key, whatever happens to streams."""

from collections import Counter

import pytest

from lockstep.simulation.lab.experiment import LOCKING, LockMode, SeedResult
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.runner import run_seed
from tests.simulation.worlds.grpc.grpc_world import GRPC_WORLDS

SHARE_MIN = 0.05
BLOCK = 40


def failed(outcomes: list[SeedResult]) -> dict[int, str]:
    return {one.seed: one.error or "\n".join(one.texts) for one in outcomes if GRPC_WORLDS.fails(one)}


def test_a_fenced_broker_keeps_the_order_of_keys() -> None:
    assert failed([run_seed(GRPC_WORLDS, seed, LockMode.FENCED) for seed in range(1, 5)]) == {}


@pytest.mark.parametrize("mode", LOCKING)
def test_the_same_seed_makes_the_same_run(mode: LockMode) -> None:
    """Down to each byte on the network."""
    once, again = (run_seed(GRPC_WORLDS, 6, mode) for _ in range(2))
    assert once == again
    assert not GRPC_WORLDS.fails(once)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_many_fenced_worlds() -> None:
    """And what they are about happens in a twentieth of them at least."""
    seeds = range(101, 181)
    outcomes = [run_seed(GRPC_WORLDS, seed, LockMode.FENCED) for seed in seeds]
    assert failed(outcomes) == {}
    happened = Counter(name for one in outcomes for name in one.sometimes)
    assert [name for name in GRPC_WORLDS.sometimes[LockMode.FENCED] if happened[name] < SHARE_MIN * len(seeds)] == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_rocketmqs_way_breaks_order() -> None:
    """The eyes of the world are open: they see what RocketMQ's own broker allows."""
    outcomes = [run_seed(GRPC_WORLDS, seed, LockMode.FAITHFUL) for seed in range(141, 170)]
    assert failed(outcomes) == {}
    kinds = {kind for one in outcomes for kind in one.wrong}
    assert kinds >= {Wrong.TWO_HOLDERS, Wrong.ACKED_AGAIN, Wrong.STALE_ACK}


@pytest.mark.rotating
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1001, 1401, BLOCK))
@pytest.mark.parametrize("mode", LOCKING)
def test_more_worlds(mode: LockMode, first: int) -> None:
    outcomes = [run_seed(GRPC_WORLDS, seed, mode) for seed in range(first, first + BLOCK)]
    assert failed(outcomes) == {}
