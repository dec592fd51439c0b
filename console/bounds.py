"""What the console keeps of brokers' answers is bounded: a broker may answer with lists without end."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog

__all__ = [
    "LOOK_BYTES_MAX",
    "MESSAGE_BYTES_MAX",
    "NAMES_BYTES_MAX",
    "PAGE_BYTES_MAX",
    "READ_BYTES_MAX",
    "TEXT_MAX",
    "LimitMet",
    "Limits",
    "size_of",
]

LOOK_BYTES_MAX: Final = 32 * 1024 * 1024  # answers to one look at a broker; 10,000 locks have 4 MB in JSON
READ_BYTES_MAX: Final = 16 * 1024 * 1024  # answers about one group; 10,000 queues have 2 MB, and 5 MB of running info
NAMES_BYTES_MAX: Final = 64 * 1024 * 1024  # of memory: the names of topics of all groups together
PAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # answers to what one page asks
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # bodies of the messages that a page looks through
TEXT_MAX: Final = 512  # characters of a name; RocketMQ allows 255, and our brokers 512 for client ids
_SHOWN_MS: Final = 900_000


class LimitMet(NamedTuple):
    """A limit that was met. `name` is a key of texts, "limit.NAME"; `peer` met it."""

    name: str
    maximum: int
    peer: str
    at_ms: int


class Limits:
    """The limits that were met in the last 15 minutes. Each is logged once a minute, as `limit_met`."""

    def __init__(self, log: EventLog) -> None:
        self._log = LimitLog(log)
        self._met: dict[str, LimitMet] = {}

    def met(self, name: str, maximum: int, now_ms: int, peer: str = "") -> None:
        """Note a limit.

        Args:
            name: One of few: they are kept.
            maximum: What is allowed.
            now_ms: Epoch ms.
            peer: Who met it; the first 512 characters are kept.
        """
        self._met[name] = LimitMet(name, maximum, peer[:TEXT_MAX], now_ms)
        self._log.met(f"console.{name}", maximum, now_ms, peer[:TEXT_MAX])

    def recent(self, now_ms: int) -> list[LimitMet]:
        """Return those of the last 15 minutes, by name."""
        return [self._met[name] for name in sorted(self._met) if now_ms - self._met[name].at_ms < _SHOWN_MS]


def size_of(value: Any, most: int) -> int:
    """Return the bytes of memory of a value: texts, numbers, mappings and sequences, and what is in them.

    Args:
        most: The count ends when it is above this.
    """
    total, waiting = 0, [value]
    while waiting and total <= most:
        one = waiting.pop()
        total += sys.getsizeof(one)
        if isinstance(one, Mapping):
            waiting += one
            waiting += one.values()
        elif isinstance(one, Iterable) and not isinstance(one, str | bytes):
            waiting += one
    return total
