"""Virtual time, a network with faults and simulated hosts, on which broker and client run unchanged."""

from lockstep.simulation.disk import Disk
from lockstep.simulation.errors import (
    DeadlockError,
    HostCrashedError,
    LeakError,
    LimitError,
    NondeterminismError,
    SimulationError,
    UnhandledError,
)
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.run import simulate
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.world import Outcome, World

__all__ = [
    "DeadlockError",
    "Disk",
    "HostCrashedError",
    "LeakError",
    "LimitError",
    "NondeterminismError",
    "Outcome",
    "SimRuntime",
    "SimulationError",
    "SimulationOptions",
    "UnhandledError",
    "World",
    "simulate",
]
