"""What a simulation fails with.

SimulationError
  DeadlockError        nothing can ever happen again, and the scenario is not done
  LimitError           virtual time, or the steps at one instant, ran out
  EscapeError          code went around the Runtime: real time, chance, threads, network, disk
  UnhandledError       a callback or a task failed and nobody looked
  LeakError            the scenario ended and left tasks, connections or listeners behind
  HostCrashedError     what was awaited ran on a host that has crashed
"""

__all__ = [
    "DeadlockError",
    "EscapeError",
    "HostCrashedError",
    "LeakError",
    "LimitError",
    "SimulationError",
    "UnhandledError",
]


class SimulationError(Exception):
    """The base of all below."""


class DeadlockError(SimulationError):
    """No callback is ready and no timer is set; names the tasks that wait, and where."""


class LimitError(SimulationError):
    """`limit_ms` of virtual time passed, or too many callbacks ran without time moving."""


class EscapeError(SimulationError):
    """Raised where the escape happens, and again at the end should the code have swallowed it."""


class UnhandledError(SimulationError):
    """Its cause is the first such exception."""


class LeakError(SimulationError):
    """Names all that was left."""


class HostCrashedError(SimulationError):
    """Also what a crashed host's runtime raises when it is used again."""
