"""The plan of a random world: its settings, its messages and its faults, all drawn from a seed.

A swarm of settings, not one: each seed switches a random part of the faults on, so that a world with few kinds of
faults meets long sequences of them.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

from lockstep.simulation.lab.experiment import FaultEvent, LockMode, fewer
from lockstep.simulation.lab.faults.fault import Role
from lockstep.simulation.lab.faults.swarm import draw_fault
from lockstep.simulation.lab.hosts import BROKER
from lockstep.simulation.options import SimulationOptions

__all__ = ["MEMBERS", "MORE_FAULTS", "SUSPEND_MS", "Fault", "Store", "WorldPlan", "draw_plan"]

MEMBERS: Final = ("c1", "c2", "c3")
SUSPEND_MS: Final = 500  # before a call that failed is made again


class Fault(StrEnum):
    """What may happen to a member, to the broker, or between them."""

    JOIN = "join"
    LEAVE = "leave"
    CRASH = "crash"  # the process
    POWER_OFF = "power off"  # the machine: peers get no answer
    RESTART = "restart"  # a crash, and the same member again at once
    STALL = "stall"  # SIGSTOP
    SLEEP = "sleep"  # of the machine
    CUT = "cut"  # connections, both ends hear of it
    MEMBER_HEARS = "cut at the member"
    BROKER_HEARS = "cut at the broker"
    PARTITION = "partition"
    TO_BROKER_HELD = "hold to the broker"
    TO_MEMBER_HELD = "hold to the member"
    SLOW_ANSWERS = "slow answers"  # late by some hundred milliseconds, then none
    CLOCK = "clock"  # set, and the process starts again
    BROKER_STALL = "broker stall"
    BROKER_STOP = "broker stop"  # a clean stop, and a start
    BROKER_KILL = "broker kill"
    BROKER_POWER_CUT = "broker power cut"
    BROKER_CLOCK = "broker clock"  # set, and a kill
    BROKER_TABLE_LOST = "broker table lost"  # a kill, and the file of locks is gone
    RESET = "reset"  # an administrator's, of the group's offsets


class Store(StrEnum):
    MEMORY = "memory"
    ASYNC = "files, flushed later"
    SYNC = "files, flushed before the answer"


@dataclass(frozen=True, kw_only=True)
class WorldPlan:
    """A world before it begins. Times in virtual ms.

    A field that is added has a default: what worlds were before it, so that plans that are kept stay what they are.

    Args:
        life_ms: until everything is healed.
        first_members: how many members there are at the start.
        greedy: members that want every queue, so that the lock alone decides.
        same_ids: a member that starts again has the client id that it had.
        long_works: each message has this chance, in percent, that its call takes `long_ms`.
        failures: some calls fail at their first attempt.
        poison: some messages always fail, and become dead letters.
        sends: (at, how many messages).
        together: messages that are sent at once leave in one frame, and so do commits; else each by itself.
        sticky: members share the queues by their owners, in a fenced world where all are ours and none is greedy.
        brokers: each has the queues; the first one has the name server, and restarts.
    """

    seed: int
    lock_mode: LockMode
    lease_ms: int
    life_ms: int
    queues: int
    first_members: int
    store: Store
    by_key: bool
    plain: tuple[bool, ...]  # a plain listener, by member
    work_ms: int
    long_works: int
    long_ms: int
    threads: int  # for plain listeners
    batch_size: int
    greedy: tuple[bool, ...]  # by member
    same_ids: bool
    cancel: bool  # an async listener is cancelled when its lock is lost
    failures: bool
    poison: bool
    unmodified: tuple[bool, ...]  # in a fenced world: a member as of another make, without epochs, by member
    latency_us_max: int
    sync_ms: int
    shuffle_us: int
    sends: tuple[tuple[int, int], ...]
    events: tuple[FaultEvent, ...]
    together: bool = False
    brokers: tuple[str, ...] = (BROKER,)
    sticky: bool = False

    @property
    def fenced(self) -> bool:
        return self.lock_mode is LockMode.FENCED

    def is_poison(self, text: str) -> bool:
        return self.poison and int(text) % _POISON_EACH == 0

    @property
    def trusted_ms(self) -> int:
        """How long after its grant a lock without an epoch may be trusted."""
        return self.lease_ms // 2

    @property
    def lock_timeout_ms(self) -> int:
        return min(1000, self.lease_ms // 8)

    @property
    def lock_delay_ms(self) -> int:
        return min(3000, self.lease_ms // 3)

    @property
    def lock_delay_legacy_ms(self) -> int:
        return self.lease_ms // 2 + 1000

    @property
    def settle_ms(self) -> int:
        """How long it may take until everything is handled once all is healed."""
        return 6 * self.lease_ms + 90_000

    @property
    def limit_ms(self) -> int:
        return self.life_ms + self.settle_ms + _AFTER_SETTLE_MS

    @property
    def options(self) -> SimulationOptions:
        return SimulationOptions(latency_us_max=self.latency_us_max, drain_ms=_DRAIN_MS, shuffle_us=self.shuffle_us)

    def described(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _LISTS}

    def smaller(self) -> Iterator["WorldPlan"]:
        """Fewer events, members, queues and messages, a shorter life, and plainer settings."""
        for events in fewer(self.events):
            yield replace(self, events=events)
        for name, least in (("first_members", 1), ("queues", 1)):
            if (number := getattr(self, name)) > least:
                yield replace(self, **{name: number - 1})
        last_ms = max((event.at_ms + event.duration_ms for event in self.events), default=0) + self.lease_ms
        if last_ms < self.life_ms:
            yield replace(self, life_ms=last_ms, sends=tuple(one for one in self.sends if one[0] < last_ms))
        for sends in fewer(self.sends):
            yield replace(self, sends=sends)
        for name, plainest in _PLAINEST.items():
            if getattr(self, name) != plainest:
                yield replace(self, **{name: plainest})


_LIVES: Final = {6_000: 60_000, 15_000: 100_000, 60_000: 180_000}  # by lease
_MESSAGES: Final = 80
_POISON_EACH: Final = 9
_AFTER_SETTLE_MS: Final = 900_000  # all shutdowns of a world
_DRAIN_MS: Final = 500
_PLAINEST: Final[dict[str, Any]] = {
    "unmodified": (False,) * len(MEMBERS),
    "plain": (False,) * len(MEMBERS),
    "by_key": False,
    "poison": False,
    "failures": False,
    "cancel": False,
    "greedy": (False,) * len(MEMBERS),
    "same_ids": False,
    "long_works": 0,
    "work_ms": 0,
    "batch_size": 1,
    "latency_us_max": 2_000,
    "sync_ms": 0,
    "shuffle_us": 0,
    "store": Store.MEMORY,
    "together": False,
    "sticky": False,
}
MORE_FAULTS: Final = (
    "drift", "slow-cpu", "slow-disk", "hang-disk", "slow-link", "late", "jitter", "nat", "nat-reset",
)  # fmt: skip
_MORE_ON: Final = 0.25
_TOGETHER: Final = 0.7
_STICKY: Final = 0.5
_LISTS: Final = ("sends", "events")
_FILES_ONLY: Final = (Fault.BROKER_POWER_CUT, Fault.BROKER_CLOCK, Fault.BROKER_TABLE_LOST)


def draw_plan(seed: int, lock_mode: LockMode) -> WorldPlan:
    rng = random.Random(f"{seed}/plan")
    lease_ms = rng.choices(list(_LIVES), (5, 3, 2))[0]
    life_ms = _LIVES[lease_ms]
    poison, mixed = rng.random() < 0.2, rng.random() < 0.2
    store = rng.choice((Store.MEMORY, Store.ASYNC, Store.SYNC))
    faults = [fault for fault in Fault if store is not Store.MEMORY or fault not in _FILES_ONLY]
    faults = [fault for fault in faults if rng.random() < 0.4] or [rng.choice(faults)]
    more = random.Random(f"{seed}/more")  # what came later, so that the rest of a seed stays
    plan = WorldPlan(
        seed=seed,
        lock_mode=lock_mode,
        lease_ms=lease_ms,
        life_ms=life_ms,
        queues=rng.choice((1, 2, 2, 3, 4)),
        first_members=rng.choice((1, 2, 2, 3)),
        store=store,
        by_key=rng.random() < 0.35,
        plain=tuple(rng.random() < 0.35 for _ in MEMBERS),
        work_ms=rng.choice((0, 5, 100, 700)),
        long_works=rng.choice((0, 0, 3)),
        long_ms=lease_ms * 6 // 5,  # the call outlives a lease
        threads=20,
        batch_size=1 if poison else rng.choice((1, 1, 4)),  # all messages of a batch become dead letters
        greedy=(rng.random() < 0.3,) * len(MEMBERS),
        same_ids=rng.random() < 0.4,
        cancel=rng.random() < 0.5,
        failures=rng.random() < 0.3,
        poison=poison,
        unmodified=tuple(mixed and rng.random() < 0.5 for _ in MEMBERS),
        latency_us_max=rng.choice((2_000, 2_000, 30_000)),
        sync_ms=rng.choice((0, 3, 25)),
        sends=_draw_sends(rng, life_ms),
        events=_with_more(more, _draw_events(rng, faults, lease_ms, life_ms), lease_ms, life_ms),
        shuffle_us=more.choice((0, 0, 1000)),
        # The default path of users, so it is what most worlds run.
        together=random.Random(f"{seed}/together").random() < _TOGETHER,
    )
    ours_alone = plan.fenced and not any((*plan.greedy, *plan.unmodified))
    return replace(plan, sticky=ours_alone and random.Random(f"{seed}/sticky").random() < _STICKY)


def _draw_sends(rng: random.Random, life_ms: int) -> tuple[tuple[int, int], ...]:
    sends, left = [(500, 4)], _MESSAGES
    while left > 0:
        count = min(left, rng.choice((1, 2, 4, 8)))
        sends.append((rng.randrange(1000, life_ms), count))
        left -= count
    return tuple(sorted(sends))


def _draw_events(rng: random.Random, faults: list[Fault], lease_ms: int, life_ms: int) -> tuple[FaultEvent, ...]:
    events, at_ms = [], rng.randrange(2000, 2000 + lease_ms)
    for _ in range(rng.randrange(3, 9)):
        low, high = rng.choice(((0.02, 0.3), (0.3, 1.0), (1.0, 2.2)))
        duration_ms = int(lease_ms * rng.uniform(low, high))
        events.append(FaultEvent(at_ms, rng.choice(faults), rng.choice(MEMBERS), duration_ms))
        # Often close together: a fault during the recovery from another is what breaks order.
        at_ms += rng.choice((rng.randrange(50, 2000), rng.randrange(500, lease_ms), rng.randrange(500, 2 * lease_ms)))
    return tuple(event for event in events if event.at_ms < life_ms)


def _with_more(
    rng: random.Random, events: tuple[FaultEvent, ...], lease_ms: int, life_ms: int
) -> tuple[FaultEvent, ...]:
    """Add faults of machines and links, of which a seed has a random part."""
    on = [name for name in MORE_FAULTS if rng.random() < _MORE_ON]
    moments = [rng.randrange(2000, life_ms) for _ in range(rng.randrange(2, 5))] if on else []
    hosts = {Role.MEMBER: MEMBERS, Role.BROKER: (BROKER,)}
    more = [draw_fault(rng, rng.choice(on), at_ms, lease_ms, hosts) for at_ms in moments]
    return tuple(sorted((*events, *more), key=lambda event: event.at_ms))
