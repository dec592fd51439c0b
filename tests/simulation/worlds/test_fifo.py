"""Worlds of FIFO groups: fenced brokers keep the order of each key; and what the world says of effects."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.client import MessageQueue
from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.museum.variant import edited
from lockstep.simulation.worlds.fifo.effects import Effects, KeyOfQueue
from lockstep.simulation.worlds.fifo.fifo_world import FIFO_WORLDS

FENCED = "lockstep.broker.messages.pop.fenced"
PLACE = KeyOfQueue(MessageQueue("orders", "broker", 0), "a")
SHARE_MIN = 0.05


def wrong(written: str, *, fenced: bool = True) -> list[str]:
    """The kinds of findings when "offset/fence" were written, and the key has the offsets 0, 1 and 2."""
    found: list[str] = []
    add: Any = lambda kind, *_, **__: found.append(kind)  # noqa: E731
    findings: Any = SimpleNamespace(add=add, saw=lambda _: None, world=SimpleNamespace(elapsed_ms=0))
    effects = Effects(findings, fenced=fenced)
    for one in written.split():
        offset, fence = map(int, one.split("/"))
        effects.begin(PLACE, fence)
        effects.write(PLACE, offset, fence, "c1")
    effects.check({PLACE: [0, 1, 2]})
    return found


@pytest.mark.parametrize(
    ("written", "kinds"),
    [
        ("0/1 1/1 2/1", []),
        ("0/1 0/2 1/2 0/3 1/3 2/3", []),
        ("0/1 2/1 1/2 2/2", [Wrong.EFFECT_OUT_OF_ORDER]),
        ("0/1 1/1 2/1 0/2 2/3", [Wrong.EFFECT_LEFT_OUT]),
        ("0/1 1/1 2/1 1/2", [Wrong.EFFECT_LEFT_OUT]),
        ("0/1 1/1", [Wrong.EFFECT_LEFT_OUT]),
        ("0/2 1/1 1/2 2/2", []),
    ],
)
def test_effects_of_a_key(written: str, kinds: list[str]) -> None:
    """What comes again is followed by all that followed it; an older delivery than the last writes nothing."""
    assert wrong(written) == kinds


def test_nobody_fences_what_a_faithful_broker_delivers() -> None:
    assert wrong("0/2 1/1 2/2 1/1", fenced=False) == [Wrong.EFFECT_LEFT_OUT]


def _failed(outcomes: list[SeedResult]) -> dict[int, str]:
    return {one.seed: text for one in outcomes if (text := one.error or "\n".join(one.texts))}


def test_a_fenced_broker_keeps_the_order_of_keys() -> None:
    assert _failed([run_seed(FIFO_WORLDS, seed, LockMode.FENCED) for seed in range(1, 6)]) == {}


def test_a_broker_that_refuses_every_answer_is_seen() -> None:
    """No missing protection shows it: to refuse is what they are for."""
    refusing = edited(
        FENCED, "FencedQueue._judged", "_DONE if pop_ms == newest_ms != 0 else Answered.STALE", "Answered.STALE"
    )
    with refusing():
        outcome = run_seed(FIFO_WORLDS, 2, LockMode.FENCED)
    assert set(outcome.wrong) == {Wrong.REFUSED_IN_TIME, Wrong.STUCK}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_many_fenced_worlds() -> None:
    """And what they are about happens in a twentieth of them at least."""
    seeds = range(101, 221)
    outcomes = [run_seed(FIFO_WORLDS, seed, LockMode.FENCED) for seed in seeds]
    assert _failed(outcomes) == {}
    happened = Counter(name for one in outcomes for name in one.sometimes)
    assert [name for name in FIFO_WORLDS.sometimes[LockMode.FENCED] if happened[name] < SHARE_MIN * len(seeds)] == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_rocketmqs_way_breaks_order() -> None:
    """The eyes of the world are open: they see what RocketMQ's own broker allows."""
    outcomes = [run_seed(FIFO_WORLDS, seed, LockMode.FAITHFUL) for seed in range(101, 131)]
    assert [one.error for one in outcomes if one.error] == []
    kinds = {kind for one in outcomes for kind in one.wrong}
    assert kinds >= {Wrong.TWO_HOLDERS, Wrong.ACKED_AGAIN, Wrong.STALE_ACK, Wrong.EFFECT_LEFT_OUT}
