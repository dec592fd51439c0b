"""One seed of the sweep: run its world in a lock mode, and what became of it."""

import traceback
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.lab.plan import Plan, draw_plan
from lockstep.simulation.lab.random_world import RandomWorld
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.run import simulate
from lockstep.simulation.world import World

__all__ = ["LockMode", "Outcome", "Replay", "replay", "run_seed"]

_AFTER_SETTLE_MS = 900_000  # all shutdowns of a world
_DRAIN_MS = 500
_TEXTS_KEPT = 5


class LockMode(StrEnum):
    FAITHFUL = "faithful"
    FENCED = "fenced"


class Replay(NamedTuple):
    """A run of a seed with everything that it left; `error` is what ended it before its end."""

    plan: Plan
    world: RandomWorld | None
    error: BaseException | None
    trace_hash: str


@dataclass(frozen=True)
class Outcome:
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
    def from_json(cls, value: dict[str, Any]) -> "Outcome":
        return cls(**{**value, "mode": LockMode(value["mode"])})


def replay(seed: int, mode: LockMode, *, lines_kept: int = 200) -> Replay:
    """Run the world of a seed."""
    plan, worlds = draw_plan(seed), list[RandomWorld]()

    async def main(world: World) -> None:
        worlds.append(RandomWorld(world, plan, fenced=mode is LockMode.FENCED))
        await worlds[0].run()

    options = SimulationOptions(latency_us_max=plan.latency_us_max, drain_ms=_DRAIN_MS, trace_lines_max=lines_kept)
    limit_ms = plan.life_ms + plan.settle_ms + _AFTER_SETTLE_MS
    try:
        run = simulate(main, seed=seed, limit_ms=limit_ms, options=options)
    except Exception as error:
        trace_hash = worlds[0].world.trace.digest if worlds else ""
        return Replay(plan, worlds[0] if worlds else None, error, trace_hash)
    return Replay(plan, worlds[0], None, run.trace_hash)


def run_seed(seed: int, mode: LockMode) -> Outcome:
    """Run the world of a seed, and keep what the sweep counts."""
    done = replay(seed, mode)
    found = done.world.findings.wrong if done.world is not None else list[Finding]()
    return Outcome(
        seed,
        mode,
        done.trace_hash,
        dict(sorted(Counter(str(finding.kind) for finding in found).items())),
        [f"{finding.kind} at {finding.at_ms} ms: {finding.text}" for finding in found[:_TEXTS_KEPT]],
        dict(sorted(done.world.findings.sometimes.items())) if done.world is not None else {},
        "".join(traceback.format_exception_only(done.error)).split("simulation: seed=")[0].strip()
        if done.error
        else "",
    )
