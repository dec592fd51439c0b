"""The faults that last now: each until its time, until it is ended by another one, or until all is healed."""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lockstep.simulation.lab.setup import FaultEvent

__all__ = ["Lasting", "Span"]


class Span:
    """A fault while it lasts.

    Args:
        of_process: it is over when the process of its host ends.
    """

    def __init__(self, event: FaultEvent, *, of_process: bool) -> None:
        self.event = event
        self.of_process = of_process
        self.ended = False
        self._waiter: Future[None] | None = None

    def end(self) -> None:
        self.ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def sleep_ms(self, duration_ms: int) -> None:
        """Until its end, at most so long; 0: until its end."""
        if self.ended:
            return
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(duration_ms / 1000, _wake, waiter) if duration_ms else None
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()


def _wake(waiter: "Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class Lasting:
    """All of them, the oldest first. After `heal` none lasts that has no duration."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._is_healed = False

    @property
    def now(self) -> tuple[FaultEvent, ...]:
        return tuple(span.event for span in self._spans if not span.ended)

    @contextmanager
    def during(self, event: FaultEvent, *, of_process: bool = False) -> Iterator[Span]:
        """Of a fault with a duration, or of one that lasts until it is ended."""
        span = Span(event, of_process=of_process)
        span.ended = self._is_healed and not event.duration_ms
        self._spans.append(span)
        try:
            yield span
        finally:
            self._spans.remove(span)

    async def until_over(self, event: FaultEvent, *, of_process: bool = False) -> None:
        """Wait for the end of a fault."""
        with self.during(event, of_process=of_process) as span:
            await span.sleep_ms(event.duration_ms)

    def end(self, which: Callable[[FaultEvent], bool]) -> None:
        """End faults before their time."""
        for span in self._spans:
            if which(span.event):
                span.end()

    def process_ended(self, name: str) -> None:
        """What has a duration is told with it all the same."""
        for span in self._spans:
            if span.of_process and span.event.target == name and not span.event.duration_ms:
                span.end()

    def heal(self) -> None:
        self._is_healed = True
        self.end(lambda event: not event.duration_ms)
