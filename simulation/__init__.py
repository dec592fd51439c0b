"""Virtual time, a network with faults and simulated hosts, on which broker and client run unchanged.

The lab is on it: `experiment` makes stories on a `Cluster`, `order_test` tests of your application (docs/simulator.md).
"""

from lockstep.simulation.errors import (
    DeadlockError,
    HostCrashedError,
    LeakError,
    LimitError,
    NondeterminismError,
    SimulationError,
    UnhandledError,
)
from lockstep.simulation.lab.cluster import Cluster, OrderError
from lockstep.simulation.lab.setup import LockMode, Setup
from lockstep.simulation.lab.user.order_test import SeedFailedError, order_test
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.machine.disk import Disk
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.run import simulate
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.world import Outcome, World

__all__ = [
    "Cluster",
    "DeadlockError",
    "Disk",
    "HostCrashedError",
    "LeakError",
    "LimitError",
    "LockMode",
    "NondeterminismError",
    "OrderError",
    "Outcome",
    "SeedFailedError",
    "Setup",
    "SimRuntime",
    "SimulationError",
    "SimulationOptions",
    "StoryCluster",
    "UnhandledError",
    "World",
    "experiment",
    "order_test",
    "simulate",
]
