"""An exhibit: a real report, the variant that has its bug, and the swarm whose sweep finds it again."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.museum.exhibit_run import ExhibitRun
from lockstep.simulation.museum.found import Found, found_of
from lockstep.simulation.museum.plan import MuseumPlan, Swarm, draw_plan
from lockstep.simulation.museum.pop_run import PopRun
from lockstep.simulation.museum.variant import Variant
from lockstep.simulation.world import World

__all__ = ["Exhibit"]

_NOTHING: Final[Mapping[LockMode, tuple[str, ...]]] = dict.fromkeys(LockMode, ())


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """An Experiment. Its texts are our own words.

    Args:
        key: its name in the museum.
        report: project and number.
        title: what goes wrong, in a few words.
        told: what was reported.
        translated: what was changed to show it in our client or broker.
        rule: what prevents it in the product, and where that is written.
        kind: the violation that the sweep looks for.
        variant: begins it; `run_plan` does, around the whole run.
        mode: the lock mode that it is shown in.
    """

    key: str
    report: str
    title: str
    told: str
    translated: str
    rule: str
    kind: str
    variant: Variant
    swarm: Swarm = field(default_factory=Swarm)
    mode: LockMode = LockMode.FAITHFUL
    sometimes: Mapping[LockMode, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)

    @property
    def name(self) -> str:
        return f"museum/{self.key}"

    @property
    def modules(self) -> tuple[str, ...]:
        return ()

    @property
    def summary(self) -> str:
        return f"{self.report}: {self.title}."

    @property
    def found(self) -> Found | None:
        """Where a sweep from seed 1 on found it."""
        return found_of(self.key, self.mode)

    def draw(self, seed: int, mode: LockMode) -> MuseumPlan:
        return draw_plan(self.swarm, self.key, seed, mode)

    def build(self, world: World, plan: MuseumPlan) -> ExhibitRun | PopRun:
        return PopRun(world, plan) if plan.invisible_ms else ExhibitRun(world, plan)

    def fails(self, outcome: SeedResult) -> bool:
        return bool(outcome.error) or self.kind in outcome.wrong

    def mended(self) -> "Exhibit":
        """The same swarm for the product as it is."""
        return replace(self, variant=nullcontext)
