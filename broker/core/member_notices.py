"""Notices to the members of a group that members or subscriptions changed: changes that come together are told once."""

from collections.abc import Callable, Iterable
from typing import Final

from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import Steps

__all__ = ["MemberNotices"]

_NOTICES_A_STEP: Final = 32

_Waiting = list[Callable[[], None]]


class MemberNotices:
    """A round tells all members of a group. A notice says no more than that something changed, so one round tells all
    changes that were there when it began.

    Args:
        members: The members of a group.
        tell: Tells a member that its group changed.
    """

    def __init__(self, members: Callable[[str], Iterable[Peer]], tell: Callable[[Peer, str], None]) -> None:
        self._members = members
        self._tell = tell
        # By group; each with those who wait for its end.
        self._due: dict[str, _Waiting] = {}  # rounds that have not begun
        self._running: dict[str, _Waiting] = {}

    def tell(self, consumer_group: str) -> Steps:
        """Tell all members of a group, also a new one, of what has changed. The steps end when all are told."""
        waiting = self._due.get(consumer_group)
        if waiting is not None:
            yield waiting.append
            return
        waiting = self._due[consumer_group] = []
        running = self._running.get(consumer_group)
        # Without another round a step of its own: by then the changes of this turn of the loop are there.
        yield None if running is None else running.append
        self._running[consumer_group] = self._due.pop(consumer_group)
        try:
            for number, peer in enumerate(self._members(consumer_group), 1):
                self._tell(peer, consumer_group)
                if number % _NOTICES_A_STEP == 0:
                    yield None
        finally:
            del self._running[consumer_group]
            for go_on in waiting:
                go_on()
