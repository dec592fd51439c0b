"""The errors of a simulation.

SimulationError
  DeadlockError        no callback is ready, no timer is set, and the scenario has not ended
  LimitError           virtual time, or the steps at one instant, reached the limit
  NondeterminismError  code bypassed the Runtime: real time, randomness, threads, network, disk
  UnhandledError       a callback or a task failed, and its exception was not read
  LeakError            the scenario ended, but tasks, connections or listeners are left
  HostCrashedError     awaited code ran on a host that crashed
"""

__all__ = [
    "DeadlockError",
    "HostCrashedError",
    "LeakError",
    "LimitError",
    "NondeterminismError",
    "SimulationError",
    "UnhandledError",
]


class SimulationError(Exception):
    """The base of the other errors."""


class DeadlockError(SimulationError):
    """No callback is ready and no timer is set. The text names the waiting tasks and their lines."""


class LimitError(SimulationError):
    """`limit_ms` of virtual time passed, or too many callbacks ran at one instant."""


class NondeterminismError(SimulationError):
    """Raised at the forbidden call, and again at the end if the code swallowed it."""


class UnhandledError(SimulationError):
    """Its cause is the first exception."""


class LeakError(SimulationError):
    """The text names everything that is left."""


class HostCrashedError(SimulationError):
    """Also raised by the runtime of a crashed host."""
