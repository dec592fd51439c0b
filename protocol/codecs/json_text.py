"""JSON as it is read here: UTF-8 without lone surrogates, nested DEPTH_MAX deep at most, whichever parser reads it."""

import json
import re
from itertools import accumulate
from typing import Any, Final

__all__ = ["DEPTH_MAX", "SHALLOW_BYTES", "is_too_deep", "loads_text", "too_deep"]

# Objects and lists in each other; each parser has a limit of its own near 1,000.
DEPTH_MAX: Final = 200
# A text of at most so many bytes cannot be too deep.
SHALLOW_BYTES: Final = 2 * DEPTH_MAX
# Likewise, without lists: {"":} has five.
_OBJECTS_BYTES: Final = 5 * DEPTH_MAX

_decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
# 255: -1, as a signed byte.
_STEPS: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))
# An object or a list with nothing in it.
_PAIR: Final = b"\x01\xff"
# A large body is wide, not deep.
_QUICK_LEVELS: Final = 4
_LIST: Final = ord("[")


def loads_text(data: bytes) -> Any:
    """Parse JSON in UTF-8. Raises ValueError, also for lone surrogates in escapes and for a text that is too deep."""
    try:
        value = _decode(data.decode())
    except RecursionError:
        raise too_deep() from None
    if is_too_deep(data):
        raise too_deep()
    if b"\\ud" in data or b"\\uD" in data:
        # It may be a lone surrogate.
        _encode(value).encode()
    return value


def too_deep() -> ValueError:
    return ValueError(f"nested deeper than {DEPTH_MAX} levels")


def is_too_deep(data: bytes) -> bool:
    """Whether a text that is JSON has more than DEPTH_MAX objects and lists in each other."""
    if len(data) <= _OBJECTS_BYTES and _LIST not in data:
        return False
    return _depth(data) > DEPTH_MAX and _depth(_STRING.sub(b"", data)) > DEPTH_MAX


def _depth(data: bytes) -> int:
    """The levels of all brackets, also of those in strings; _QUICK_LEVELS or more."""
    brackets = data.translate(_STEPS, _NO_BRACKETS)
    for _ in range(_QUICK_LEVELS):
        brackets = brackets.replace(_PAIR, b"")
    return _QUICK_LEVELS + max(accumulate(memoryview(brackets).cast("b")), default=0)
