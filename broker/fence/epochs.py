"""Gives each period of ownership its epoch."""

from typing import Final

from lockstep.protocol.epochs import COUNTER_MAX, boot_of, make_epoch

__all__ = ["Epochs"]

_BOOT_AHEAD_MAX: Final = 366 * 24 * 3600 * 1000  # a peer's epoch must not use up the boots


class Epochs:
    """Numbers that grow. `boot`: epoch ms at the start of the broker, or one more than the kept boot."""

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self._counter = 0

    @property
    def last(self) -> int:
        """At least as high as every number that was given."""
        return make_epoch(self.boot, self._counter)

    def next(self) -> int:
        self._counter += 1
        if self._counter > COUNTER_MAX:
            self.boot, self._counter = self.boot + 1, 1
        return make_epoch(self.boot, self._counter)

    def go_above(self, epoch: int, now_ms: int) -> bool:
        """Later epochs are above `epoch`, of an earlier start that is not remembered. False: no start gave it."""
        if boot_of(epoch) > now_ms + _BOOT_AHEAD_MAX:
            return False
        self.go_above_boot(boot_of(epoch))
        return True

    def go_above_boot(self, boot: int) -> None:
        if boot >= self.boot:
            self.boot, self._counter = boot + 1, 0
