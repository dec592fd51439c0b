"""The wires between hosts: a link in each direction, and on it a pipe for each connection.

A link can be blocked by a partition or a hold. Data then waits, as TCP would send it again, until the link is free. A
pipe keeps its bytes in order and draws a latency for each write. By the seed some writes arrive in two parts; bytes
that arrive while a reader is busy are read together.

A link may have a bandwidth, and a NAT that forgets connections without traffic. What is written to a forgotten
connection is lost, until TCP gives up sending it again.
"""

import errno
import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol, cast

from lockstep.simulation.network.bandwidth import SendQueue
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.virtual_time.loop import VirtualLoop

__all__ = ["Ending", "Link", "Nat", "Pipe", "Sink"]

_HEAD_BYTES = 12  # half of the splits fall into these: decoders fail at lengths and headers
_PACKET_BYTES = 40  # what TCP and IP add to a write, and the size of a packet without data


class Ending(Enum):
    """How a direction ends."""

    EOF = "eof"
    RESET = "reset"


class Sink(Protocol):
    """An end of a connection: it writes to one pipe and reads from another."""

    def on_bytes(self, data: bytes) -> None: ...
    def on_ending(self, ending: Ending) -> None: ...
    def give_up(self, error: OSError) -> None: ...


class Nat(NamedTuple):
    """A NAT or firewall on the way, which forgets connections without traffic.

    Args:
        answers: It answers the next bytes with a reset to their sender; else it drops them.
        on_forgotten: Called with the pipe that wrote to a forgotten connection.
    """

    idle_ns: int
    answers: bool
    on_forgotten: Callable[["Pipe"], None]


class Link:
    """One direction between two hosts."""

    def __init__(self, loop: VirtualLoop, latency_ns: tuple[int, int]) -> None:
        self._loop = loop
        self.latency_ns = latency_ns
        self._partitioned = False
        self._held = False
        self.blocked = False
        self._waiting: list[Callable[[], None]] = []
        self.queue: SendQueue | None = None
        self.nat: Nat | None = None
        self.shaped = False  # it has a queue or a NAT; pipes look only at this

    def set_bandwidth(self, bytes_per_s: int | None) -> None:
        """None: without a limit."""
        if bytes_per_s is None:
            if self.queue is not None:
                self.queue.flush()
            self.queue = None
        elif self.queue is None:
            self.queue = SendQueue(self._loop, bytes_per_s)
        else:
            self.queue.set_rate(bytes_per_s)
        self._note_shape()

    def set_nat(self, nat: Nat | None) -> None:
        self.nat = nat
        self._note_shape()

    def _note_shape(self) -> None:
        self.shaped = self.queue is not None or self.nat is not None

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
        self.blocked = self._partitioned or self._held
        if not self.blocked:
            waiting, self._waiting = self._waiting, []
            due_ns = self._loop.now_ns + self.latency_ns[1]
            for arrive in waiting:
                self._loop.call_at_ns(due_ns, self.pass_on, arrive, context=self._loop.ground)

    def send(self, arrive: Callable[[], None], rng: random.Random) -> None:
        """Send a packet that is no part of a connection."""
        latency_ns = self.draw_ns(rng)
        if self.queue is None:
            self._send_now(latency_ns, arrive)
        else:
            self.queue.put(_PACKET_BYTES, partial(self._send_now, latency_ns, arrive))

    def _send_now(self, latency_ns: int, arrive: Callable[[], None]) -> None:
        due_ns = self._loop.now_ns + latency_ns
        self._loop.call_at_ns(due_ns, self.pass_on, arrive, context=self._loop.ground)


