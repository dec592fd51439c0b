"""Reads times: epoch milliseconds, a date, or how long ago."""

from contextlib import suppress
from datetime import datetime

from lockstep.cli.output import UsageError
from lockstep.remoting.texts import duration_us

__all__ = ["TIMES", "duration_ms", "moment_ms"]

TIMES = "epoch milliseconds, a time such as 2026-01-31T12:00 or 2026-01-31T12:00:00Z, or '10m ago'"
_MOST_MS = 2**63 - 1


def moment_ms(text: str, option: str, now_ms: int, *, others: str = "") -> int:
    """Epoch milliseconds of a text. A date without a zone is local. Raises UsageError.

    Args:
        option: Name of the option, for the error.
        others: Other words that the option allows, for the error.
    """
    found = _read(text.strip(), now_ms)
    if found is None or not 0 <= found <= _MOST_MS:
        raise UsageError(f"{option} {text!r}: give {others}{TIMES}")
    return found


def duration_ms(text: str, option: str) -> int:
    """Milliseconds of a text such as 1m30s. Raises UsageError."""
    try:
        return duration_us(text) // 1000
    except ValueError:
        raise UsageError(f"{option} {text!r}: give a duration such as 500ms, 2s or 1m30s") from None


def _read(text: str, now_ms: int) -> int | None:
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit():
        return int(text[:20])  # a longer number is out of range anyway
    with suppress(ValueError):
        return now_ms - duration_us(text.removesuffix("ago")) // 1000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
