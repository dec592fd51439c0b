"""How much of a fault: how it is written, and between which bounds a swarm draws it."""

import random
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.simulation.lab.durations import duration_ms, duration_text, duration_us

__all__ = ["Amount", "bytes_per_s", "key_number", "microseconds", "milliseconds", "ppm", "signed_milliseconds"]

_PPM: Final = {"%": 10_000, "ppm": 1}
_BYTES: Final = {"B/s": 1, "kB/s": 1000, "MB/s": 1_000_000}


class Amount(NamedTuple):
    """Args:
    unit: of the number, for people.
    read: raises ValueError with a sentence.
    text: `read` reads it back.
    low, high: what a swarm draws.
    """

    unit: str
    read: Callable[[str], int]
    text: Callable[[int], str]
    low: int
    high: int

    def draw(self, rng: random.Random) -> int:
        """Not 0."""
        return rng.randrange(self.low, self.high) or self.high


def microseconds(low: int, high: int) -> Amount:
    return Amount("us", duration_us, _us_text, low, high)


def _us_text(us: int) -> str:
    return f"{us}us" if us % 1000 else duration_text(us // 1000)


def milliseconds(low: int, high: int) -> Amount:
    return Amount("ms", _more_than_0_ms, duration_text, low, high)


def _more_than_0_ms(text: str) -> int:
    if not (ms := duration_ms(text)):
        raise ValueError(f"{text!r} is no amount: it is more than 0")
    return ms


def signed_milliseconds(low: int, high: int) -> Amount:
    return Amount("ms", _signed_ms, lambda ms: f"{'-' if ms < 0 else ''}{duration_text(abs(ms))}", low, high)


def _signed_ms(text: str) -> int:
    return -duration_ms(text[1:]) if text.startswith("-") else duration_ms(text.removeprefix("+"))


def ppm(low: int, high: int) -> Amount:
    return Amount("ppm", _read_ppm, lambda number: f"{number}ppm", low, high)


def _read_ppm(text: str) -> int:
    number = _number(text, _PPM, r"[+-]?", "500ppm, 2% or -2%")
    if abs(number) > 500_000:
        raise ValueError(f"{text!r} is too much: a clock drifts by at most 50%")
    return number


def bytes_per_s(low: int, high: int) -> Amount:
    return Amount("bytes/s", _read_bytes, lambda number: f"{number}B/s", low, high)


def key_number(high: int) -> Amount:
    """The number of a sharding key, and 1: 0 is no amount."""
    return Amount("key", _read_key, lambda number: f"key{number - 1}", 1, high)


def _read_key(text: str) -> int:
    match = re.fullmatch(r"key(\d{1,9})", text)
    if match is None:
        raise ValueError(f"{text!r} is no key of the story; write it as key0, key1, ...")
    return int(match[1]) + 1


def _read_bytes(text: str) -> int:
    return _number(text, _BYTES, "", "500B/s, 20kB/s or 1MB/s")


def _number(text: str, units: dict[str, int], sign: str, examples: str) -> int:
    match = re.fullmatch(rf"({sign}\d+(?:\.\d+)?)({'|'.join(map(re.escape, units))})", text)
    number = round(float(match[1]) * units[match[2]]) if match else 0
    if not number:
        raise ValueError(f"{text!r} is no amount; write it as {examples}")
    return number
