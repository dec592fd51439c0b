"""Random worlds that look at one part of order: few kinds of faults, close together, with messages that wait.

Each draws its settings and faults from a seed, as `worlds` does, and has the same eyes. It never says when: a seed has
to meet the moment. What RocketMQ's own locks allow under these faults is named; anything else fails in both lock modes.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.world import World
from lockstep.simulation.worlds import draws
from lockstep.simulation.worlds.plan import WorldPlan, draw_plan
from lockstep.simulation.worlds.random_world import RandomWorld

__all__ = ["FOCUSED", "Focused"]

_Draw = Callable[[random.Random], Mapping[str, Any]]


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

    def draw(self, seed: int, mode: LockMode) -> WorldPlan:
        plain = draw_plan(seed, mode)
        return replace(plain, **{**draws.CALM, **self.drawn(random.Random(f"{self.name}/{seed}"))})

    def build(self, world: World, plan: WorldPlan) -> RandomWorld:
        return RandomWorld(world, plan)

    def fails(self, outcome: SeedResult) -> bool:
        allowed = self.rocketmqs if outcome.mode is LockMode.FAITHFUL else frozenset()
        return bool(outcome.error or set(outcome.wrong) - allowed)


# RocketMQ's broker answers any pull and stores any commit, however late it comes.
_LATE_PULLS: Final = frozenset({Wrong.STALE_PULL})
_STOPPED: Final = frozenset(
    {Wrong.STALE_PULL, Wrong.OVERLAP, "judge: overlap", "judge: stale-owner", "judge: stale-repeat"}
)
_LATE: Final = frozenset({Wrong.STALE_PULL, Wrong.STALE_COMMIT, Wrong.COMMIT_BACK, "judge: stored-regress"})
# A broker of RocketMQ forgets its locks, and a store in memory its messages.
_FORGOTTEN: Final = frozenset(
    {
        *(Wrong.LOCK_FORGOTTEN, Wrong.STALE_PULL, Wrong.LOST),
        *("judge: stale-owner", "judge: stale-commit", "judge: commit-beyond-end", "judge: lost-write"),
    }
)
# The old owner goes on in its period beside the new one, as docs/order.md says of a broker that restarts. The commits
# of both are stored, in the order in which they come.
_TWO_OWNERS: Final = frozenset({Wrong.STALE_COMMIT, Wrong.COMMIT_BACK, "judge: stale-repeat", "judge: stored-regress"})
# The lock of a queue that is reset under a call is not renewed, and may run out before the call ends (docs/order.md).
_OUTLIVED: Final = frozenset({Wrong.STALE_PULL, Wrong.OVERLAP, "judge: overlap", "judge: stale-owner"})

FOCUSED: Final = (
    Focused("worlds/goings", "Members join and leave within seconds, while messages wait.", draws.comings_and_goings,
            ("takeovers", "join", "leave"), _LATE_PULLS),
    Focused("worlds/stops", "Members stop for longer than a lease, and others take over.", draws.stops,
            ("takeovers", "stall", "sleep"), _STOPPED),
    Focused("worlds/restarts", "The broker starts again, and its disk is slow.", draws.broker_restarts,
            ("takeovers", "broker restarts", "slow-disk"), _FORGOTTEN | _TWO_OWNERS),
    Focused("worlds/power", "The broker loses its power when queues change their owners.", draws.power_cuts,
            ("takeovers", "broker power cut", "stall"), _FORGOTTEN | _STOPPED),
    Focused("worlds/links", "Requests and answers come late, by a part of a lease or by more.", draws.slow_links,
            ("takeovers", "late", "slow answers"), _LATE),
    Focused("worlds/resets", "An administrator resets offsets while queues change their owners.", draws.resets,
            ("takeovers", "reset", "join"), _LATE_PULLS),
    Focused("worlds/threads", "Plain listeners wait for one thread.", draws.few_threads,
            ("takeovers", "hold to the member", "sleep"), _LATE | _STOPPED),
    Focused("worlds/sends", "The producer's connections are slow and break.", draws.producers_links,
            ("late", "cut", "one-sided ends")),
    Focused("worlds/bursts", "Sends of one moment leave in one frame, over connections that break.", draws.bursts,
            ("late", "cut", "sends together", "sends failed")),
    Focused("worlds/grants", "Locks are granted late, and then renewals do not arrive.", draws.late_grants,
            ("takeovers", "late", "hold to the broker"), _LATE),
    Focused("worlds/waits", "Calls wait for a thread, while locks are not trusted or given away.", draws.waiting_keys,
            ("hold to the member", "sleep", "stall"), _LATE | _STOPPED),
    Focused("worlds/moves", "A reset waits for a call while queues change their owners.", draws.moves,
            ("takeovers", "reset", "join", "leave"), _OUTLIVED),
    Focused("worlds/mixed", "Requests of unmodified members arrive when others own the queues.", draws.unmodified_links,
            ("takeovers", "hold to the broker"), _LATE | _STOPPED),
    Focused("worlds/brokers", "One of two brokers is out of reach, while the other one works.", draws.two_brokers,
            ("takeovers", "hold", "stall"), _LATE | _STOPPED),
    Focused("worlds/leaves", "Members leave under long calls, and come back at once.", draws.leaves,
            ("takeovers", "join", "leave", "restart"), _STOPPED),
    Focused("worlds/clocks", "Clocks are set and drift, and the broker comes back without its locks.", draws.clocks,
            ("takeovers", "clock", "broker clock", "broker table lost", "drift"),
            _FORGOTTEN | _STOPPED),
    Focused("worlds/busy", "The broker refuses requests while queues change their owners.", draws.busy_broker,
            ("takeovers", "busy", "join", "leave"), _STOPPED),
)  # fmt: skip
(
    GOINGS, STOPS, RESTARTS, POWER, LINKS, RESETS, THREADS, SENDS, BURSTS,
    GRANTS, WAITS, MOVES, MIXED, BROKERS, LEAVES, CLOCKS, BUSY,
) = FOCUSED  # fmt: skip
