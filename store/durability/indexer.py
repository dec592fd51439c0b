"""Adds keys to the index while the broker runs, in small pieces so that requests do not wait for long."""

from typing import Final

from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.store.file.store import FileStore

__all__ = ["KeyIndexer"]

# Messages, at most: about 10 ms of work on a quiet machine.
_AT_ONCE_IDLE: Final = 1000
_AT_ONCE_BUSY: Final = 100
_AT_ONCE_MIN: Final = 10
# So long may a request wait for a piece.
_PIECE_IDLE_NS: Final = 10_000_000
_PIECE_BUSY_NS: Final = 2_000_000
_PAUSE_MS: Final = 20  # between two pieces, and at least ...
_PAUSE_TIMES: Final = 19  # ... so many times the duration of a busy broker's last piece
# On a busy machine a client may pause without being idle.
_IDLE_AFTER_MS: Final = 200
_NS_PER_MS: Final = 1_000_000


class KeyIndexer:
    """Gives the index a twentieth of the time of a broker that serves requests, and a third of an idle one's.

    The number of messages of a piece follows the time that they took before: with many keys, or on a shared machine,
    one takes several times as long. Without work it looks every `interval_ms`.
    """

    def __init__(self, runtime: Runtime, store: FileStore, interval_ms: int) -> None:
        self._runtime = runtime
        self._store = store
        self._interval_ms = interval_ms
        self._events = store.events
        self._timer: TimerHandle | None = None
        self._seen_end = 0
        self._was_asked = False  # since the last piece
        self._busy_ns = 0  # when growth or a request was last seen
        self._message_ns = 0  # what a message took in the last full piece
        self._failing = False

    def start(self) -> None:
        """Call on the loop."""
        self._arm(self._interval_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, wait_ms: int) -> None:
        self._timer = self._runtime.call_later_ms(wait_ms, self._tick)

    def asked(self) -> None:
        """A request came: the broker is not idle."""
        self._was_asked = True

    def _tick(self) -> None:
        end, began_ns = self._store.visible_end, self._runtime.monotonic_ns()
        if self._was_asked or end != self._seen_end:
            self._was_asked, self._seen_end, self._busy_ns = False, end, began_ns
        is_idle = began_ns - self._busy_ns >= _IDLE_AFTER_MS * _NS_PER_MS
        count = self._at_once(is_idle)
        more = self._enter(end, count)
        took_ns = self._runtime.monotonic_ns() - began_ns
        if more:
            self._message_ns = took_ns // count
        pause_ms = _PAUSE_MS if is_idle else max(_PAUSE_MS, -(-_PAUSE_TIMES * took_ns // _NS_PER_MS))
        self._arm(min(pause_ms, self._interval_ms) if more else self._interval_ms)

    def _at_once(self, is_idle: bool) -> int:
        """How many messages to enter now."""
        most, piece_ns = (_AT_ONCE_IDLE, _PIECE_IDLE_NS) if is_idle else (_AT_ONCE_BUSY, _PIECE_BUSY_NS)
        return max(_AT_ONCE_MIN, min(most, piece_ns // max(self._message_ns, 1)))

    def enter_all(self) -> None:
        """Index everything at the shutdown, so that Apache's broker finds it too."""
        while self._enter(self._store.visible_end, _AT_ONCE_IDLE):
            pass

    def _enter(self, end: int, count_max: int) -> bool:
        """Returns whether more messages can be indexed now."""
        if self._store.refusal:
            return False
        try:
            more = self._store.keys.catch_up(end, count_max)
        except OSError as error:
            if not self._failing:
                event = "index_write_failed"
                self._events.error(event, reason=str(error))
            self._failing = True
            return False
        self._failing = False
        return more
