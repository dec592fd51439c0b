"""What faults change while they last. Faults may overlap: the newest is in force, and the end of one ends no other."""

from collections.abc import Callable
from typing import NamedTuple

from lockstep.simulation.world import World

__all__ = ["Change", "Changes"]


class Change(NamedTuple):
    """What a fault does to one thing, as the latency of a link.

    Args:
        thing: the same for all changes of which one alone can be in force.
        end: called when no change of the thing is left.
    """

    thing: tuple[object, ...]
    make: Callable[[], object]
    end: Callable[[], object]


class Changes:
    """The changes that last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lasting: dict[tuple[object, ...], list[Change]] = {}  # by thing, the oldest first

    def begin(self, *changes: Change) -> None:
        for change in changes:
            self._lasting.setdefault(change.thing, []).append(change)
            change.make()

    def again(self, *changes: Change) -> None:
        """Make changes once more, where no newer one is in force."""
        for change in changes:
            if self._lasting[change.thing][-1] is change:
                change.make()

    def end(self, *changes: Change) -> None:
        """The newest that is left is in force again, unless all was healed meanwhile."""
        for change in changes:
            left = self._lasting[change.thing]
            was_newest = left[-1] is change
            left.remove(change)
            if not left or self._world.healed:
                change.end()
            elif was_newest:
                left[-1].make()
