"""The types of the lab: a plan drawn from a seed, the world that plays it, the experiment that makes both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeVar

from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.findings import Findings
from lockstep.simulation.lab.setup import LOCKING, FaultEvent, LockMode, Strategy
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.world import World

__all__ = [
    "LOCKING",
    "Experiment",
    "FaultEvent",
    "LockMode",
    "Plan",
    "PlayedWorld",
    "SeedResult",
    "fewer",
    "own_mode",
    "why_no_mode",
]


class Plan(Protocol):
    """Everything that was drawn from a seed. A frozen dataclass: equal plans make equal runs."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seed(self) -> int: ...

    @property
    def lock_mode(self) -> LockMode: ...

    @property
    def life_ms(self) -> int:
        """Until when faults may happen; then everything is healed."""

    @property
    def events(self) -> tuple[FaultEvent, ...]: ...

    @property
    def limit_ms(self) -> int:
        """A run that is not over then has failed."""

    @property
    def options(self) -> SimulationOptions: ...

    def described(self) -> dict[str, object]:
        """The settings for people: name -> value, without the events."""

    def smaller(self) -> Iterator[Self]:
        """Simpler plans to try, the boldest first: fewer events, members or messages, or a shorter life."""


class PlayedWorld(Protocol):
    """A world that runs a plan."""

    @property
    def findings(self) -> Findings: ...

    @property
    def cluster(self) -> Cluster: ...

    async def run(self) -> None:
        """Play the plan to its end, and judge."""


@dataclass(frozen=True)
class SeedResult:
    """What is kept of a seed.

    Args:
        wrong: how often each kind of violation was found.
        texts: of the first violations.
        sometimes: how often each thing happened.
        error: of a world that did not reach its end; empty: it did.
    """

    seed: int
    mode: LockMode
    trace_hash: str
    wrong: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    sometimes: dict[str, int] = field(default_factory=dict)
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value != "" and value != [] and value != {}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SeedResult":
        return cls(**{**value, "mode": LockMode(value["mode"])})


T = TypeVar("T")
P = TypeVar("P", bound=Plan)


class Experiment(Protocol[P]):
    """One question about order, asked with many seeds."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str:
        """One sentence."""

    @property
    def sometimes(self) -> Mapping[LockMode, tuple[str, ...]]:
        """What must happen in at least 5 % of the seeds of a mode, or a sweep has proved nothing."""

    def draw(self, seed: int, mode: LockMode) -> P: ...

    def build(self, world: World, plan: P) -> PlayedWorld: ...

    def fails(self, outcome: SeedResult) -> bool:
        """Whether an outcome is a failure. In faithful mode violations are RocketMQ's, and only an error is one."""


def own_mode(experiment: Experiment[Any]) -> LockMode:
    """The lock mode that a story or an exhibit has by itself."""
    setup = getattr(experiment, "setup", None)
    mode: LockMode = setup.lock_mode if setup is not None else getattr(experiment, "mode", LockMode.FAITHFUL)
    return mode


def why_no_mode(experiment: Experiment[Any] | None, mode: str, *others: str) -> str:
    """Why an experiment, None: any, has no such lock mode; empty: it has.

    Args:
        others: what else may be written.
    """
    modes: tuple[LockMode, ...] = getattr(experiment, "modes", LOCKING)
    if mode in modes:
        strategy = getattr(getattr(experiment, "setup", None), "strategy", None)
        no_owners = strategy is Strategy.STICKY and mode == LockMode.FAITHFUL  # no broker tells who owns a queue
        return f"{str(mode)!r} has no strategy STICKY; use fenced" if no_owners else ""
    *first, last = [*map(str, modes), *others]
    only = "; only stories are of FIFO groups" if mode == LockMode.FIFO else ""
    return f"{mode!r} is not allowed; use {', '.join(first)} or {last}{only}"


def fewer(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """For `Plan.smaller`: without all items, without each half, each quarter ... and without each single one."""
    size = len(items)
    while size:
        for first in range(0, len(items), size):
            yield items[:first] + items[first + size :]
        size //= 2
