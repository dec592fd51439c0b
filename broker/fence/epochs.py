"""Gives each period of ownership its epoch."""

from typing import Final

from lockstep.protocol.epochs import COUNTER_MAX, boot_of, make_epoch

__all__ = ["Epochs"]

_BOOT_AHEAD_MAX: Final = 366 * 24 * 3600 * 1000  # a peer's epoch must not use up the boots


class Epochs:
    """Numbers that grow. `boot`: epoch ms at the start of the broker, or one more than the kept boot."""

    def __init__(self, boot: int) -> None:
        self._boot = boot
        self._counter = 0

    def next(self) -> int:
        self._counter += 1
        if self._counter > COUNTER_MAX:
            self._boot, self._counter = self._boot + 1, 1
        return make_epoch(self._boot, self._counter)

    def go_above(self, epoch: int, now_ms: int) -> bool:
        """Later epochs are above `epoch`, of an earlier start that is not remembered. False: no start gave it."""
        if boot_of(epoch) > now_ms + _BOOT_AHEAD_MAX:
            return False
        if boot_of(epoch) >= self._boot:
            self._boot, self._counter = boot_of(epoch) + 1, 0
        return True
