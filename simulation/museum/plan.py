"""The plan of an exhibit: settings, messages and faults of a small cluster, all drawn from a seed.

An exhibit says with a `Swarm` what may be drawn. It never says when: the sweep has to find the moment.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.simulation.lab.durations import duration_text
from lockstep.simulation.lab.faults.swarm import draw_faults
from lockstep.simulation.lab.setup import FaultEvent, LockMode, Store
from lockstep.simulation.lab.user.story import StoryPlan

__all__ = ["GOING", "LINKS", "STOPS", "MuseumPlan", "Swarm", "draw_plan"]

GOING: Final = ("leave", "kill")  # members end; some come back
STOPS: Final = ("stall",)
LINKS: Final = ("cut", "partition", "hold", "slow")
_CACHED: Final = 1000
_SMALL_STORE: Final = {"memory_limit_bytes": 65_536, "segment_bytes": 8_192, "max_message_bytes": 4_096}


@dataclass(frozen=True, kw_only=True)
class Swarm:
    """What the seeds of an exhibit draw from.

    Args:
        faults: names of the table of faults; each seed has a random part of them, and `events_max` faults at most.
        lock_ms: how long a lock lives on the broker; the other times of a lock follow from it.
        lock_timeout_ms: how long a client waits for a lock, at most an eighth of its life.
        work_ms: how long a listener call takes.
        failing: percent of the messages whose first attempt fails.
        from_last: a group without an offset begins at the end of its queues, whose first messages are gone.
        cached: from how many messages on the owner of a queue does not pull.
        messages, burst: how many are sent in all, and how many at once.
        invisible_ms: the members pop, and so long nobody else gets what one of them has; empty: they use locks.
        count_max: how many messages a pop gets at most.
        resets: an administrator sets the group back to the first messages, once.
        restarts: the broker keeps its tables in files, and may end and start again.
    """

    faults: tuple[str, ...] = (*GOING, *STOPS, *LINKS)
    events_max: int = 7
    lock_ms: tuple[int, ...] = (6_000, 12_000)
    lock_timeout_ms: int = 1000
    consumers: tuple[int, ...] = (1, 2, 2, 3)
    work_ms: tuple[int, ...] = (0, 20, 200)
    failing: tuple[int, ...] = (0,)
    from_last: bool = False
    cached: tuple[int, ...] = (_CACHED,)
    messages: int = 30
    burst: tuple[int, ...] = (1, 1, 2, 4)
    invisible_ms: tuple[int, ...] = ()
    count_max: tuple[int, ...] = (1, 4, 16)
    resets: bool = False
    restarts: bool = False


@dataclass(frozen=True, kw_only=True)
class MuseumPlan(StoryPlan):
    """A StoryPlan with the locks and the messages of the exhibit. `sends` are (at, how many); see Swarm for others."""

    lock_ms: int
    lock_timeout_ms: int
    cached: int
    from_last: bool
    failing: int
    sends: tuple[tuple[int, int], ...]
    invisible_ms: int = 0  # 0: the members use locks
    count_max: int = 1
    reset_at_ms: int = 0  # 0: never

    def furnished(self) -> Self:
        """With the settings of its broker and consumers."""
        store = _SMALL_STORE if self.from_last else {}
        return replace(self, broker={**_broker(self.lock_ms), **store}, consumer=_consumer(self))

    def fails_first(self, text: str) -> bool:
        """Whether the first attempt of a message fails."""
        return random.Random(f"{self.seed}/fails {text}").randrange(100) < self.failing

    def described(self) -> dict[str, object]:
        return {
            "locks": f"{self.lock_mode}, they live for {duration_text(self.lock_ms)}",
            "consumers": self.consumers,
            "queues": self.queues,
            "messages": sum(count for _, count in self.sends),
            "work": duration_text(self.work_ms),
            "life": duration_text(self.life_ms),
            **({"at most cached": self.cached} if self.cached < _CACHED else {}),
            **({"first attempts that fail": f"{self.failing} %"} if self.failing else {}),
            **({"the group begins": "at the end of its queues"} if self.from_last else {}),
            **({"invisible time": duration_text(self.invisible_ms)} if self.invisible_ms else {}),
            **({"messages of a pop": f"at most {self.count_max}"} if self.invisible_ms else {}),
            **({"the group is set back": f"at {duration_text(self.reset_at_ms)}"} if self.reset_at_ms else {}),
        }

    def smaller(self) -> Iterator[Self]:
        """As a StoryPlan, and fewer messages."""
        yield from super().smaller()
        count = len(self.sends)
        for size in sorted({count // 2, count // 4, 1}, reverse=True):
            for first in range(0, count, size) if 0 < size < count else ():
                yield replace(self, sends=self.sends[:first] + self.sends[first + size :])
        for number, (at_ms, many) in enumerate(self.sends):
            if many > 1:
                yield replace(self, sends=(*self.sends[:number], (at_ms, many // 2), *self.sends[number + 1 :]))
        if self.count_max > 1:
            yield replace(self, count_max=self.count_max // 2)
        if self.failing and self.failing < 100:
            yield replace(self, failing=0)


def draw_plan(swarm: Swarm, name: str, seed: int, mode: LockMode) -> MuseumPlan:
    """Draw the plan of a seed. `name`: of the exhibit, so that two exhibits have different plans for one seed."""
    rng = random.Random(f"{name}/{seed}")
    lock_ms = rng.choice(swarm.lock_ms)
    plan = MuseumPlan(
        seed=seed,
        lock_mode=mode,
        strict=True,
        life_ms=30_000 + 2 * lock_ms,
        consumers=rng.choice(swarm.consumers),
        queues=rng.choice((1, 1, 2)),
        rate=0,
        work_ms=rng.choice(swarm.work_ms),
        lock_ms=lock_ms,
        lock_timeout_ms=min(swarm.lock_timeout_ms, lock_ms // 8),
        cached=rng.choice(swarm.cached),
        from_last=swarm.from_last,
        failing=rng.choice(swarm.failing),
        sends=(),
    )
    if swarm.invisible_ms:
        plan = replace(plan, invisible_ms=rng.choice(swarm.invisible_ms), count_max=rng.choice(swarm.count_max))
        if swarm.resets:
            plan = replace(plan, reset_at_ms=rng.randrange(5000, plan.life_ms))
        if swarm.restarts:
            plan = replace(plan, store=Store.ASYNC)
    events = draw_faults(rng, plan.furnished(), swarm.faults, rng.randrange(1, swarm.events_max + 1))
    return replace(plan, events=events, sends=_draw_sends(rng, swarm, events, plan.life_ms))


def _draw_sends(
    rng: random.Random, swarm: Swarm, events: tuple[FaultEvent, ...], life_ms: int
) -> tuple[tuple[int, int], ...]:
    """A part of the messages comes when a fault begins or ends."""
    sends, messages = list[tuple[int, int]](), swarm.messages
    while messages > 0:
        count = min(messages, rng.choice(swarm.burst))
        at_ms = rng.randrange(500, life_ms)
        if events and rng.random() < 0.5:
            event = rng.choice(events)
            at_ms = min(event.at_ms + rng.choice((0, event.duration_ms)) + rng.randrange(-500, 4000), life_ms)
        sends.append((at_ms, count))
        messages -= count
    return tuple(sorted(sends))


def _broker(lock_ms: int) -> dict[str, Any]:
    return {
        "lock_max_live_time_ms": lock_ms,
        "lock_delay_ms": min(3000, lock_ms // 3),
        "lock_delay_legacy_ms": lock_ms // 2 + 1000,
        "channel_expired_timeout_ms": 2 * lock_ms,
        "scan_interval_ms": lock_ms // 6,
        "idle_close_ms": 3 * lock_ms,
    }


def _consumer(plan: MuseumPlan) -> dict[str, Any]:
    """The settings of RocketMQ where a lock lives for 60 s; shorter where it lives shorter."""
    first, last = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    lock_ms = plan.lock_ms
    return {
        "consume_from_where": last if plan.from_last else first,
        "pull_threshold_for_queue": plan.cached,
        "suspend_current_queue_time_ms": 500,
        "heartbeat_broker_interval_ms": lock_ms // 2,
        "idle_close_ms": 3 * lock_ms,
        "rebalance_interval_ms": lock_ms // 3,
        "lock_interval_ms": lock_ms // 3,
        "lock_first_delay_ms": min(1000, lock_ms // 12),
        "lock_max_live_time_ms": lock_ms // 2,
        "broker_lock_max_live_time_ms": lock_ms,
        "lock_timeout_ms": plan.lock_timeout_ms,
        "lock_settle_ms": lock_ms // 3,
        "unlock_delay_ms": lock_ms // 3,
        "persist_consumer_offset_interval_ms": min(5000, lock_ms // 4),
        "persist_consumer_offset_first_ms": min(10_000, lock_ms // 3),
    }
