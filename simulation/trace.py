"""The trace of a run: one line an event, and a hash over all lines, by which runs are compared."""

import hashlib
from collections import deque
from typing import Any, Final, Protocol

import msgpack

__all__ = ["Event", "Trace", "line_of"]


_UNHASHED_MAX: Final = 1000  # the hash takes so many events at once, which costs a third of one at a time
_pack: Final = msgpack.Packer(unicode_errors="surrogatepass").pack  # each event by itself; a third of what repr costs
Event = tuple[Any, ...]  # ns since the start, its kind, its facts: texts and numbers


class _Clock(Protocol):
    now_ns: int


class Trace:
    """Events in their order. `lines` shows them as `+seconds.nanoseconds  kind  text`."""

    def __init__(self, clock: _Clock, lines_max: int) -> None:
        self._clock = clock
        self._start_ns = clock.now_ns
        self._hash = hashlib.sha256()
        self._kept: deque[Event] = deque(maxlen=lines_max)
        self._unhashed: list[Event] = []

    def add(self, kind: str, *facts: str | int) -> None:
        event = (self._clock.now_ns - self._start_ns, kind, *facts)
        self._kept.append(event)
        unhashed = self._unhashed
        unhashed.append(event)
        if len(unhashed) == _UNHASHED_MAX:
            self._hash_events()

    def _hash_events(self) -> None:
        self._hash.update(b"".join(map(_pack, self._unhashed)))
        self._unhashed.clear()

    @property
    def events(self) -> tuple[Event, ...]:
        """The latest events, as many as are kept."""
        return tuple(self._kept)

    @property
    def last(self) -> Event | None:
        """The latest event, if one is kept."""
        return self._kept[-1] if self._kept else None

    @property
    def lines(self) -> list[str]:
        """The events that are kept, as lines."""
        return [line_of(event) for event in self._kept]

    @property
    def digest(self) -> str:
        """SHA-256 over all events so far, in hex."""
        self._hash_events()
        return self._hash.hexdigest()


def line_of(event: Event) -> str:
    """An event as a line for people."""
    elapsed_ns, kind, *facts = event
    seconds, nanoseconds = divmod(elapsed_ns, 1_000_000_000)
    return f"+{seconds}.{nanoseconds:09d}  {kind:<10} {' '.join(map(str, facts))}"
