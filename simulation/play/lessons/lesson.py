"""A lesson: the run that it opens, what it asks, the touch that shows the answer, and whether it has happened."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.faults.text import read_fault

__all__ = ["Lesson", "Seen", "Side", "Text", "Touch"]

_START_MS: Final = 45_000  # all queues have their owners, and c1 renewed its locks some seconds ago
_HANDLED: Final = re.compile(r"\S+ has handled offset (?P<offset>\d+)\b.* of (?P<queue>queue \d+) in ")


class Text(NamedTuple):
    """What is said, in English and in Chinese."""

    en: str
    zh: str


_NOTHING: Final = Text("", "")


class Touch(NamedTuple):
    """A line without a time, and how long after the first touch it is made."""

    line: str
    after_ms: int = 0


class Side:
    """What one side of the page shows: the present moment, and all that was marked until now."""

    def __init__(self, scene: Mapping[str, Any], touched_ms: int) -> None:
        self._scene = scene
        self.now_ms: int = scene["now_ms"]
        self.touched_ms = touched_ms

    @property
    def queues(self) -> list[dict[str, Any]]:
        """In the order of their numbers."""
        return [queue for queue in self._scene["queues"] if "retry" not in queue["id"]]

    @property
    def owners(self) -> list[str]:
        """Who has the lock of each queue; empty: nobody."""
        return [queue["lock"]["owner"] if queue["lock"] else "" for queue in self.queues]

    @property
    def wrongs(self) -> list[dict[str, Any]]:
        """What the judge has found."""
        found: list[dict[str, Any]] = self._scene["wrongs"]
        return found

    def held(self, member: str) -> list[dict[str, Any]]:
        """What a member has of its queues."""
        return [queue for one in self._scene["members"] if one["name"] == member for queue in one["queues"]]

    @property
    def deliveries(self) -> list[dict[str, Any]]:
        """What members of a FIFO group have and have not answered."""
        found: list[dict[str, Any]] = self._scene["deliveries"]
        return found

    def changes(self) -> Iterator[int]:
        """How long after the touch each new owner got a queue, in ms."""
        for mark in self._scene["marks"]:
            if mark["kind"] == "owner" and mark["at_ms"] >= self.touched_ms:
                yield mark["at_ms"] - self.touched_ms

    def lock_ages(self) -> list[int]:
        """How long ago each lock was renewed, in ms."""
        return [self.now_ms - queue["lock"]["renewed_ms"] for queue in self.queues if queue["lock"]]

    def handled(self, member: str) -> set[tuple[str, str]]:
        """(queue, offset) of each message that a member has handled."""
        calls = (_HANDLED.match(line["text"]) for line in self._scene["story"] if line["host"] == member)
        return {(call["queue"], call["offset"]) for call in calls if call is not None}


class Seen(NamedTuple):
    """What the page shows, by lock mode."""

    sides: Mapping[str, Side]

    @classmethod
    def of(cls, scene: Mapping[str, Any], asked_ms: int) -> "Seen":
        """Of the first scene of a connection, which has the whole story.

        Args:
            asked_ms: what came after it counts, where nothing was touched.
        """
        times = [read_fault(line).at_ms for line in scene["touches"]]
        return cls({side["mode"]: Side(side, min(times, default=asked_ms)) for side in scene["sides"]})

    @property
    def one(self) -> Side:
        """The only side."""
        (side,) = self.sides.values()
        return side


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Args:
    section: of the article that it is taken from; empty: what came after the articles.
    what: the story to open, as `lockstep-sim play` names it.
    setup: of the story, in its own words.
    modes: of the locks, one a side.
    watch_ms: then the question is asked.
    faults: what happens before the question.
    touches: none: the run itself shows the answer.
    show_ms: how long after the last touch the answer is seen; without a touch after the question.
    do: what the user does on the page, if there are touches.
    right: which of the choices is true.
    shown: whether that what the lesson says has happened.
    """

    key: str
    section: str
    title: Text
    watch: Text
    question: Text
    choices: Sequence[Text]
    right: int
    answer: Text
    shown: Callable[[Seen], bool]
    show_ms: int
    do: Text = _NOTHING
    faults: Sequence[str] = ()
    touches: Sequence[Touch] = ()
    what: str = "quiet"
    seed: int = 1
    setup: Mapping[str, Any] = field(default_factory=dict)
    modes: Sequence[str] = ("faithful",)
    watch_ms: int = _START_MS

    def is_shown(self, scene: Mapping[str, Any]) -> bool:
        """Whether what the lesson says has happened, by the first scene of a connection."""
        modes = [side["mode"] for side in scene["sides"]]
        return modes == [*self.modes] and self.shown(Seen.of(scene, self.watch_ms))

    def row(self, language: str) -> dict[str, Any]:
        """For the page, in a language: "en" or "zh"."""
        texts = {name: getattr(getattr(self, name), language) for name in _TEXTS}
        return {
            "key": self.key,
            "section": self.section,
            "open": {
                "act": "open",
                "what": self.what,
                "seed": self.seed,
                "setup": dict(self.setup),
                "faults": [*self.faults],
                "modes": [*self.modes],
            },
            "watch_ms": self.watch_ms,
            "touches": [touch._asdict() for touch in self.touches],
            "show_ms": self.show_ms,
            "choices": [getattr(choice, language) for choice in self.choices],
            "right": self.right,
            **texts,
        }


_TEXTS: Final = ("title", "watch", "question", "do", "answer")
