"""The delay of each level: RocketMQ's setting messageDelayLevel (wire.md 10.2)."""

from typing import Final

__all__ = ["DELAY_LEVELS", "parse_delay_levels"]

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Read "1s 5s 1m" as milliseconds, level 1 first. Raises ValueError that says what is allowed."""
    levels_ms = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        if unit not in _UNITS_MS or not (number.isascii() and number.isdecimal()):
            raise ValueError(f"{word!r} is not a delay; write numbers with s, m, h or d, for example '1s 5s 1m'")
        levels_ms.append(int(number) * _UNITS_MS[unit])
    if not levels_ms:
        raise ValueError("at least one delay is needed, for example '1s 5s 1m'")
    return tuple(levels_ms)
