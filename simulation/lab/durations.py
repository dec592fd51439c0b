"""Durations as people write them: "500ms", "30s", "1m30s", "2h"."""

from lockstep.remoting.texts import duration_us

__all__ = ["duration_ms", "duration_text", "duration_us", "duration_words"]


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


def duration_words(ms: float) -> str:
    """As people say it: "350 ms", "4.2 s"."""
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"
