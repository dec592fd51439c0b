"""What random worlds of one part of order draw: settings, messages, and few kinds of faults, close together."""

import random
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from lockstep.simulation.lab.experiment import FaultEvent
from lockstep.simulation.lab.hosts import BROKER, PRODUCER
from lockstep.simulation.worlds.plan import MEMBERS, Fault, Store

__all__ = [
    "CALM",
    "broker_restarts",
    "bursts",
    "busy_broker",
    "clocks",
    "comings_and_goings",
    "few_threads",
    "late_grants",
    "leaves",
    "moves",
    "power_cuts",
    "producers_links",
    "resets",
    "slow_links",
    "stops",
    "two_brokers",
    "unmodified_links",
    "waiting_keys",
]

_LEASE_MS: Final = 6_000
_AT: Final = attrgetter("at_ms")
_NONE: Final = (False,) * len(MEMBERS)
CALM: Final[Mapping[str, Any]] = {
    "lease_ms": _LEASE_MS,
    "life_ms": 5 * _LEASE_MS,
    "first_members": 2,
    "store": Store.MEMORY,
    "by_key": False,
    "sticky": False,
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


def _at_random(
    rng: random.Random, kinds: Sequence[str], count: int, gap_ms: int, lasting: tuple[float, float]
) -> tuple[FaultEvent, ...]:
    """Of members, each for a part of a lease."""
    return tuple(
        FaultEvent(at_ms, rng.choice(kinds), rng.choice(MEMBERS), _lasting(rng, *lasting))
        for at_ms in _moments(rng, count, gap_ms)
    )


def comings_and_goings(rng: random.Random) -> Mapping[str, Any]:
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


def stops(rng: random.Random) -> Mapping[str, Any]:
    kinds = (Fault.STALL, Fault.SLEEP, Fault.STALL, Fault.JOIN, Fault.LEAVE, Fault.RESTART, Fault.CRASH)
    return {
        "queues": rng.choice((1, 2)),
        "by_key": rng.random() < 0.25,
        "work_ms": rng.choice((0, 0, 20)),
        "long_works": rng.choice((0, 0, 20)),
        "greedy": _each(rng, 0.6),
        "first_members": rng.choice((2, 3)),
        "sends": _waiting(rng, 20, 30),
        "events": _at_random(rng, kinds, 10, 6000, (0.4, 2.2)),
    }


def power_cuts(rng: random.Random) -> Mapping[str, Any]:
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


def broker_restarts(rng: random.Random) -> Mapping[str, Any]:
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


def slow_links(rng: random.Random) -> Mapping[str, Any]:
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


def resets(rng: random.Random) -> Mapping[str, Any]:
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


def few_threads(rng: random.Random) -> Mapping[str, Any]:
    kinds = (Fault.JOIN, Fault.LEAVE, Fault.TO_MEMBER_HELD, Fault.TO_BROKER_HELD, Fault.SLEEP)
    return {
        "queues": rng.choice((3, 4)),
        "threads": 1,
        "by_key": rng.random() < 0.4,
        "plain": (True,) * len(MEMBERS),
        "work_ms": rng.choice((300, 1000)),
        "greedy": _each(rng, 0.4),
        "sends": _waiting(rng, 20, 10),
        "events": _at_random(rng, kinds, 10, 5000, (0.3, 1.2)),
    }


def late_grants(rng: random.Random) -> Mapping[str, Any]:
    """A member gets its queues by answers that come late, and then none of its renewals arrives."""
    events, at_ms = list[FaultEvent](), 1500
    for name in MEMBERS:
        events.append(FaultEvent(1000, "late", BROKER, 4 * _LEASE_MS, name, rng.randrange(100_000, 400_000)))
    while at_ms < 4 * _LEASE_MS:
        one, other = rng.sample(MEMBERS, 2)
        join_ms = at_ms + rng.randrange(500)
        held_ms = join_ms + rng.randrange(800, 3500)
        events += [FaultEvent(at_ms, Fault.LEAVE, one), FaultEvent(join_ms, Fault.JOIN, other)]
        events.append(FaultEvent(held_ms, Fault.TO_BROKER_HELD, other, _lasting(rng, 0.5, 1.2)))
        at_ms = held_ms + rng.randrange(1000, 6000)
    return {
        "queues": rng.choice((1, 2)),
        "first_members": 1,
        "work_ms": rng.choice((150, 300)),
        "greedy": _each(rng, 0.6),
        "sends": ((500, 160),),
        "events": tuple(sorted(events, key=_AT)),
    }


def waiting_keys(rng: random.Random) -> Mapping[str, Any]:
    """Calls of many keys or queues wait for a thread, and locks are not trusted for a moment, or given away."""
    kinds = (Fault.TO_MEMBER_HELD, Fault.TO_MEMBER_HELD, Fault.SLEEP, Fault.STALL, Fault.JOIN, Fault.LEAVE)
    return {
        "queues": rng.choice((1, 2, 4)),
        "threads": rng.choice((1, 1, 2)),
        "by_key": rng.random() < 0.6,
        "plain": (True,) * len(MEMBERS),
        "work_ms": rng.choice((200, 500, 900, 1500)),
        "greedy": _each(rng, 0.4),
        "sends": _waiting(rng, 30, 10, 3),
        "events": _at_random(rng, kinds, 8, 5000, (0.4, 0.95)),
    }


def moves(rng: random.Random) -> Mapping[str, Any]:
    """A reset waits for the end of a long call, and meanwhile queues change their owners."""
    events = list[FaultEvent]()
    for at_ms in _moments(rng, 7, 6000):
        change_ms = at_ms + rng.randrange(-1000, 3000)
        change = FaultEvent(change_ms, rng.choice((Fault.JOIN, Fault.LEAVE)), rng.choice(MEMBERS))
        events += [FaultEvent(at_ms, Fault.RESET), change]
    return {
        "queues": rng.choice((2, 3)),
        "plain": _each(rng, 0.3),
        "work_ms": rng.choice((100, 300)),
        "long_works": rng.choice((20, 40)),
        "long_ms": rng.choice((1500, 3000, 5000)),
        "greedy": _each(rng, 0.2),
        "sends": _waiting(rng, 20, 20),
        "events": tuple(sorted(events, key=_AT)),
    }


def unmodified_links(rng: random.Random) -> Mapping[str, Any]:
    """What members without epochs ask for arrives after the queue has gone to another one."""
    unmodified, held = _each(rng, 0.6), (Fault.TO_BROKER_HELD,) * 3
    return {
        "queues": rng.choice((1, 2)),
        "unmodified": unmodified if any(unmodified) else (True, False, True),
        "work_ms": rng.choice((0, 20, 100)),
        "greedy": _each(rng, 0.6),
        "sends": tuple((at_ms, 1) for at_ms in range(500, 5 * _LEASE_MS, rng.choice((150, 300)))),
        "events": _at_random(rng, (*held, Fault.STALL, Fault.JOIN, Fault.LEAVE), 8, 6000, (0.8, 1.8)),
    }


def two_brokers(rng: random.Random) -> Mapping[str, Any]:
    """One of two brokers is out of reach for a member, or stands still, while the other one works."""
    kinds = ("hold", "hold", "late", "cut", "cut-one-side", "partition", Fault.STALL, Fault.JOIN, Fault.LEAVE)
    events, brokers = list[FaultEvent](), (BROKER, "broker2")
    for at_ms in _moments(rng, 9, 4000):
        kind, member, broker = rng.choice(kinds), rng.choice(MEMBERS), rng.choice(brokers)
        lasts_ms = 0 if kind.startswith("cut") else _lasting(rng, 0.2, 1.4)
        one, other = (member, broker) if rng.random() < 0.5 else (broker, member)
        amount = rng.randrange(100_000, 700_000) if kind == "late" else 0
        if isinstance(kind, Fault):
            one, other = (broker if kind is Fault.STALL else member), ""
        events.append(FaultEvent(at_ms, kind, one, lasts_ms, other, amount))
    return {
        "brokers": brokers,
        "queues": rng.choice((1, 2)),
        "by_key": rng.random() < 0.25,
        "work_ms": rng.choice((20, 100, 300)),
        "long_works": rng.choice((0, 10)),
        "greedy": _each(rng, 0.4),
        "sends": _waiting(rng, 30, 20),
        "events": tuple(events),
    }


def busy_broker(rng: random.Random) -> Mapping[str, Any]:
    """A broker refuses requests of any kind while queues change their owners."""
    busy = tuple(
        FaultEvent(at_ms, "busy", BROKER, _lasting(rng, 0.05, 0.7), "", rng.choice((30, 60, 100)))
        for at_ms in _moments(rng, 5, 7000)
    )
    kinds = (Fault.JOIN, Fault.LEAVE, Fault.RESTART, Fault.RESET, Fault.CUT)
    return {
        "queues": rng.choice((1, 2, 3)),
        "by_key": rng.random() < 0.25,
        "work_ms": rng.choice((20, 100, 300)),
        "poison": rng.random() < 0.3,
        "greedy": _each(rng, 0.4),
        "sends": _waiting(rng, 30, 20),
        "events": tuple(sorted((*busy, *_at_random(rng, kinds, 12, 4000, (0.1, 0.9))), key=_AT)),
    }


def leaves(rng: random.Random) -> Mapping[str, Any]:
    """A shutdown waits for a long call, perhaps in vain, and the member comes back at once."""
    kinds = (Fault.LEAVE, Fault.LEAVE, Fault.JOIN, Fault.JOIN, Fault.RESTART)
    return {
        "queues": rng.choice((1, 2, 3)),
        "by_key": rng.random() < 0.3,
        "plain": _each(rng, 0.3),
        "batch_size": rng.choice((1, 4)),
        "work_ms": rng.choice((20, 200, 600)),
        "long_works": rng.choice((5, 20)),
        "long_ms": rng.choice((1500, 4000, 7000)),
        "same_ids": rng.random() < 0.6,
        "failures": rng.random() < 0.4,
        "greedy": _each(rng, 0.4),
        "sends": _waiting(rng, 30, 20),
        "events": _at_random(rng, kinds, 16, 3500, (0.1, 0.9)),
    }


def clocks(rng: random.Random) -> Mapping[str, Any]:
    """Clocks are set and drift, machines sleep, and the broker comes back with or without its table of locks."""
    kinds = (Fault.CLOCK, Fault.BROKER_CLOCK, Fault.BROKER_TABLE_LOST, Fault.SLEEP, Fault.JOIN, Fault.LEAVE)
    drifting = [
        FaultEvent(1000, "drift", name, 4 * _LEASE_MS, "", rng.randrange(-20_000, 20_000))
        for name in (BROKER, *MEMBERS)
        if rng.random() < 0.3
    ]
    return {
        "queues": rng.choice((1, 2)),
        "store": Store.SYNC,
        "work_ms": rng.choice((20, 200)),
        "same_ids": rng.random() < 0.5,
        "greedy": _each(rng, 0.5),
        "sends": _waiting(rng, 30, 20),
        "events": (*drifting, *_at_random(rng, kinds, 10, 5000, (0.3, 1.5))),
    }


def producers_links(rng: random.Random) -> Mapping[str, Any]:
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


def bursts(rng: random.Random) -> Mapping[str, Any]:
    sends = sorted((rng.randrange(500, 5 * _LEASE_MS), rng.choice((1, 2, 5, 20))) for _ in range(25))
    return {
        **producers_links(rng),
        "queues": rng.choice((1, 2)),
        "store": rng.choice((Store.MEMORY, Store.SYNC)),
        "sync_ms": rng.choice((0, 3, 25)),
        "sends": tuple(sends),
        "together": True,
    }
