"""A slow processor: the callbacks of its host run one at a time, and each of them takes virtual time."""

from lockstep.simulation.machine.host import Host
from lockstep.simulation.virtual_time.loop import VirtualLoop
from lockstep.simulation.virtual_time.tasks import VirtualHandle

__all__ = ["SlowCpu"]


class SlowCpu:
    """Runs the callbacks of a host in the order in which the loop would have run them.

    The loop takes the host for one that does not run, and hands all its callbacks over. So hosts with a fast processor
    cost nothing. What a callback does is seen when it begins; the host is busy until it ends.
    """

    def __init__(self, loop: VirtualLoop, host: Host, callback_ns: int) -> None:
        self.callback_ns = callback_ns
        self._loop = loop
        self._host = host
        self._free_ns = 0
        self._timer: VirtualHandle | None = None

    def wake(self) -> None:
        """The host got callbacks, or runs again."""
        if self._timer is None and self._host.postponed:
            due_ns = max(self._loop.now_ns, self._free_ns)
            self._timer = self._loop.call_at_ns(due_ns, self._run_next, context=self._loop.ground)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_next(self) -> None:
        self._timer = None
        host = self._host
        while host.postponed and host.can_run and host.cpu is self:
            handle: VirtualHandle = host.postponed.popleft()
            if not handle.is_cancelled:
                self.keep_busy(self.callback_ns)
                try:
                    handle.context.run(handle.callback, *handle.args)
                finally:
                    if host.cpu is self:
                        self.wake()
                return

    def keep_busy(self, duration_ns: int) -> None:
        """The host does something else for so long."""
        self._free_ns = max(self._free_ns, self._loop.now_ns) + duration_ns
