"""The trace of a run: one line an event, and a hash over all lines, by which runs are compared."""

import hashlib
from collections import deque
from collections.abc import Callable

__all__ = ["Trace"]


class Trace:
    """Lines `+seconds.nanoseconds  kind  text`, in the order of events."""

    def __init__(self, elapsed_ns: Callable[[], int], lines_max: int) -> None:
        self._elapsed_ns = elapsed_ns
        self._hash = hashlib.sha256()
        self._lines: deque[str] = deque(maxlen=lines_max)
        self.count = 0

    def add(self, kind: str, text: str) -> None:
        seconds, nanoseconds = divmod(self._elapsed_ns(), 1_000_000_000)
        line = f"+{seconds}.{nanoseconds:09d}  {kind:<10} {text}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._lines.append(line)
        self.count += 1

    @property
    def lines(self) -> list[str]:
        """The latest lines, as many as are kept."""
        return list(self._lines)

    @property
    def digest(self) -> str:
        """SHA-256 over all lines so far, in hex."""
        return self._hash.hexdigest()
