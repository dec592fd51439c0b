"""Random worlds that look at one part of order: few kinds of faults, close together, with messages that wait.

Each draws its settings and faults from a seed, as `worlds` does, and has the same eyes. It never says when: a seed has
to meet the moment. What RocketMQ's own locks allow under these faults is named; anything else fails in both lock modes.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from lockstep.simulation.lab.experiment import FaultEvent, LockMode, Outcome
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.hosts import BROKER, PRODUCER
from lockstep.simulation.world import World
from lockstep.simulation.worlds.plan import MEMBERS, Fault, Plan, Store, draw_plan
from lockstep.simulation.worlds.random_world import RandomWorld

__all__ = ["FOCUSED", "Focused"]

_Draw = Callable[[random.Random], Mapping[str, Any]]
_LEASE_MS: Final = 6_000
_AT: Final = attrgetter("at_ms")
_NONE: Final = (False,) * len(MEMBERS)


@dataclass(frozen=True)
class Focused:
    """An Experiment.

    Args:
        drawn: what of the plan of a seed is drawn anew.
        sometimes: what must happen in both modes.
        rocketmqs: kinds of violations that RocketMQ's locks allow under these faults.
    """

    name: str
    summary: str
    drawn: _Draw
    seen: tuple[str, ...] = ()
    rocketmqs: frozenset[str] = frozenset()

    @property
    def sometimes(self) -> Mapping[LockMode, tuple[str, ...]]:
        return dict.fromkeys(LockMode, self.seen)

    def draw(self, seed: int, mode: LockMode) -> Plan:
        plain = draw_plan(seed, mode)
        return replace(plain, **{**_CALM, **self.drawn(random.Random(f"{self.name}/{seed}"))})

    def build(self, world: World, plan: Plan) -> RandomWorld:
        return RandomWorld(world, plan)

    def fails(self, outcome: Outcome) -> bool:
        allowed = self.rocketmqs if outcome.mode is LockMode.FAITHFUL else frozenset()
        return bool(outcome.error or set(outcome.wrong) - allowed)


# RocketMQ's broker answers any pull and stores any commit, however late it comes.
_LATE_PULLS: Final = frozenset({Wrong.STALE_PULL})
_STOPPED: Final = frozenset({Wrong.STALE_PULL, Wrong.OVERLAP, "judge: overlap", "judge: stale-owner"})
_LATE: Final = frozenset({Wrong.STALE_PULL, Wrong.STALE_COMMIT, Wrong.COMMIT_BACK, "judge: stored-regress"})
# A broker of RocketMQ forgets its locks, and a store in memory its messages.
_FORGOTTEN: Final = frozenset(
    {
        *(Wrong.LOCK_FORGOTTEN, Wrong.STALE_PULL, Wrong.LOST),
        *("judge: stale-owner", "judge: stale-commit", "judge: commit-beyond-end"),
    }
)

_CALM: Final[Mapping[str, Any]] = {
    "lease_ms": _LEASE_MS,
    "life_ms": 5 * _LEASE_MS,
    "first_members": 2,
    "store": Store.MEMORY,
    "by_key": False,
    "plain": _NONE,
    "long_works": 0,
    "long_ms": _LEASE_MS // 2,
    "batch_size": 1,
    "failures": False,
    "poison": False,
    "unmodified": _NONE,
    "sync_ms": 0,
    "latency_us_max": 2_000,
}


def _each(rng: random.Random, share: float) -> tuple[bool, ...]:
    return tuple(rng.random() < share for _ in MEMBERS)


def _moments(rng: random.Random, count: int, gap_ms: int, first_ms: int = 1500) -> Iterable[int]:
    at_ms = first_ms
    for _ in range(count):
        at_ms += rng.randrange(50, gap_ms)
        if at_ms >= 5 * _LEASE_MS:
            return
        yield at_ms


def _waiting(rng: random.Random, first: int, then: int = 20, burst: int = 1) -> tuple[tuple[int, int], ...]:
    """Many messages at once, so that caches are full, and then fewer at a time."""
    return ((500, first), *sorted((rng.randrange(1000, 5 * _LEASE_MS), burst) for _ in range(then)))


def _lasting(rng: random.Random, low: float, high: float) -> int:
    return int(_LEASE_MS * rng.uniform(low, high))


def _comings_and_goings(rng: random.Random) -> Mapping[str, Any]:
    events = [
        FaultEvent(at_ms, rng.choice((Fault.JOIN, Fault.LEAVE)), rng.choice(MEMBERS), 0)
        for at_ms in _moments(rng, 16, 2500)
    ]
    if rng.random() < 0.3:
        slow = FaultEvent(1000, "slow-cpu", rng.choice(MEMBERS[:2]), 4 * _LEASE_MS, "", rng.randrange(1000, 20_000))
        events.insert(0, slow)
    elif rng.random() < 0.4:
        links = [(BROKER, name) if rng.random() < 0.5 else (name, BROKER) for name in MEMBERS]
        late = [FaultEvent(1000, "late", one, 4 * _LEASE_MS, two, rng.randrange(20_000, 700_000)) for one, two in links]
        events = late + events
    return {
        "queues": rng.choice((2, 3)),
        "by_key": rng.random() < 0.25,
        "plain": _each(rng, 0.3),
        "work_ms": rng.choice((20, 100, 300)),
        "long_works": rng.choice((0, 0, 20)),
        "poison": rng.random() < 0.3,
        "greedy": _each(rng, 0.4),
        "latency_us_max": rng.choice((2_000, 30_000)),
        "sends": _waiting(rng, 40),
        "events": tuple(events),
    }


def _stops(rng: random.Random) -> Mapping[str, Any]:
    kinds = (Fault.STALL, Fault.SLEEP, Fault.STALL, Fault.JOIN, Fault.LEAVE, Fault.RESTART, Fault.CRASH)
    return {
        "queues": rng.choice((1, 2)),
        "by_key": rng.random() < 0.25,
        "work_ms": rng.choice((0, 0, 20)),
        "long_works": rng.choice((0, 0, 20)),
        "greedy": _each(rng, 0.6),
        "first_members": rng.choice((2, 3)),
        "sends": _waiting(rng, 20, 30),
        "events": tuple(
            FaultEvent(at_ms, rng.choice(kinds), rng.choice(MEMBERS), _lasting(rng, 0.4, 2.2))
            for at_ms in _moments(rng, 10, 6000)
        ),
    }


def _power_cuts(rng: random.Random) -> Mapping[str, Any]:
    """Close to the moment when a member gets its queues; then it stops, and another one joins."""
    events, at_ms = [FaultEvent(500, "slow-disk", BROKER, 4 * _LEASE_MS, "", rng.choice((100, 300, 600)))], 1500
    for _ in range(4):
        one, other, third = rng.sample(MEMBERS, 3)
        join_ms = at_ms + rng.randrange(500, 2500)
        cut_ms = join_ms + rng.randrange(800)
        events += [FaultEvent(at_ms, Fault.LEAVE, name) for name in (one, other, third)]
        events += [
            FaultEvent(join_ms, Fault.JOIN, one),
            FaultEvent(cut_ms, Fault.BROKER_POWER_CUT, one, _lasting(rng, 0.05, 0.4)),
            FaultEvent(cut_ms + rng.randrange(200), Fault.STALL, one, _lasting(rng, 0.3, 1.2)),
            FaultEvent(cut_ms + rng.randrange(500, 2500), Fault.JOIN, other),
        ]
        at_ms = cut_ms + rng.randrange(2500, 6000)
    return {
        "queues": rng.choice((1, 2)),
        "store": rng.choice((Store.ASYNC, Store.SYNC)),
        "first_members": 1,
        "work_ms": rng.choice((0, 20)),
        "greedy": _each(rng, 0.7),
        "sends": _waiting(rng, 10, 10),
        "events": tuple(sorted((event for event in events if event.at_ms < 5 * _LEASE_MS), key=_AT)),
    }


def _broker_restarts(rng: random.Random) -> Mapping[str, Any]:
    store = rng.choice((Store.MEMORY, Store.SYNC, Store.SYNC))
    broker = (Fault.BROKER_KILL, Fault.BROKER_STOP) if store is Store.MEMORY else (Fault.BROKER_POWER_CUT,)
    kinds = (*broker, *broker, Fault.JOIN, Fault.LEAVE)
    events = [
        FaultEvent(at_ms, rng.choice(kinds), rng.choice(MEMBERS), _lasting(rng, 0.05, 0.8))
        for at_ms in _moments(rng, 12, 4000)
    ]
    if store is not Store.MEMORY:
        slow = FaultEvent(1000, "slow-disk", BROKER, 4 * _LEASE_MS, "", rng.choice((20, 200, 500)))
        events.insert(0, slow)
    return {
        "queues": rng.choice((1, 2)),
        "store": store,
        "work_ms": rng.choice((0, 20)),
        "greedy": _each(rng, 0.6),
        "sends": _waiting(rng, 20, 30),
        "events": tuple(events),
    }


def _slow_links(rng: random.Random) -> Mapping[str, Any]:
    events = list[FaultEvent]()
    for at_ms in _moments(rng, 8, 4000):
        member, other = rng.sample(MEMBERS, 2)
        late = FaultEvent(at_ms, "late", BROKER, _lasting(rng, 0.3, 1.5), member, rng.randrange(200_000, 700_000))
        kind = rng.choice((Fault.SLOW_ANSWERS, Fault.TO_BROKER_HELD, Fault.TO_MEMBER_HELD, "late", "late, then held"))
        if kind == "late, then held":
            change = FaultEvent(at_ms + rng.randrange(1500), rng.choice((Fault.JOIN, Fault.LEAVE)), other)
            held = FaultEvent(at_ms + rng.randrange(500, 4000), Fault.TO_MEMBER_HELD, member, _lasting(rng, 0.5, 1.2))
            events += [late, change, held]
        else:
            events.append(late if kind == "late" else FaultEvent(at_ms, kind, member, _lasting(rng, 0.3, 1.5)))
    return {
        "queues": rng.choice((1, 2, 3)),
        "work_ms": rng.choice((20, 100, 200)),
        "poison": rng.random() < 0.3,
        "greedy": _each(rng, 0.4),
        "sends": _waiting(rng, 40, 6, 12),
        "events": tuple(sorted(events, key=_AT)),
    }


def _resets(rng: random.Random) -> Mapping[str, Any]:
    kinds = (Fault.RESET, Fault.RESET, Fault.JOIN, Fault.LEAVE)
    moments = tuple(_moments(rng, 10, 5000))
    return {
        "queues": rng.choice((1, 2, 3)),
        "by_key": rng.random() < 0.25,
        "plain": _each(rng, 0.3),
        "work_ms": rng.choice((20, 100, 300)),
        "long_works": rng.choice((0, 20)),
        "greedy": _each(rng, 0.5),
        "sends": _waiting(rng, 20, 20),
        "events": tuple(FaultEvent(at_ms, rng.choice(kinds), rng.choice(MEMBERS)) for at_ms in moments),
    }


def _few_threads(rng: random.Random) -> Mapping[str, Any]:
    kinds = (Fault.JOIN, Fault.LEAVE, Fault.TO_MEMBER_HELD, Fault.TO_BROKER_HELD, Fault.SLEEP)
    return {
        "queues": rng.choice((3, 4)),
        "threads": 1,
        "by_key": rng.random() < 0.4,
        "plain": (True,) * len(MEMBERS),
        "work_ms": rng.choice((300, 1000)),
        "greedy": _each(rng, 0.4),
        "sends": _waiting(rng, 20, 10),
        "events": tuple(
            FaultEvent(at_ms, rng.choice(kinds), rng.choice(MEMBERS), _lasting(rng, 0.3, 1.2))
            for at_ms in _moments(rng, 10, 5000)
        ),
    }


def _producers_links(rng: random.Random) -> Mapping[str, Any]:
    events = list[FaultEvent]()
    for at_ms in _moments(rng, 10, 4000):
        one, two = rng.choice(((PRODUCER, BROKER), (BROKER, PRODUCER)))
        kind = rng.choice(("late", "late", "cut", "cut-one-side", "hold", "jitter"))
        lasts_ms = 0 if kind.startswith("cut") else _lasting(rng, 0.1, 0.8)
        amount = rng.randrange(100_000, 1_500_000) if kind in ("late", "jitter") else 0
        events.append(FaultEvent(at_ms, kind, one, lasts_ms, two, amount))
    return {
        "queues": 1,
        "first_members": 1,
        "work_ms": 0,
        "sends": _waiting(rng, 4, 40, 2),
        "events": tuple(events),
    }


FOCUSED: Final = (
    Focused(
        "worlds/goings", "Members join and leave within seconds, while messages wait.", _comings_and_goings,
        ("takeovers", "join", "leave"), _LATE_PULLS,
    ),
    Focused(
        "worlds/stops", "Members stop for longer than a lease, and others take over.", _stops,
        ("takeovers", "stall", "sleep"), _STOPPED,
    ),
    Focused(
        "worlds/restarts", "The broker starts again, and its disk is slow.", _broker_restarts,
        ("takeovers", "broker restarts", "slow-disk"), _FORGOTTEN,
    ),
    Focused(
        "worlds/power", "The broker loses its power when queues change their owners.", _power_cuts,
        ("takeovers", "broker power cut", "stall"), _FORGOTTEN,
    ),
    Focused(
        "worlds/links", "Requests and answers come late, by a part of a lease or by more.", _slow_links,
        ("takeovers", "late", "slow answers"), _LATE,
    ),
    Focused(
        "worlds/resets", "An administrator resets offsets while queues change their owners.", _resets,
        ("takeovers", "reset", "join"), _LATE_PULLS,
    ),
    Focused(
        "worlds/threads", "Plain listeners wait for one thread.", _few_threads,
        ("takeovers", "hold to the member", "sleep"), _LATE,
    ),
    Focused(
        "worlds/sends", "The producer's connections are slow and break.", _producers_links,
        ("late", "cut", "one-sided ends"),
    ),
)  # fmt: skip
GOINGS, STOPS, RESTARTS, POWER, LINKS, RESETS, THREADS, SENDS = FOCUSED
