"""The wires between hosts: a link in each direction, and on it a pipe for each connection.

A link can be blocked by a partition or a hold. Data then waits, as TCP would send it again, until the link is free. A
pipe keeps its bytes in order and draws a latency for each write. By the seed some writes arrive in two parts; bytes
that arrive while a reader is busy are read together.
"""

import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Protocol

from lockstep.simulation.loop import VirtualLoop
from lockstep.simulation.options import SimulationOptions

__all__ = ["Ending", "Link", "Pipe", "Sink"]

_HEAD_BYTES = 12  # half of the splits fall into these: decoders fail at lengths and headers


class Ending(Enum):
    """How a direction ends."""

    EOF = "eof"
    RESET = "reset"


class Sink(Protocol):
    """The reading end of a pipe."""

    def on_bytes(self, data: bytes) -> None: ...
    def on_ending(self, ending: Ending) -> None: ...


class Link:
    """One direction between two hosts."""

    def __init__(self, loop: VirtualLoop, latency_ns: tuple[int, int]) -> None:
        self._loop = loop
        self.latency_ns = latency_ns
        self._partitioned = False
        self._held = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def blocked(self) -> bool:
        return self._partitioned or self._held

    def draw_ns(self, rng: random.Random) -> int:
        low, high = self.latency_ns
        return low + int((high - low) * rng.random())

    def pass_on(self, arrive: Callable[[], None]) -> None:
        """Data reached the end of the link: deliver it, or keep it until the link is free."""
        if self.blocked:
            self._waiting.append(arrive)
        else:
            arrive()

    def block(self, *, partitioned: bool | None = None, held: bool | None = None) -> None:
        """Set or clear the blocks that are given. A free link delivers the waiting data, in order."""
        self._partitioned = self._partitioned if partitioned is None else partitioned
        self._held = self._held if held is None else held
        if not self.blocked:
            waiting, self._waiting = self._waiting, []
            due_ns = self._loop.now_ns + self.latency_ns[1]
            for arrive in waiting:
                self._loop.call_at_ns(due_ns, self.pass_on, arrive, context=self._loop.ground)

    def send(self, arrive: Callable[[], None], rng: random.Random) -> None:
        due_ns = self._loop.now_ns + self.draw_ns(rng)
        self._loop.call_at_ns(due_ns, self.pass_on, arrive, context=self._loop.ground)


class Pipe:
    """One direction of a connection: the bytes between the writer's buffer and the reader."""

    def __init__(self, loop: VirtualLoop, link: Link, rng: random.Random, options: SimulationOptions) -> None:
        self._loop = loop
        self._link = link
        self._rng = rng
        self._split_ratio = options.split_percent / 100
        self._window_bytes = options.window_bytes
        self._unread_bytes = 0
        self._segments: deque[bytes | Ending] = deque()
        self._last_due_ns = 0
        self._arrive_later = partial(link.pass_on, self._arrive)
        self.sink: Sink | None = None

    @property
    def free_bytes(self) -> int:
        """How many bytes the pipe accepts now."""
        return self._window_bytes - self._unread_bytes

    def put(self, segment: bytes | Ending) -> None:
        if isinstance(segment, bytes):
            self._unread_bytes += len(segment)
        self._segments.append(segment)
        self._schedule(self._link.draw_ns(self._rng))

    def _schedule(self, latency_ns: int) -> None:
        due_ns = self._last_due_ns = max(self._last_due_ns, self._loop.now_ns + latency_ns)
        self._loop.call_at_ns(due_ns, self._arrive_later, context=self._loop.ground)

    def _arrive(self) -> None:
        """Deliver one segment, or its first part. This is called once for each segment."""
        if not self._segments or self.sink is None:
            return  # the connection was cut
        segment = self._segments.popleft()
        if isinstance(segment, Ending):
            self.sink.on_ending(segment)
            return
        if len(segment) > 1 and self._rng.random() < self._split_ratio:
            split = self._draw_split(len(segment))
            self._segments.appendleft(segment[split:])
            segment = segment[:split]
            self._loop.call_at_ns(
                self._loop.now_ns + self._link.draw_ns(self._rng), self._arrive_later, context=self._loop.ground
            )
        self.sink.on_bytes(segment)

    def _draw_split(self, size: int) -> int:
        limit = min(size, _HEAD_BYTES) if self._rng.random() < 0.5 else size
        return self._rng.randrange(1, limit) if limit > 1 else 1

    def read(self, size: int) -> None:
        """The reader has read `size` bytes."""
        self._unread_bytes -= size

    def cut(self) -> None:
        """Drop all bytes in flight."""
        self._segments.clear()
        self.sink = None
