"""The order of what happens at once, drawn from the seed.

Like PCT (probabilistic concurrency testing): each host has a priority, and the one with the highest runs until it has
nothing more to do at this instant; at a few random points the running host gets the lowest priority. So a seed finds an
order that needs few exchanges, however many callbacks there are. Timers that one host set for the same nanosecond, and
reads of its different connections, change places too. What asyncio promises stays: the order of call_soon on a host,
that of timers of different times, and the bytes of a connection.
"""

import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from lockstep.simulation.network.transport import Endpoint
from lockstep.simulation.virtual_time.tasks import VirtualHandle

__all__ = ["Shuffle"]

_CHANGE_AFTER = (3, 30, 300)  # the mean of how many choices lie between two changes of priority, drawn once


class Shuffle:
    """Chooses for the loop what runs next.

    Args:
        grain_ns: what is due within so long is seen at the end of it, as an event loop that polls sees it.
        on_change: called with the name of the host that gets the lowest priority; "" is the network and the scenario.
    """

    def __init__(self, rng: random.Random, grain_ns: int, on_change: Callable[[str], object]) -> None:
        self._rng = rng
        self._grain_ns = grain_ns
        self._on_change = on_change
        self._priorities: dict[str, float] = {}
        self._lowest = 0
        self._mean = rng.choice(_CHANGE_AFTER)
        self._left = self._draw()

    def _draw(self) -> int:
        return 1 + int(self._rng.expovariate(1 / self._mean))

    def next_ns(self, when_ns: int) -> int:
        """The time at which the loop looks at its timers when the first one is due at `when_ns`."""
        return -(-when_ns // self._grain_ns) * self._grain_ns

    def turn(self, ready: deque[VirtualHandle], first_timer: int) -> deque[VirtualHandle]:
        """Take what runs now out of `ready`: all callbacks of one host.

        Args:
            ready: the callbacks of all hosts.
            first_timer: the place of the first timer that became due just now.

        Returns:
            The callbacks in their order; `ready` itself if it has only one.
        """
        if len(ready) == 1:  # as nearly always; only its host may need a priority
            self._choose([_name_of(ready[0])])
            return ready
        handles = list(ready)
        handles[first_timer:] = self._exchanged(handles[first_timer:], lambda handle: handle.when_ns)
        names = {_name_of(handle): None for handle in handles}
        chosen = self._choose(list(names)) if handles else ""
        of_chosen, others = list[VirtualHandle](), list[VirtualHandle]()
        for handle in handles:
            (of_chosen if _name_of(handle) == chosen else others).append(handle)
        ready.clear()
        ready.extend(others)
        return deque(self._exchanged(of_chosen, _read_of))

    def _choose(self, names: Sequence[str]) -> str:
        for name in names:
            if name not in self._priorities:
                self._priorities[name] = self._rng.random()
        chosen = max(names, key=self._priorities.__getitem__)
        if len(names) > 1:
            self._left -= 1
            if self._left == 0:
                self._left, self._lowest = self._draw(), self._lowest - 1
                self._priorities[chosen] = self._lowest
                self._on_change(chosen)
                return max(names, key=self._priorities.__getitem__)
        return chosen

    def _exchanged(
        self, handles: list[VirtualHandle], alike: Callable[[VirtualHandle], Hashable | None]
    ) -> list[VirtualHandle]:
        """The handles; those of a host for which `alike` is equal, and not None, have exchanged their places."""
        if len(handles) < 2:
            return handles
        places: dict[tuple[object, Hashable], list[int]] = {}
        for place, handle in enumerate(handles):
            if (key := alike(handle)) is not None:
                places.setdefault((handle.host, key), []).append(place)
        for group in places.values():
            if len(group) > 1:
                moved = [handles[place] for place in group]
                self._rng.shuffle(moved)
                for place, handle in zip(group, moved, strict=True):
                    handles[place] = handle
        return handles


def _name_of(handle: VirtualHandle) -> str:
    return handle.host.name if handle.host is not None else ""


def _read_of(handle: VirtualHandle) -> Hashable | None:
    return "read" if getattr(handle.callback, "__func__", None) is Endpoint.on_readable else None
