"""Offsets that went back wait for a reset that explains them, and not without bound."""

from typing import Any, cast

from lockstep.order.clocks import Clocks
from lockstep.order.commits import WAITING_MAX, UnlessReset


class TwoClocks:
    """Of two machines whose records may be 1 s apart."""

    def __len__(self) -> int:
        return 2

    def gap_ns(self, _clock: int, at_ns: int, _other: int, other_ns: int) -> tuple[int, int]:
        return other_ns - at_ns - 10**9, other_ns - at_ns + 10**9


def record(offset: int, at_ns: int) -> dict[str, Any]:
    return {"offset": offset, "mono_ns": at_ns, "wall_ms": at_ns // 10**6, "event": "stored"}


def test_the_oldest_of_many_is_reported_without_waiting() -> None:
    """A reset explains those that still wait; the end reports the others."""
    found: list[int] = []
    rules = UnlessReset(cast("Clocks", TwoClocks()))
    for number in range(WAITING_MAX + 3):
        rules.report(record(number, number), 0, lambda number=number: found.append(number))  # type: ignore[misc]
    assert found == [0, 1, 2]
    rules.reset(record(WAITING_MAX, WAITING_MAX), 1)
    rules.finish()
    assert found == [number for number in range(WAITING_MAX + 3) if number != WAITING_MAX]
