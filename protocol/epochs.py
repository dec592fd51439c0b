"""The epoch of a period of ownership under the fenced lock: one number that grows (docs/fencing.md).

In memory and in MSGPACK it is the number `boot << 21 | counter`, in texts `boot-counter`. 0 is no epoch.
"""

from collections.abc import Sequence
from typing import Any, Final

__all__ = [
    "COUNTER_MAX",
    "NO_EPOCH",
    "EpochValue",
    "EpochValues",
    "boot_of",
    "counter_of",
    "epoch_text",
    "make_epoch",
    "parse_epoch",
]

NO_EPOCH: Final = 0
_COUNTER_BITS: Final = 21
COUNTER_MAX: Final = (1 << _COUNTER_BITS) - 1
# An epoch fits a signed number of 64 bits; as epoch ms the year 2109.
_BOOT_MAX: Final = (1 << 63 - _COUNTER_BITS) - 1
_DIGITS_MAX: Final = 20


class EpochValue:
    """An epoch in a body: a text in JSON, where large numbers lose digits, and a number in MSGPACK."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __str__(self) -> str:
        return epoch_text(self.epoch)


class EpochValues:
    """A list of epochs in a body, written like an `EpochValue` each, with one call for all."""

    __slots__ = ("epochs",)

    def __init__(self, epochs: Sequence[int]) -> None:
        self.epochs = epochs


def make_epoch(boot: int, counter: int) -> int:
    """Args: `boot`: of a start of the broker, about epoch ms. `counter`: of that start. Raises ValueError."""
    if not (0 <= boot <= _BOOT_MAX and 0 <= counter <= COUNTER_MAX):
        raise ValueError(f"an epoch has a boot of 0 to {_BOOT_MAX} and a counter of 0 to {COUNTER_MAX}")
    return boot << _COUNTER_BITS | counter


def boot_of(epoch: int) -> int:
    return epoch >> _COUNTER_BITS


def counter_of(epoch: int) -> int:
    """Which epoch of its start of the broker it is."""
    return epoch & COUNTER_MAX


def epoch_text(epoch: int) -> str:
    """ "boot-counter"."""
    return f"{epoch >> _COUNTER_BITS}-{epoch & COUNTER_MAX}"


def parse_epoch(value: Any) -> int:
    """Read a number, or a text "boot-counter". Raises ValueError for any other value."""
    if type(value) is int and 0 <= value < 1 << 63:
        return value
    if type(value) is str:
        boot, _, counter = value.partition("-")
        if all(part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX for part in (boot, counter)):
            return make_epoch(int(boot), int(counter))
    raise ValueError(f"an epoch is a number or a text such as '1795208639549-7', not {value!r:.60}")
