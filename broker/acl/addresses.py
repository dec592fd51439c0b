"""Patterns of peer addresses, as in plain_acl.yml: `*`, `10.0.0.1`, `10.0.1-9.*`, `10.0.0.{1,2}`, lists, IPv6.

Each part of a pattern is compared. RocketMQ compares only the parts up to the first `*` or range; so a pattern of ours
never admits an address that its reader would not expect.
"""

import ipaddress
from collections.abc import Callable
from typing import Final

from lockstep.broker.acl.errors import RuleError

__all__ = ["AddressPattern", "address_pattern"]

AddressPattern = Callable[[str], bool]
_Range = tuple[int, int]

_ALL: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_V4: Final = (4, 10, 255)  # parts, base, the highest value of a part
_V6: Final = (8, 16, 0xFFFF)


def address_pattern(text: str | None) -> AddressPattern:
    """A function that says whether an address fits the pattern. An empty pattern fits none. Raises RuleError."""
    text = (text or "").strip()
    if not text:
        return _none
    if text in _ALL:
        return _any
    if text.endswith("}"):
        head, _, inside = text[:-1].partition("{")
        if not head.endswith((".", ":")) or "{" in inside:
            raise RuleError(f"MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress {text}")
        singles = [head + part.strip() for part in inside.split(",") if part.strip()]
    elif "," in text:
        singles = [part.strip() for part in text.split(",") if part.strip()]
    else:
        return _of_ranges([_ranges(text)])
    for single in singles:
        if "*" in single or "-" in single:
            raise RuleError(f"Netaddress examine Exception netaddress is {single}")
    return _of_ranges([_ranges(single) for single in singles])


def _none(_: str) -> bool:
    return False


def _any(_: str) -> bool:
    return True


def _of_ranges(patterns: list[list[_Range]]) -> AddressPattern:
    def fits(host: str) -> bool:
        parts = _parts_of(host)
        return any(
            len(pattern) == len(parts) and all(low <= part <= high for part, (low, high) in zip(parts, pattern))  # noqa: B905
            for pattern in patterns
        )

    return fits


def _parts_of(host: str) -> list[int]:
    """The numbers of an address. A host that is no address has none, and fits no pattern."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return []
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return [high << 8 | low for high, low in zip(address.packed[::2], address.packed[1::2], strict=True)]
        address = address.ipv4_mapped
    return list(address.packed)


def _ranges(text: str) -> list[_Range]:
    """A range of numbers for each part of a single pattern."""
    count, base, highest = _V6 if ":" in text else _V4
    parts = _expanded(text) if ":" in text else text.split(".")
    ranges = [_range(part.strip(), base, highest) for part in parts]
    if len(ranges) != count or None in ranges:
        scope = " scope" if "*" in text or "-" in text else ""
        raise RuleError(f"Netaddress examine{scope} Exception netaddress is {text}")
    return [each for each in ranges if each is not None]


def _expanded(text: str) -> list[str]:
    """The eight parts of an IPv6 pattern, whose longest run of zeros may be written as `::`."""
    head, gap, tail = text.partition("::")
    if not gap:
        return text.split(":")
    if "::" in tail:
        return []
    before, after = [part for part in head.split(":") if part], [part for part in tail.split(":") if part]
    return [*before, *["0"] * (_V6[0] - len(before) - len(after)), *after]


def _range(text: str, base: int, highest: int) -> _Range | None:
    if text == "*":
        return 0, highest
    first, _, last = text.partition("-")
    low, high = _number(first, base), _number(last if "-" in text else first, base)
    return (low, high) if 0 <= low <= high <= highest else None


def _number(text: str, base: int) -> int:
    good = text.isascii() and text.isalnum()
    try:
        return int(text, base) if good else -1
    except ValueError:
        return -1
