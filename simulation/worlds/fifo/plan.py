"""The plan of a world of a FIFO group: members pop keyed messages, handle them, and acknowledge each, or not.

They are slow, fail, renew and forget, as a part of their messages says; and all happens to them and to the broker that
happens in other worlds, and answers of pops are lost.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from lockstep.simulation.lab.experiment import FaultEvent, LockMode, fewer
from lockstep.simulation.lab.faults.fault import Role
from lockstep.simulation.lab.faults.swarm import draw_fault
from lockstep.simulation.lab.hosts import BROKER
from lockstep.simulation.lab.setup import Store
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.worlds.plan import MEMBERS

__all__ = ["ANSWER_MS", "ENDS", "LOST_ANSWER", "FifoPlan", "draw_plan"]

LOST_ANSWER: Final = "lost answer"
ANSWER_MS: Final = 1000  # how long the answer of a pop may take, besides its wait time

_LIFE_MS: Final = 40_000
_MESSAGES: Final = 60
ENDS: Final = ("kill", "power-off", "restart-broker")
_OF_MEMBERS: Final = (
    *("kill", "power-off", "leave", "stall", "sleep", "drift", "slow-cpu"),
    *("cut", "cut-one-side", "close", "partition", "hold", "slow", "late", "jitter", "slow-link", "nat", "nat-reset"),
)
_OF_DISK: Final = ("slow-disk", "hang-disk")
_ON: Final = 0.35
_EVENTS_MAX: Final = 12


@dataclass(frozen=True, kw_only=True)
class FifoPlan:
    """A world of a FIFO group before it begins. Times in virtual ms.

    Args:
        members: How many, named c1, c2, ...
        loops: Each member has so many calls of `receive` at once.
        invisible_ms: What members ask for.
        wait_ms: How long a call of `receive` waits for a message.
        count_max: Messages of one pop; some ask for less.
        slow, renewing, failing, forgetting: In percent of the deliveries: the call outlives the invisible time; it does
            so and renews in time; it ends with a failure; it ends, and says nothing to the broker.
        by_key: The keys of a pop are handled at the same time.
        acks_last: All messages of a pop are handled before the first one is acknowledged.
        goes_on: When an acknowledgement is refused, what follows is acknowledged all the same.
        gives_back: What is behind a failure is given back, too; else it is visible after its time.
        grace_ms: Until others get what a member held whose connection ended.
        sends: (at, how many messages).
    """

    seed: int
    lock_mode: LockMode
    life_ms: int
    queues: int
    keys: int
    members: int
    loops: int
    invisible_ms: int
    wait_ms: int
    count_max: int
    work_ms: int
    slow: int
    renewing: int
    failing: int
    forgetting: int
    by_key: bool
    acks_last: bool
    goes_on: bool
    gives_back: bool
    grace_ms: int
    store: Store
    sync_ms: int
    latency_us_max: int
    shuffle_us: int
    sends: tuple[tuple[int, int], ...]
    events: tuple[FaultEvent, ...]

    @property
    def fenced(self) -> bool:
        return self.lock_mode is LockMode.FENCED

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the members."""
        return MEMBERS[: self.members]

    @property
    def settle_ms(self) -> int:
        """How long it may take until everything is handled once all is healed."""
        return 6 * self.invisible_ms + 60_000

    @property
    def limit_ms(self) -> int:
        return self.life_ms + self.settle_ms + 900_000

    @property
    def options(self) -> SimulationOptions:
        return SimulationOptions(latency_us_max=self.latency_us_max, drain_ms=500, shuffle_us=self.shuffle_us)

    def is_poison(self, text: str) -> bool:
        """Whether each call for the message with this body fails."""
        return False

    def described(self) -> dict[str, object]:
        hidden = ("sends", "events")
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in hidden}

    def smaller(self) -> Iterator["FifoPlan"]:
        """Fewer events, messages and members, and plainer settings."""
        for events in fewer(self.events):
            yield replace(self, events=events)
        for sends in fewer(self.sends):
            yield replace(self, sends=sends)
        used = {name for event in self.events for name in (event.target, event.other)}
        for name in ("members", "loops", "queues", "keys"):
            least = name == "members" and MEMBERS[self.members - 1] in used
            if (number := getattr(self, name)) > 1 and not least:
                yield replace(self, **{name: number - 1})
        for name, plainest in _PLAINEST.items():
            if getattr(self, name) != plainest:
                yield replace(self, **{name: plainest})


