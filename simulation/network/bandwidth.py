"""A link with a bandwidth: what is sent waits until everything before it has left."""

from collections import deque
from collections.abc import Callable

from lockstep.simulation.virtual_time.loop import VirtualLoop
from lockstep.simulation.virtual_time.tasks import VirtualHandle

__all__ = ["SendQueue"]

_PER_S = 1_000_000_000


class SendQueue:
    """Sends one item after the other. All connections of a link share it, in the order of their writes."""

    def __init__(self, loop: VirtualLoop, bytes_per_s: int) -> None:
        self._loop = loop
        self.bytes_per_s = bytes_per_s
        self._items: deque[tuple[int, Callable[[], None]]] = deque()
        self._left = 0  # of the first item: bytes times _PER_S, so that no part of a byte is lost
        self._since_ns = 0
        self._timer: VirtualHandle | None = None

    def put(self, size_bytes: int, sent: Callable[[], None]) -> None:
        """`sent` is called when the last byte has left."""
        self._items.append((size_bytes, sent))
        if self._timer is None:
            self._begin()

    def _begin(self) -> None:
        self._left = self._items[0][0] * _PER_S
        self._set_timer()

    def _set_timer(self) -> None:
        self._since_ns = self._loop.now_ns
        due_ns = self._since_ns + -(-self._left // self.bytes_per_s)
        self._timer = self._loop.call_at_ns(due_ns, self._first_sent, context=self._loop.ground)

    def _first_sent(self) -> None:
        self._timer = None
        _, sent = self._items.popleft()
        sent()
        if self._items:
            self._begin()

    def set_rate(self, bytes_per_s: int) -> None:
        """Change the bandwidth, also for the rest of what is being sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._left = max(0, self._left - (self._loop.now_ns - self._since_ns) * self.bytes_per_s)
        self.bytes_per_s = bytes_per_s
        if self._timer is not None:
            self._set_timer()

    def flush(self) -> None:
        """The link has no bandwidth any more: everything leaves at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._items:
            self._items.popleft()[1]()
