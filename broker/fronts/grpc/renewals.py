"""Renewals: what push consumers hold stays invisible while they work on it.

A push consumer does not say how long its listener takes. So the broker delivers for a minute, and each time that this
is nearly over it gives more. The client's handle stays the first one; here is what it stands for now.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from lockstep.broker.core.ack import Delivery
from lockstep.broker.fronts.grpc.sessions import Session
from lockstep.protocol.receipts import Receipt

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
    def period(self) -> int:
        return min(self.times, len(_PERIODS_MS) - 1)

    @property
    def period_ms(self) -> int:
        return _PERIODS_MS[self.period]


class Renewals:
    """The table, by the handle that the client has.

    Args:
        renewals_max: Above it messages are delivered, and not renewed.
    """

    def __init__(self, renewals_max: int) -> None:
        self._max = renewals_max
        self._by_handle: dict[str, Renewal] = {}
        self._of: dict[Session, dict[str, Renewal]] = {}
        # One for each period: as all in one are held for equally long, the first one ends first.
        self._in_period = tuple(OrderedDict[str, Renewal]() for _ in _PERIODS_MS)

    def __len__(self) -> int:
        return len(self._by_handle)

    def add(self, handle: str, renewal: Renewal) -> None:
        self.end(handle)
        if len(self._by_handle) < self._max:
            self._by_handle[handle] = renewal
            self._of.setdefault(renewal.session, {})[handle] = renewal
            self._in_period[renewal.period][handle] = renewal

    def find(self, handle: str) -> Renewal | None:
        return self._by_handle.get(handle)

    def renewed(self, handle: str, receipt: Receipt) -> None:
        """It is held for longer."""
        one = self._by_handle[handle]
        del self._in_period[one.period][handle]
        one.delivery = one.delivery._replace(receipt=receipt)
        one.times += 1
        self._in_period[one.period][handle] = one

    def end(self, handle: str) -> None:
        """It is acknowledged, or its client says itself from now on how long it stays invisible."""
        one = self._by_handle.pop(handle, None)
        if one is None:
            return
        del self._in_period[one.period][handle]
        of_session = self._of[one.session]
        del of_session[handle]
        if not of_session:
            del self._of[one.session]

    def due(self, now_ms: int, count_max: int) -> list[tuple[str, Renewal]]:
        """Some of those to renew now. Those that are held for too long are forgotten."""
        due, overlong = list[tuple[str, Renewal]](), list[str]()
        for renewals in self._in_period:
            for handle, one in renewals.items():
                if one.ends_ms - now_ms > _BEFORE_END_MS or len(due) + len(overlong) == count_max:
                    break
                if now_ms - one.begun_ms >= _HELD_MS_MAX:
                    overlong.append(handle)
                else:
                    due.append((handle, one))
        for handle in overlong:
            self.end(handle)
        return due

    def of(self, session: Session) -> list[tuple[str, Renewal]]:
        """Those of a client."""
        return list(self._of.get(session, {}).items())
