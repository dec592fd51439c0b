"""The lessons: their texts, and each walked: the run to the question, the touch, and what it shows."""

import json
import re
from typing import Any, Final

import pytest

from lockstep.simulation.articles.registry import find_section
from lockstep.simulation.lab.experiment import LockMode, PlayedWorld
from lockstep.simulation.lab.faults.text import fault_text, read_fault
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.user.story import Story, setup_of
from lockstep.simulation.play.engine import Engine
from lockstep.simulation.play.lessons.lesson import Lesson
from lockstep.simulation.play.lessons.registry import LESSONS
from lockstep.simulation.play.lessons.words import WORDS
from lockstep.simulation.play.scene import Scenes
from lockstep.simulation.play.telling import Telling

WORDS_MAX: Final = 95
SIGNS_MAX: Final = 260  # of Chinese: as long to read
STORY_MAX: Final = 2_000  # sentences that the page keeps
FIELDS: Final = re.compile(r"{(\w+)}")


@pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)
def test_a_lesson_is_short_and_of_an_article(lesson: Lesson) -> None:
    """In both languages; its section, its story and its touches exist."""
    texts = [lesson.title, lesson.watch, lesson.question, *lesson.choices, lesson.answer]
    texts += [lesson.do] if lesson.touches else []
    assert all(text.en and text.zh for text in texts)
    assert len(" ".join(text.en for text in (lesson.watch, lesson.question, lesson.answer)).split()) <= WORDS_MAX
    assert len("".join(text.zh for text in (lesson.watch, lesson.question, lesson.answer))) <= SIGNS_MAX
    assert 0 <= lesson.right < len(lesson.choices) <= 4
    assert not lesson.section or find_section(lesson.section).story is not None
    assert find_experiment(lesson.what).summary
    assert all(read_fault(touch.line, now_ms=1) for touch in lesson.touches)
    assert json.loads(json.dumps(lesson.row("zh")))["title"] == lesson.title.zh


def test_the_words_take_the_same_fields_in_both_languages() -> None:
    for key, text in WORDS.items():
        assert sorted(FIELDS.findall(text.en)) == sorted(FIELDS.findall(text.zh)), key


class Walk:
    """One side of a lesson, in steps as a session plays it, with all that is told."""

    def __init__(self, lesson: Lesson, mode: str) -> None:
        self.lesson = lesson
        self.told: dict[str, list[Any]] = {"story": [], "marks": []}
        experiment: Any = find_experiment(lesson.what)
        if isinstance(experiment, Story):
            experiment = experiment.with_setup(setup_of(lesson.setup), [*map(read_fault, lesson.faults)])
        self.engine = Engine(experiment, experiment.draw(lesson.seed, LockMode(mode)), on_built=self._built)

    def _built(self, played: PlayedWorld) -> None:
        self._scenes, self._telling = Scenes(played.cluster), Telling(played.cluster)

    def to(self, ms: int) -> None:
        while self.engine.now_ms < ms:
            self.engine.advance_to(min(ms, self.engine.now_ms + 1_000))
            told = self._telling.read(self._scenes.take())
            self.told["story"] += [*told.story, *told.calls]
            self.told["marks"] += told.marks

    def touch(self) -> list[str]:
        """All touches of the lesson, at their times."""
        asked_ms, made = self.engine.now_ms, []
        for touch in self.lesson.touches:
            self.to(asked_ms + touch.after_ms)
            event = self.engine.read_touch(touch.line)
            self.engine.touch(event)
            made.append(fault_text(event))
        return made

    def scene(self) -> dict[str, Any]:
        """The side as a new connection gets it. The judge speaks at the end of the run."""
        scene = self._scenes.take() | self.told | {"mode": str(self.engine.plan.lock_mode)}
        result = self.engine.finish()
        assert result.error is None
        assert result.played is not None
        return scene | {"story": self.told["story"][-STORY_MAX:], "wrongs": result.played.findings.wrong}


def walked(lesson: Lesson, *, touched: bool) -> bool:
    """Whether what the lesson says has been seen at its end."""
    sides, touches = [], list[str]()
    for mode in lesson.modes:
        walk = Walk(lesson, mode)
        with walk.engine:
            walk.to(lesson.watch_ms)
            if touched:
                touches = walk.touch()
            if touched or lesson.touches:  # without touches the run itself shows the answer, later
                last_ms = 0 if touched or not lesson.touches else lesson.touches[-1].after_ms
                walk.to(walk.engine.now_ms + last_ms + lesson.show_ms)
            sides.append(walk.scene())
    return lesson.is_shown({"sides": sides, "touches": touches})


@pytest.mark.long
@pytest.mark.parametrize(
    "lesson",
    [one if name != "owner" else pytest.param(one, marks=pytest.mark.smoke) for name, one in LESSONS.items()],
    ids=LESSONS,
)
def test_what_a_lesson_says_happens_in_its_run_and_only_by_its_touch(lesson: Lesson) -> None:
    """Without the touch it does not happen; without a touch in the lesson, not before the question."""
    assert not walked(lesson, touched=False)
    assert walked(lesson, touched=True)
