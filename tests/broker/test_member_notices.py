"""Notices of changed members: what comes together is told once, and what comes later is not lost."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from lockstep.broker.core.member_notices import MemberNotices
from lockstep.broker.sliced_work import SlicedWork, Steps


class Group:
    """Members that join, and turns of a loop that the test runs. `answered`: those whose join has ended."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.work = SlicedWork()
        self.work.soon = self.soon.append
        self.members: list[Any] = []
        self.told: Counter[str] = Counter()
        self.answered: list[str] = []
        self._notices = MemberNotices(lambda _: self.members, lambda peer, _: self.told.update([str(peer)]))

    def join(self, *names: str) -> None:
        for name in names:
            self.members = [*self.members, name]
            self.work.start(name, self._told(name))

    def _told(self, name: str) -> Steps:
        yield from self._notices.tell("G")
        assert self.told[name]
        self.answered.append(name)

    def turn(self) -> None:
        due, self.soon[:] = [*self.soon], []
        for callback in due:
            callback()

    def turns(self) -> None:
        while self.soon:
            self.turn()


def test_members_that_join_in_one_turn_are_told_once() -> None:
    group = Group()
    group.join("a")
    group.turns()
    assert group.told == {"a": 1}
    group.join("b", "c", "d")
    group.turns()
    assert group.told == {"a": 2, "b": 1, "c": 1, "d": 1}
    assert group.answered == ["a", "b", "c", "d"]


def test_changes_while_members_are_told_are_told_once_after_it() -> None:
    group = Group()
    first = [f"first{number}" for number in range(1000)]
    group.members = first
    group.join("a")
    group.turn()
    assert 0 < group.told.total() < len(first)
    group.join("b", "c")
    assert group.answered == []
    group.turns()
    assert group.told == dict.fromkeys([*first, "a"], 2) | {"b": 1, "c": 1}
    assert group.answered == ["a", "b", "c"]
