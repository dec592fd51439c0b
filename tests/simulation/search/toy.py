"""A small experiment for tests of the search: c1 tells that it lives each second, and is stopped now and then.

Its violation: nothing of c1 for a minute. It needs a stop of a minute, or a stop and a sleep that overlap.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Final

from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.experiment import LOCKING, FaultEvent, LockMode, SeedResult, fewer
from lockstep.simulation.lab.findings import Findings
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.world import World

SILENT: Final = "silent"
_QUIET_MS: Final = 60_000
_POLL_MS: Final = 200


@dataclass(frozen=True, kw_only=True)
class ToyPlan:
    seed: int = 1
    lock_mode: LockMode = LockMode.FAITHFUL
    life_ms: int = 150_000
    members: int = 3
    lives: bool = True
    events: tuple[FaultEvent, ...] = ()
    limit_ms: int = 10_000_000
    options: SimulationOptions = field(default_factory=SimulationOptions)

    def described(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def smaller(self) -> Iterator["ToyPlan"]:
        for events in fewer(self.events):
            yield replace(self, events=events)
        if self.members > 1:
            yield replace(self, members=self.members - 1)


class ToyWorld:
    def __init__(self, world: World, plan: ToyPlan) -> None:
        self.world = world
        self.plan = plan
        self.findings = Findings(world)
        self.cluster = Cluster(world)
        self._last_ms = 0

    async def run(self) -> None:
        if self.plan.lives:
            self.world.host("c1").create_task(self._live(), name="beats")
        events = list(self.plan.events)
        while self.world.elapsed_ms < self.plan.life_ms:
            while events and events[0].at_ms <= self.world.elapsed_ms:
                self._play(events.pop(0))
            if self.world.elapsed_ms - self._last_ms > _QUIET_MS and not self.findings.wrong:
                self.findings.add(SILENT, "nothing of c1 for a minute")
            await self.world.sleep_ms(_POLL_MS)
        self.world.power_off()

    async def _live(self) -> None:
        while True:
            self._last_ms = self.world.elapsed_ms
            await self.world.sleep_ms(1000)

    def _play(self, event: FaultEvent) -> None:
        self.findings.saw(event.fault)
        band = self.findings.begin(event.fault, event.target)
        band.end_ms = band.at_ms + event.duration_ms
        if event.fault == "stall":
            self.world.stall(event.target, event.duration_ms)
        elif event.fault == "sleep":
            self.world.suspend_for(event.target, event.duration_ms)


class Toy:
    name = "toy"
    summary = "c1 tells that it lives each second."
    sometimes: Final = dict.fromkeys(LOCKING, ("stall",))

    def draw(self, seed: int, mode: LockMode) -> ToyPlan:
        return ToyPlan(seed=seed, lock_mode=mode)

    def build(self, world: World, plan: ToyPlan) -> ToyWorld:
        return ToyWorld(world, plan)

    def fails(self, outcome: SeedResult) -> bool:
        return bool(outcome.wrong)
