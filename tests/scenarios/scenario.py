"""`@scenario()`: a story becomes a test, once under each header encoding, and can be run by name from elsewhere.

@scenario()
async def test_something_holds(cluster: Cluster) -> None:
    \"\"\"One sentence that must be true.\"\"\"
    await cluster.broker()
    ...

At its end the cluster is shut down and the order checker judges, whether the story asks for it or not.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from lockstep.client import SerializeType
from lockstep.simulation import Outcome, SimulationOptions, World, simulate
from lockstep.simulation.lab.recorded_cluster import INSTANT
from tests.scenarios.cluster import Cluster

__all__ = ["ENCODINGS", "HASHES", "INSTANT", "MODES", "SEED", "STORIES", "Mode", "Scenario", "scenario"]

Story = Callable[[Cluster], Awaitable[None]]
SEED = 20130101
ENCODINGS = (SerializeType.JSON, SerializeType.MSGPACK)
# Where tests write the hash of each run, for test_determinism.py to compare: one variable for two steps of a check.
HASHES = os.environ.get("LOCKSTEP_HASHES")


class Mode(NamedTuple):
    """How a story is played."""

    encoding: SerializeType
    fenced: bool = False

    @property
    def name(self) -> str:
        """`JSON`, `MSGPACK`, `MSGPACK-fenced`."""
        return f"{self.encoding.name}-fenced" if self.fenced else self.encoding.name

    @classmethod
    def of(cls, name: str) -> "Mode":
        encoding, _, fenced = name.partition("-")
        return cls(SerializeType[encoding], bool(fenced))


@dataclass(frozen=True)
class Scenario:
    name: str
    story: Story
    options: SimulationOptions | None

    def run(self, mode: Mode, seed: int = SEED) -> Outcome[None]:
        """Raises what the story and the judge at its end raise, with the seed."""

        async def main(world: World) -> None:
            cluster = Cluster(world, mode.encoding, fenced=mode.fenced)
            await self.story(cluster)
            await cluster.end()

        main.__module__ = self.story.__module__  # escapes are looked for there
        return simulate(main, seed=seed, options=self.options)


STORIES: dict[str, Scenario] = {}

MODES = {mode.name: mode for mode in map(Mode, ENCODINGS)}
_FENCED = Mode(SerializeType.MSGPACK, fenced=True)


def scenario(
    options: SimulationOptions | None = None, *, also_fenced: bool = False
) -> Callable[[Story], Callable[[Mode], None]]:
    """Make a test of a story, and remember the story under its module's and its own name.

    Args:
        also_fenced: the story is also played with fenced locks, at brokers and consumers.
    """

    def decorate(story: Story) -> Callable[[Mode], None]:
        assert story.__module__.startswith(f"{__package__}."), f"{story.__module__}: unknown to all_hashes"
        name = f"{story.__module__.rpartition('.')[2].removeprefix('test_')}.{story.__name__.removeprefix('test_')}"
        STORIES[name] = entry = Scenario(name, story, options)

        @pytest.mark.by_turns("mode", MODES, always={_FENCED.name: _FENCED} if also_fenced else {})
        def test(mode: Mode) -> None:
            outcome = entry.run(mode)
            if HASHES is not None:
                with Path(HASHES).open("a", encoding="utf-8") as hashes:
                    hashes.write(f"{name} {mode.name} {SEED} {outcome.trace_hash}\n")

        test.__name__, test.__doc__, test.__module__ = story.__name__, story.__doc__, story.__module__
        return test

    return decorate
