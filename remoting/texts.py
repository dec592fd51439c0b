"""Numbers and times as a person reads them, and numbers that peers write as texts."""

from datetime import UTC, datetime

__all__ = ["counted", "date_time", "seconds", "whole_number"]

_DIGITS_MAX = 18


def seconds(ms: int) -> str:
    """ "12.3 s", "4 min 05 s" """
    if abs(ms) < 120_000:
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(ms // 1000, 60)
    return f"{minutes} min {rest:02} s"


def counted(count: int, noun: str) -> str:
    """ "1 queue", "2 queues" """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def date_time(epoch_ms: int) -> str:
    """Local time, as in "2026-11-21 05:00:00.123+01:00"; a dash for 0; the number itself where no year has it."""
    if not epoch_ms:
        return "-"
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"


def whole_number(text: str) -> int | None:
    """A number of up to 18 digits; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None
