"""PeriodLife: how far a period of ownership has come, and whether a listener runs. Synchronous, but for the wait."""

import asyncio

__all__ = ["PeriodLife"]


class PeriodLife:
    """Independent facts. A period ends in two steps under a fenced lock: first it is `draining`, then `dropped`.

    Attributes:
        draining: nothing is taken any more; the offset of handled messages may still be stored.
        dropped: nothing is taken and nothing committed any more.
        lost: the fenced lock is lost, or its lease has ended.
        resetting: an offset reset removes the queue from the table.
        outlived_lock: the lock was lost, or may have been, and was granted again.
        try_unlock_times: how often a rebalance did not give the queue up, because its listener ran.
    """

    def __init__(self) -> None:
        self.draining = False
        self.dropped = False
        self.lost = False
        self.resetting = False
        self.outlived_lock = False
        self.listener_running = False
        self.try_unlock_times = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether no call may begin any more in this period."""
        return self.dropped or self.draining

    def listener_returned(self) -> None:
        self.listener_running = False
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def listener_idle(self, timeout_ms: int) -> bool:
        """Wait up to `timeout_ms` for the running listener: the consume lock, as a rebalance tries it.

        Returns:
            Whether no listener runs.
        """
        if not self.listener_running:
            return True
        # Several callers may wait, so none may cancel the future of the others.
        if self._idle is None:
            self._idle = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.shield(self._idle)
        except TimeoutError:
            return False
        return not self.listener_running
