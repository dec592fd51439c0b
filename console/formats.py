"""Numbers, times and durations as pages show them; filters of the templates."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["FILTERS", "clock", "clock_ms", "count", "date_time", "duration", "megabytes"]

_DASH: Final = "\N{EN DASH}"
_DAY_S: Final = 86_400
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))


def count(value: float | None) -> str:
    """12345 -> "12,345"; with a fraction at most two places."""
    if value is None:
        return _DASH
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def duration(ms: float | None) -> str:
    """Two places of what a reader compares: "350 ms", "4.2 s", "3 min 5 s", "2 h 10 min"."""
    if ms is None:
        return _DASH
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    for unit_ms, name in _UNITS:
        if ms >= unit_ms:
            whole, rest_ms = divmod(int(ms), unit_ms)
            smaller_ms, smaller = {"d": (3_600_000, "h"), "h": (60_000, "min"), "min": (1000, "s")}[name]
            rest = rest_ms // smaller_ms
            return f"{whole} {name} {rest} {smaller}" if rest else f"{whole} {name}"
    raise AssertionError(ms)


def clock(at_ms: int | None) -> str:
    """Hours, minutes and seconds in UTC; the page says so once."""
    if not at_ms:
        return _DASH
    seconds = at_ms // 1000 % _DAY_S
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def clock_ms(at_ms: int | None) -> str:
    """As `clock`, to the millisecond: for what is compared with a log."""
    return f"{clock(at_ms)}.{at_ms % 1000:03}" if at_ms else _DASH


def date_time(at_ms: int | None) -> str:
    """To the millisecond, in UTC. A client can give any number: those beyond the calendar are shown as numbers."""
    if not at_ms:
        return _DASH
    try:
        return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") + f".{at_ms % 1000:03}"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def megabytes(size: float | None) -> str:
    if size is None:
        return _DASH
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} B"


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "count": count,
    "duration": duration,
    "clock": clock,
    "clock_ms": clock_ms,
    "date_time": date_time,
    "megabytes": megabytes,
}
