"""A section of an article as an experiment: its story, which may be touched and kept as a plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Self

from lockstep.client import SerializeType
from lockstep.simulation.articles.play import PROFILE
from lockstep.simulation.articles.section import Section
from lockstep.simulation.lab.experiment import FaultEvent, LockMode, SeedResult, fewer
from lockstep.simulation.lab.recorded_cluster import INSTANT, RecordedCluster
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.run import simulate
from lockstep.simulation.world import World

__all__ = ["PlayedSection", "SectionExperiment", "SectionPlan"]

_AFTER_LIFE_MS: Final = 600_000


@dataclass(frozen=True, kw_only=True)
class SectionPlan:
    """A Plan. `life_ms` is how long the story takes without faults."""

    seed: int
    lock_mode: LockMode
    life_ms: int
    events: tuple[FaultEvent, ...] = ()

    @property
    def limit_ms(self) -> int:
        return self.life_ms + _AFTER_LIFE_MS

    @property
    def options(self) -> SimulationOptions:
        return INSTANT

    def described(self) -> dict[str, object]:
        return {"locks": str(self.lock_mode)}

    def smaller(self) -> Iterator[Self]:
        for events in fewer(self.events):
            yield replace(self, events=events)


class PlayedSection:
    """Runs the story of a section, and ends what the faults of its plan have left."""

    def __init__(self, world: World, plan: SectionPlan, section: Section) -> None:
        self.cluster = RecordedCluster(world, SerializeType.JSON, profile=PROFILE, lock_mode=plan.lock_mode)
        self.findings = self.cluster.findings
        self._section = section
        self._events = plan.events
        for event in plan.events:
            self.cluster.plan_fault(event)

    async def run(self) -> None:
        assert self._section.story is not None
        await self._section.story(self.cluster)
        await self.cluster.faults_ended()
        await self.cluster.shut_down()
        if not self.cluster.not_judged:
            self.cluster.judge_into_findings()
        self.cluster.world.power_off()


@dataclass(frozen=True)
class SectionExperiment:
    """An Experiment. Only for a section with a story."""

    section: Section

    @property
    def name(self) -> str:
        return f"article/{self.section.id}"

    @property
    def summary(self) -> str:
        return self.section.story_text

    @property
    def modules(self) -> tuple[str, ...]:
        return (self.section.story.__module__,)  # escapes to real time are looked for there

    @property
    def sometimes(self) -> Mapping[LockMode, tuple[str, ...]]:
        return {}

    def draw(self, seed: int, mode: LockMode) -> SectionPlan:
        plan = SectionPlan(seed=seed, lock_mode=mode, life_ms=1)
        return replace(plan, life_ms=_length_ms(self, plan))

    def build(self, world: World, plan: SectionPlan) -> PlayedSection:
        return PlayedSection(world, plan, self.section)

    def fails(self, outcome: SeedResult) -> bool:
        return bool(outcome.error or outcome.wrong)


@cache
def _length_ms(experiment: SectionExperiment, plan: SectionPlan) -> int:
    async def main(world: World) -> int:
        played: Any = experiment.build(world, plan)
        await played.run()
        assert played.cluster.ended_ms is not None
        return int(played.cluster.ended_ms)

    return simulate(main, seed=plan.seed, options=INSTANT).value
