"""An experiment whose faults end at one moment: all that lasts is healed then, and no later fault comes."""

from dataclasses import replace
from typing import Any

from lockstep.simulation.lab.experiment import Experiment, Played
from lockstep.simulation.world import World

__all__ = ["Healed"]


class Healed:
    """An Experiment. A run of it is equal to that of `experiment` until `at_ms`, virtual, since the start."""

    def __init__(self, experiment: Experiment[Any], at_ms: int) -> None:
        self._experiment = experiment
        self._at_ms = at_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._experiment, name)

    def build(self, world: World, plan: Any) -> Played:
        loop = world.loop
        due_ns = loop.now_ns + self._at_ms * 1_000_000
        loop.call_at_ns(due_ns, world.heal, context=loop.ground)
        earlier = tuple(event for event in plan.events if event.at_ms < self._at_ms)
        return self._experiment.build(world, replace(plan, events=earlier))
