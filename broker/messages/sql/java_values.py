"""Properties are texts. In a comparison with a number or a truth value they are read as Java reads them."""

import math
import re
from typing import Final

from lockstep.broker.messages.sql.errors import NoAnswer

__all__ = ["LONG_MAX", "Value", "are_equal", "as_double", "as_whole", "order"]

Value = bool | int | float | str

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
# Our limit; Python's own is 4300.
_DIGITS_MAX: Final = 1000
_TRIMMED: Final = "".join(map(chr, range(33)))
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_DOUBLE: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")


def as_whole(text: str, beside: int) -> int:
    """A text compared with a whole number, as Java's Integer.valueOf or Long.valueOf. Raises NoAnswer.

    If `beside` fits into 32 bits, RocketMQ reads the text with 32 bits too.
    """
    if not _WHOLE.fullmatch(text) or len(text) > _DIGITS_MAX:
        raise NoAnswer
    number = int(text)
    largest = INT_MAX if -INT_MAX <= beside <= INT_MAX else LONG_MAX
    if not -largest - 1 <= number <= largest:
        raise NoAnswer
    return number


def as_double(text: str) -> float:
    """Java's Double.valueOf, which allows spaces around a number and a type suffix. Raises NoAnswer."""
    text = text.strip(_TRIMMED)
    if hexadecimal := _HEX_DOUBLE.fullmatch(text):
        return _hex_double(hexadecimal[1])
    if not _DOUBLE.fullmatch(text):
        raise NoAnswer
    return float(text if text.endswith(("N", "y")) else text.rstrip("fFdD"))


def _hex_double(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def are_equal(left: Value, right: Value) -> bool:
    """Whether values are equal. A text beside a number or a truth value is read as one. Raises NoAnswer."""
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool):
        if isinstance(right, str):
            # A text is read as a truth value only on the left.
            raise NoAnswer
        return isinstance(right, bool) and left == right
    if isinstance(right, bool):
        return isinstance(left, str) and (left.lower() == "true") == right
    return order(left, right) == 0


def order(left: Value, right: Value) -> int:
    """Negative, 0 or positive as `left` is below, equal to or above `right`, both as numbers. Raises NoAnswer."""
    if isinstance(left, str):
        left = as_whole(left, right) if isinstance(right, int) else as_double(left)
    if isinstance(right, str):
        right = as_whole(right, left) if isinstance(left, int) else as_double(right)
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    low, high = _total(float(left)), _total(float(right))
    return (low > high) - (low < high)


def _total(number: float) -> tuple[float, float]:
    """A key for Java's order of doubles: -0.0 is below 0.0; NaN equals itself and is above all others."""
    return (math.inf, 1.0) if math.isnan(number) else (number, math.copysign(0.5, number))