class Pipe:
    """One direction of a connection: the bytes between the writer's buffer and the reader.

    `twin` is the other direction, `source` and `sink` are the ends; no sink: what is written is lost. The reader lowers
    `unread_bytes`.
    """

    def __init__(self, loop: VirtualLoop, link: Link, rng: random.Random, options: SimulationOptions) -> None:
        self._loop = loop
        self._link = link
        self._rng = rng
        self._split_ratio = options.split_percent / 100
        self._window_bytes = options.window_bytes
        self.unread_bytes = 0
        self._segments: deque[bytes | Ending] = deque()
        self._arrive_at = loop.call_often(self._arrive)
        self.last_due_ns = loop.now_ns
        self._retransmit_ns = options.retransmit_ms * 1_000_000
        self.twin: Pipe
        self.source: Sink
        self.sink: Sink | None = None
        self.unanswered = False  # bytes were written that nobody will acknowledge

    @property
    def free_bytes(self) -> int:
        """How many bytes the pipe accepts now."""
        return self._window_bytes - self.unread_bytes

    def put(self, segment: bytes | Ending) -> None:
        if isinstance(segment, bytes):
            self.unread_bytes += len(segment)
        if self.sink is None:
            self.never_acknowledged()
            return
        link = self._link
        if link.shaped and not self._passes(segment):
            return
        low, high = link.latency_ns
        latency_ns = low + int((high - low) * self._rng.random())  # as `draw_ns`
        queue, now_ns, segments = link.queue, self._loop.now_ns, self._segments
        # Bytes that arrive with those before them are one segment: writes that follow closely cost one callback.
        together = queue is None and now_ns + latency_ns <= self.last_due_ns > now_ns
        if together and isinstance(segment, bytes) and isinstance(last := segments[-1], bytes):
            segments[-1] = last + segment
            return
        segments.append(segment)
        if queue is None:
            self._schedule(latency_ns)
        else:
            size_bytes = len(segment) if isinstance(segment, bytes) else 0
            queue.put(size_bytes + _PACKET_BYTES, partial(self._schedule, latency_ns))

    def _passes(self, segment: bytes | Ending) -> bool:
        """Whether the NAT of the link still knows the connection. If not, it is lost for both ends."""
        nat = self._link.nat
        idle_ns = self._loop.now_ns - max(self.last_due_ns, self.twin.last_due_ns)
        if nat is None or idle_ns < nat.idle_ns:
            return True
        nat.on_forgotten(self)
        self.cut()
        self.twin.cut()
        if nat.answers:
            due_ns = self._loop.now_ns + self._link.draw_ns(self._rng)
            self._loop.call_at_ns(due_ns, self.source.on_ending, Ending.RESET, context=self._loop.ground)
        else:
            self.never_acknowledged()
        return False

    def never_acknowledged(self) -> None:
        """The other end will not answer what was written: TCP sends it again for some minutes, then it gives up."""
        if not self.unanswered:
            self.unanswered = True
            due_ns = self._loop.now_ns + self._retransmit_ns
            error = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            self._loop.call_at_ns(due_ns, self.source.give_up, error, context=self._loop.ground)

    def _schedule(self, latency_ns: int) -> None:
        due_ns = self._loop.now_ns + latency_ns
        if due_ns < self.last_due_ns:
            due_ns = self.last_due_ns
        self.last_due_ns = due_ns
        self._arrive_at(due_ns)

    def _arrive(self) -> None:
        """Deliver one segment, or its first part. This is called once for each segment."""
        if self._link.blocked:
            self._link.pass_on(self._arrive)
            return
        sink, segments = self.sink, self._segments
        if not segments or sink is None:
            return  # the connection was cut
        segment = segments.popleft()
        if type(segment) is not bytes:
            sink.on_ending(cast("Ending", segment))
            return
        if len(segment) > 1 and self._rng.random() < self._split_ratio:
            split = self._draw_split(len(segment))
            segments.appendleft(segment[split:])
            segment = segment[:split]
            self._arrive_at(self._loop.now_ns + self._link.draw_ns(self._rng))
        sink.on_bytes(segment)

    def _draw_split(self, size: int) -> int:
        limit = min(size, _HEAD_BYTES) if self._rng.random() < 0.5 else size
        return self._rng.randrange(1, limit) if limit > 1 else 1

    def cut(self) -> None:
        """Drop all bytes in flight, and those to come."""
        self._segments.clear()
        self.sink = None
