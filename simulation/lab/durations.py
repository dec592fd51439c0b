"""Durations as people write them: "500ms", "30s", "1m30s", "2h"."""

import re
from typing import Final

__all__ = ["duration_ms", "duration_text", "duration_us"]

_US: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|us|h|m|s)")


def duration_us(text: str) -> int:
    """Microseconds. Raises ValueError with a sentence."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write it as 500ms, 30s, 1m30s or 2h")
    return round(sum(float(number) * _US[unit] for number, unit in parts))


def duration_ms(value: str | int) -> int:
    """Milliseconds, of a text or of a number of milliseconds. Raises ValueError with a sentence."""
    if isinstance(value, int):
        return value
    us = duration_us(value)
    if us % 1000:
        raise ValueError(f"{value!r} is no whole number of milliseconds")
    return us // 1000


def duration_text(ms: int) -> str:
    """ "500ms", "30s", "1m30s"; `duration_ms` reads it back."""
    minutes, rest = divmod(ms, 60_000)
    seconds, left = divmod(rest, 1000)
    text = (f"{minutes}m" if minutes else "") + (f"{seconds}s" if seconds else "") + (f"{left}ms" if left else "")
    return text or "0s"
