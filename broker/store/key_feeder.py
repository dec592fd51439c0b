"""Enters keys into the index while the broker runs, in pieces so small that nobody waits for long."""

from typing import Final

from lockstep.broker.store.file import FileStore
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime, TimerHandle

__all__ = ["KeyFeeder"]

_AT_ONCE_IDLE: Final = 1000  # messages: about 10 ms of work
_AT_ONCE_BUSY: Final = 100
_PAUSE_MS: Final = 20  # between two pieces


class KeyFeeder:
    """A broker that is sent something all the time gives the index about a twentieth of its time, an idle one half.

    It looks every `interval_ms` whether there is something to enter.
    """

    def __init__(self, runtime: Runtime, store: FileStore, interval_ms: int, events: EventLog) -> None:
        self._runtime = runtime
        self._store = store
        self._interval_ms = interval_ms
        self._events = events
        self._timer: TimerHandle | None = None
        self._seen_end = 0
        self._failing = False

    def start(self) -> None:
        """Call on the loop."""
        self._arm(more=False)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, *, more: bool) -> None:
        wait_ms = min(_PAUSE_MS, self._interval_ms) if more else self._interval_ms
        self._timer = self._runtime.call_later_ms(wait_ms, self._tick)

    def _tick(self) -> None:
        end = self._store.visible_end
        is_idle, self._seen_end = end == self._seen_end, end
        self._arm(more=self._enter(end, _AT_ONCE_IDLE if is_idle else _AT_ONCE_BUSY))

    def enter_all(self) -> None:
        """So that Apache's broker finds them too."""
        while self._enter(self._store.visible_end, _AT_ONCE_IDLE):
            pass

    def _enter(self, end: int, count_max: int) -> bool:
        """Are more left, that can be entered now?"""
        if self._store.refusal:
            return False
        try:
            more = self._store.keys.catch_up(end, count_max)
        except OSError as error:
            if not self._failing:
                event = "keys cannot be written; the newest are looked for in the log"
                self._events.error(event, reason=str(error))
            self._failing = True
            return False
        self._failing = False
        return more
