"""The experiment `worlds`: random worlds of fenced and faithful brokers."""

from typing import Final

from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.world import World
from lockstep.simulation.worlds.plan import MORE_FAULTS, WorldPlan, draw_plan
from lockstep.simulation.worlds.random_world import RandomWorld

__all__ = ["WORLDS", "Worlds"]

_IN_BOTH: Final = (
    "takeovers", "broker restarts", "one-sided ends", "reset", "join", "leave", "crash", "power off", "restart",
    "stall", "sleep", "cut", "partition", "hold to the broker", "hold to the member", "clock", "broker kill",
    "broker stall", "sends together", "commits together", *MORE_FAULTS,
)  # fmt: skip
_FENCED: Final = (
    "answers FENCED", "answers NOT_HELD", "answers STALE", "reclaims", "lock delays", "handovers", "held pulls ended",
    "resets", "resets of owners",
)  # fmt: skip


class Worlds:
    """An Experiment."""

    name = "worlds"
    summary = "Members join, crash, stop and lose connections, brokers restart, an administrator resets offsets."
    sometimes: Final = {LockMode.FAITHFUL: _IN_BOTH, LockMode.FENCED: (*_IN_BOTH, *_FENCED)}

    def draw(self, seed: int, mode: LockMode) -> WorldPlan:
        return draw_plan(seed, mode)

    def build(self, world: World, plan: WorldPlan) -> RandomWorld:
        return RandomWorld(world, plan)

    def fails(self, outcome: SeedResult) -> bool:
        """Violations in faithful mode are RocketMQ's, and counted only."""
        return bool(outcome.error or (outcome.wrong and outcome.mode is LockMode.FENCED))


WORLDS: Final = Worlds()