_PLAINEST: Final[dict[str, Any]] = {
    **dict.fromkeys(("slow", "renewing", "failing", "forgetting", "work_ms", "sync_ms", "shuffle_us"), 0),
    **dict.fromkeys(("by_key", "acks_last", "goes_on", "gives_back"), False),
    "count_max": 1,
    "latency_us_max": 2_000,
}


def draw_plan(seed: int, mode: LockMode) -> FifoPlan:
    rng = random.Random(f"worlds/fifo/{seed}")
    store = rng.choice((Store.MEMORY, Store.ASYNC, Store.SYNC, Store.SYNC))
    members, invisible_ms = rng.choice((2, 2, 3)), rng.choice((3_000, 6_000, 6_000, 15_000))
    wait_ms = rng.choice((1_000, 3_000, 10_000))
    return FifoPlan(
        seed=seed,
        lock_mode=mode,
        life_ms=_LIFE_MS,
        queues=rng.choice((1, 1, 2, 3)),
        keys=rng.choice((1, 2, 3, 5)),
        members=members,
        loops=rng.choice((1, 1, 2)),
        invisible_ms=invisible_ms,
        wait_ms=wait_ms,
        count_max=rng.choice((1, 2, 4, 16)),
        work_ms=rng.choice((0, 20, 200)),
        slow=rng.choice((0, 0, 3, 10)),
        renewing=rng.choice((0, 0, 3, 10)),
        failing=rng.choice((0, 0, 5, 15)),
        forgetting=rng.choice((0, 0, 5)),
        by_key=rng.random() < 0.4,
        acks_last=rng.random() < 0.4,
        goes_on=rng.random() < 0.5,
        gives_back=rng.random() < 0.5,
        grace_ms=rng.choice((500, 3_000)),
        store=store,
        sync_ms=rng.choice((0, 3, 25)),
        latency_us_max=rng.choice((2_000, 2_000, 30_000)),
        shuffle_us=rng.choice((0, 0, 1000)),
        sends=_draw_sends(rng),
        events=_draw_events(rng, store, MEMBERS[:members], invisible_ms, wait_ms),
    )


def _draw_sends(rng: random.Random) -> tuple[tuple[int, int], ...]:
    sends, left = [(500, 6)], _MESSAGES
    while left > 0:
        count = min(left, rng.choice((1, 1, 2, 6, 12)))
        sends.append((rng.randrange(1000, _LIFE_MS), count))
        left -= count
    return tuple(sorted(sends))


def _draw_events(
    rng: random.Random, store: Store, members: tuple[str, ...], invisible_ms: int, wait_ms: int
) -> tuple[FaultEvent, ...]:
    """Often close together: a fault during the recovery from another is what breaks order."""
    # A store in memory is empty after a restart: there is nothing to keep. What was not synced, a power cut takes.
    ends = {Store.MEMORY: (), Store.ASYNC: ("kill", "restart-broker"), Store.SYNC: ENDS}[store]
    of_broker = (*ends, "stall", *(() if store is Store.MEMORY else _OF_DISK))
    kinds = [(name, members) for name in _OF_MEMBERS if rng.random() < _ON]
    kinds += [(name, (BROKER,)) for name in of_broker if rng.random() < 2 * _ON]
    kinds += [(LOST_ANSWER, members)] * 2
    events, at_ms = list[FaultEvent](), rng.randrange(1500, 4000)
    while at_ms < _LIFE_MS and len(events) < _EVENTS_MAX:
        name, hosts = rng.choice(kinds)
        if name == LOST_ANSWER:
            # Its connection ends; or it comes when its client has given up.
            lasts_ms = rng.choice((0, wait_ms + ANSWER_MS + rng.randrange(100, 2000)))
            events.append(FaultEvent(at_ms, name, rng.choice(hosts), lasts_ms))
        elif hosts == (BROKER,):
            amount = rng.choice((20, 200, 500)) if name == "slow-disk" else 0
            events.append(FaultEvent(at_ms, name, BROKER, rng.randrange(100, invisible_ms), "", amount))
        else:
            roles = {Role.MEMBER: hosts, Role.BROKER: (BROKER,)}
            events.append(draw_fault(rng, name, at_ms, invisible_ms, roles))
        at_ms += rng.choice((rng.randrange(20, 800), rng.randrange(300, 3000), rng.randrange(500, 2 * invisible_ms)))
    return tuple(events)
