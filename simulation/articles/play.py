"""Plays the story of a section on virtual time, and tells it."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lockstep.client import SerializeType
from lockstep.client.profiles import PROFILES
from lockstep.simulation.articles.narrator import Narrator
from lockstep.simulation.articles.section import ARTICLES, Section
from lockstep.simulation.articles.stage import INSTANT, Stage
from lockstep.simulation.articles.told import Focus, Line, number, text_of
from lockstep.simulation.run import simulate
from lockstep.simulation.world import World

__all__ = ["PROFILE", "Told", "play", "section_row", "told_row", "told_text"]

PROFILE: Final = "articles"
_SEED: Final = 20130101


class Told(NamedTuple):
    """Args:
    lines: the whole story; a section shows those of its focus.
    point: what the story shows, made from what happened.
        judged: what the judge of order says.
    """

    lines: list[Line]
    point: str
    judged: str
    trace_hash: str


def play(section: Section, *, seed: int = _SEED) -> Told:
    """Run a section's story from its start to a clean end. Only for a section with a story."""
    assert section.story is not None
    assert section.point is not None
    story, point = section.story, section.point

    async def main(world: World) -> tuple[list[Line], str, str]:
        stage = Stage(world, SerializeType.JSON, profile=PROFILE)
        narrator = Narrator(stage)
        await story(stage)
        narrator.stop()
        text = point(stage)
        await stage.shut_down()
        return narrator.lines, text, _judged(stage)

    main.__module__ = story.__module__  # escapes to real time are looked for there
    outcome = simulate(main, seed=seed, options=INSTANT)
    return Told(*outcome.value, outcome.trace_hash)


def told_text(section: Section, *, seed: int = _SEED) -> Iterator[str]:
    """The section as text: its summary, the settings, the story, the point and the judge's result."""
    yield f"Article {section.article} ({ARTICLES[section.article]}), {section.title}"
    yield ""
    yield section.summary
    if section.story is None:
        return
    told = play(section, seed=seed)
    settings = ", ".join(f"{name} = {number(value)}" for name, value in PROFILES[PROFILE].items())
    yield f"Story: {section.story_text}"
    yield f"Settings: RocketMQ 4.9.8, with {settings} as in the articles."
    yield ""
    yield from text_of(_shown(section, told))
    yield ""
    yield f"Shown: {told.point}"
    yield f"Judge: {told.judged}."


def section_row(section: Section) -> dict[str, Any]:
    """A section as JSON fields."""
    return {
        "section": section.id,
        "article": section.article,
        "article_title": ARTICLES[section.article],
        "title": section.title,
        "has_story": section.story is not None,
    }


def told_row(section: Section, *, seed: int = _SEED) -> dict[str, Any]:
    """What `told_text` has, as JSON fields; no line of the story is left out."""
    row = section_row(section) | {"summary": section.summary}
    if section.story is None:
        return row | {"story": None, "settings": {}, "lines": [], "point": None, "judged": None, "trace_hash": None}
    told = play(section, seed=seed)
    lines = [
        {"at_ms": line.at_ms, "host": line.host or None, "focus": line.focus.value, "text": line.text}
        for line in _shown(section, told)
    ]
    return row | {
        "story": section.story_text,
        "settings": dict(PROFILES[PROFILE]),
        "lines": lines,
        "point": told.point,
        "judged": told.judged,
        "trace_hash": told.trace_hash,
    }


def _shown(section: Section, told: Told) -> Iterator[Line]:
    """The lines of a story that its section is about."""
    return (line for line in told.lines if line.focus in (Focus.LIFE, *section.focus))


def _judged(stage: Stage) -> str:
    if stage.not_judged:
        return f"not asked, because {stage.not_judged}"
    report = stage.judge()
    broken = ", ".join(f"{kind} {count}" for kind, count in sorted(report.violation_counts.items()))
    repeats = ", ".join(f"{cause} {count}" for cause, count in sorted(report.duplicates.items()))
    order = f"NOT in order: {broken}" if broken else "in order"
    return f"{order}; messages handled: {number(report.handled)}; repeats: {repeats or 'none'}"
