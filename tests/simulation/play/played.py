"""A run whose scenes are taken on the way: at log lines, so that nothing is added to the run."""

from typing import Any

from lockstep.simulation.lab.experiment import Experiment, Plan, PlayedWorld
from lockstep.simulation.lab.recorded_cluster import Lines
from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.play.scene import Json, Scenes
from lockstep.simulation.world import World

__all__ = ["scenes_of"]


class _Watched:
    def __init__(self, experiment: Experiment[Any], every_ms: int) -> None:
        self._experiment = experiment
        self._every_ms = every_ms
        self.scenes: list[Json] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._experiment, name)

    def build(self, world: World, plan: Plan) -> PlayedWorld:
        played = self._experiment.build(world, plan)
        scenes, played.cluster.log = Scenes(played.cluster), Lines()
        due_ms = 0

        def look(_line: object) -> None:
            nonlocal due_ms
            if world.elapsed_ms >= due_ms:
                due_ms = world.elapsed_ms + self._every_ms
                self.scenes.append(scenes.take())

        played.cluster.log.on_line = look
        return played


def scenes_of(experiment: Experiment[Any], plan: Plan, *, every_ms: int = 250) -> tuple[list[Json], Run]:
    """The scenes of a run, about so far apart, and the run."""
    watched: Any = _Watched(experiment, every_ms)
    run = run_plan(watched, plan)
    assert run.error is None, run.error
    return watched.scenes, run
