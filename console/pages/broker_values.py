"""What a broker says of itself, for a reader: rates, times, sizes and durations, each with its unit."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from lockstep.console.formats import count, date_time, duration, megabytes
from lockstep.console.translations.choose import Texts

__all__ = ["uptime_ms", "value_text"]

_INTEGER: Final = re.compile(r"-?\d{1,18}")
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,40}([eE]-?\d{1,3})?)?")
_CAPACITY: Final = re.compile(r"Total : ([^,]+), Free : ([^,]+)\.")
_RUNTIME: Final = re.compile(r"(\d{1,9}) days?, (\d{1,9}) hours?, (\d{1,9}) minutes?, (\d{1,9}) seconds?")
_PART_MS: Final = (86_400_000, 3_600_000, 60_000, 1000)

# How the names of numbers begin or end, and how such a number is shown. RocketMQ's brokers have the same names.
_BEGINS: Final[Mapping[str, Callable[[float], str]]] = {
    "limitsMs.": lambda ms: date_time(int(ms)),
    # RocketMQ 5 has one of each folder too.
    "commitLogDiskRatio": lambda part: f"{part * 100:.1f} %",
    "putLatency": lambda ms: f"{count(ms)} ms",
}
_ENDS: Final[Mapping[str, Callable[[float], str]]] = {
    "stamp": lambda ms: date_time(max(int(ms), 0)),
    "timemills": duration,
    "timemax": duration,
    "ratio": lambda part: f"{part * 100:.1f} %",
    "averagesize": lambda size: f"{count(size)} B",
    "sizetotal": megabytes,
    "bytes": megabytes,
    "commitlogmaxoffset": lambda place: f"{count(place)} B",
    "commitlogminoffset": lambda place: f"{count(place)} B",
}


def value_text(name: str, value: str, texts: Texts) -> str:
    """A value of the runtime info; what is no number, or has no known unit, as the broker gave it."""
    if name == "runtime":
        return value if (passed_ms := uptime_ms(value)) is None else duration(passed_ms)
    if capacity := _CAPACITY.fullmatch(value):
        return texts("brokers.capacity", total=capacity[1], free=capacity[2])
    words = value.split()
    if name.endswith("Tps") and words and all(map(_NUMBER.fullmatch, words)):
        rates = ", ".join(count(float(word)) for word in words)
        return texts("brokers.rates" if len(words) == 3 else "brokers.rate", rates=rates)
    if not _NUMBER.fullmatch(value):
        return value
    number = int(value) if _INTEGER.fullmatch(value) else float(value)
    begins = (show for start, show in _BEGINS.items() if name.startswith(start))
    ends = (show for end, show in _ENDS.items() if name.lower().endswith(end))
    return next(begins, next(ends, count))(number)


def uptime_ms(text: str) -> int | None:
    """Of a text such as "[ 0 days, 1 hours, 2 minutes, 3 seconds ]"; None: it is no such text."""
    found = _RUNTIME.search(text)
    return None if found is None else sum(int(part) * ms for part, ms in zip(found.groups(), _PART_MS, strict=True))
