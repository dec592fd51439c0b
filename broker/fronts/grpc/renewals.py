"""Renewals: what push consumers hold stays invisible while they work on it.

A push consumer does not say how long its listener takes. So the broker delivers for a minute, and each time that this
is nearly over it gives more. The client's handle stays the first one; here is what it stands for now.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lockstep.broker.core.ack import Delivery
from lockstep.broker.fronts.grpc.sessions import Session

__all__ = ["FIRST_INVISIBLE_MS", "Renewal", "Renewals"]

FIRST_INVISIBLE_MS: Final = 60_000
# How long the next period is; the last one repeats.
_PERIODS_MS: Final = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
_BEFORE_END_MS: Final = 10_000
# Then the message may go to others: whoever has worked on it for so long is stuck.
_HELD_MS_MAX: Final = 3 * 3_600_000


@dataclass(slots=True)
class Renewal:
    """One message in the hands of a push consumer.

    Attributes:
        delivery: As its receipt is now.
        begun_ms: When it was delivered, in epoch ms.
        times: How often it was renewed.
    """

    session: Session
    delivery: Delivery
    begun_ms: int
    times: int = 0

    @property
    def ends_ms(self) -> int:
        return self.delivery.receipt.pop_ms + self.delivery.receipt.invisible_ms

    @property
    def period_ms(self) -> int:
        return _PERIODS_MS[min(self.times, len(_PERIODS_MS) - 1)]


class Renewals:
    """The table, by the handle that the client has.

    Args:
        renewals_max: Above it messages are delivered, and not renewed.
    """

    def __init__(self, renewals_max: int) -> None:
        self._max = renewals_max
        self._by_handle: dict[str, Renewal] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def add(self, handle: str, renewal: Renewal) -> None:
        if len(self._by_handle) < self._max:
            self._by_handle[handle] = renewal

    def find(self, handle: str) -> Renewal | None:
        return self._by_handle.get(handle)

    def end(self, handle: str) -> None:
        """It is acknowledged, or its client says itself from now on how long it stays invisible."""
        self._by_handle.pop(handle, None)

    def due(self, now_ms: int) -> Iterator[tuple[str, Renewal]]:
        """Those to renew now. Those that are held for too long are forgotten."""
        for handle, one in list(self._by_handle.items()):
            if now_ms - one.begun_ms >= _HELD_MS_MAX:
                del self._by_handle[handle]
            elif one.ends_ms - now_ms <= _BEFORE_END_MS:
                yield handle, one

    def of(self, session: Session) -> Iterator[tuple[str, Renewal]]:
        """Those of a client."""
        for handle, one in list(self._by_handle.items()):
            if one.session is session:
                yield handle, one
