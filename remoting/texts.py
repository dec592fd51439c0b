"""Texts that people read and write: numbers, times, near names; and JSON on one line."""

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["counted", "date_time", "duration_us", "json_line", "known_names", "seconds", "whole_number"]

_DIGITS_MAX = 18
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_ALL_NAMED_MAX: Final = 10
_NEAR_MAX: Final = 3
_UNITS_US: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}
_PART: Final = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?(ms|us|d|h|m|s)\s*")


def seconds(ms: int) -> str:
    """ "12.3 s", "4 min 05 s" """
    if abs(ms) < 120_000:
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(ms // 1000, 60)
    return f"{minutes} min {rest:02} s"


def duration_us(text: str) -> int:
    """Microseconds of "500ms", "1.5s", "1m30s" or "2d 1h". Raises ValueError with a sentence."""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError(f"{text!r} is no duration; write it as 500ms, 30s, 1m30s or 2h")
    total = 0
    for part in parts:
        whole, fraction, unit_us = part[1], part[2] or "", _UNITS_US[part[3]]
        total += int(whole) * unit_us + int(fraction or "0") * unit_us // 10 ** len(fraction)
    return total


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


def known_names(wrong: str, known: Collection[str], all_at: str = "", *, begin: str = "there are") -> str:
    """For an error about a wrong name: all that there are, if they are few, else the nearest, and what lists all.

    Args:
        all_at: such as "`lockstep-sim list`"; empty: nothing lists them.
        begin: in front of all names.
    """
    if len(known) <= _ALL_NAMED_MAX:
        return f"{begin} {', '.join(known) or 'none'}"
    from difflib import get_close_matches  # imported here: slow, and rarely needed

    by_small_letters = {name.lower(): name for name in known}
    near = [by_small_letters[one] for one in get_close_matches(wrong.lower(), by_small_letters, _NEAR_MAX)]
    said = [f"did you mean {' or '.join(near)}?"] if near else []
    if all_at:
        said.append(f"{all_at} lists all")
    return " ".join(said) or f"{begin} {len(known)}, such as {', '.join(list(known)[:_NEAR_MAX])}"


def json_line(value: Any) -> str:
    """JSON on one line. Control characters are escaped, so that no text moves the cursor of a terminal."""
    text = _encode(value)
    if text.isprintable():
        return text
    return "".join([letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text])


def whole_number(text: str) -> int | None:
    """A number of up to 18 digits; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None
