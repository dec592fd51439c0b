"""Plays the story of a section on virtual time, and tells it."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lockstep.client import SerializeType
from lockstep.client.profiles import PROFILES
from lockstep.simulation.articles.narration import Line, number, text_of
from lockstep.simulation.articles.narrator import Narrator
from lockstep.simulation.articles.section import ARTICLES, AUTHORS, Section, article_name
from lockstep.simulation.lab.event_texts import Focus
from lockstep.simulation.lab.recorded_cluster import INSTANT, RecordedCluster
from lockstep.simulation.run import simulate
from lockstep.simulation.world import World

__all__ = ["PROFILE", "Narration", "narration_row", "narration_text", "play", "section_row"]

PROFILE: Final = "articles"
_SEED: Final = 20130101


class Narration(NamedTuple):
    """Args:
    lines: the whole story; a section shows those of its focus.
    point: what the story shows, made from what happened.
        judged: what the judge of order says.
    """

    lines: list[Line]
    point: str
    judged: str
    trace_hash: str


def play(section: Section, *, seed: int = _SEED) -> Narration:
    """Run a section's story from its start to a clean end. Only for a section with a story."""
    assert section.story is not None
    assert section.point is not None
    story, point = section.story, section.point

    async def main(world: World) -> tuple[list[Line], str, str]:
        cluster = RecordedCluster(world, SerializeType.JSON, profile=PROFILE)
        narrator = Narrator(cluster)
        await story(cluster)
        narrator.stop()
        text = point(cluster)
        await cluster.shut_down()
        return narrator.lines, text, _judged(cluster)

    main.__module__ = story.__module__  # escapes to real time are looked for there
    outcome = simulate(main, seed=seed, options=INSTANT)
    return Narration(*outcome.value, outcome.trace_hash)


def narration_text(section: Section, *, seed: int = _SEED) -> Iterator[str]:
    """The section as text: its summary, the settings, the story, the point and the judge's result."""
    yield f"Article {section.article} ({article_name(section.article)}), {section.title}"
    yield ""
    yield section.summary
    if section.story is None:
        return
    narration = play(section, seed=seed)
    settings = ", ".join(f"{name} = {number(value)}" for name, value in PROFILES[PROFILE].items())
    yield f"Story: {section.story_text}"
    yield f"Settings: RocketMQ 4.9.8, with {settings} as in the articles."
    yield ""
    yield from text_of(_shown(section, narration))
    yield ""
    yield f"Shown: {narration.point}"
    yield f"Judge: {narration.judged}."


def section_row(section: Section) -> dict[str, Any]:
    """A section as JSON fields."""
    return {
        "section": section.id,
        "article": section.article,
        "article_title": ARTICLES[section.article],
        "article_author": AUTHORS.get(section.article),
        "title": section.title,
        "has_story": section.story is not None,
    }


def narration_row(section: Section, *, seed: int = _SEED) -> dict[str, Any]:
    """What `narration_text` has, as JSON fields; no line of the story is left out."""
    row = section_row(section) | {"summary": section.summary}
    if section.story is None:
        return row | {"story": None, "settings": {}, "lines": [], "point": None, "judged": None, "trace_hash": None}
    narration = play(section, seed=seed)
    lines = [
        {"at_ms": line.at_ms, "host": line.host or None, "focus": line.focus.value, "text": line.text}
        for line in _shown(section, narration)
    ]
    return row | {
        "story": section.story_text,
        "settings": dict(PROFILES[PROFILE]),
        "lines": lines,
        "point": narration.point,
        "judged": narration.judged,
        "trace_hash": narration.trace_hash,
    }


def _shown(section: Section, narration: Narration) -> Iterator[Line]:
    """The lines of a story that its section is about."""
    return (line for line in narration.lines if line.focus in (Focus.LIFE, *section.focus))


def _judged(cluster: RecordedCluster) -> str:
    if cluster.not_judged:
        return f"not asked, because {cluster.not_judged}"
    report = cluster.judge()
    broken = ", ".join(f"{kind} {count}" for kind, count in sorted(report.violation_counts.items()))
    repeats = ", ".join(f"{cause} {count}" for cause, count in sorted(report.duplicates.items()))
    order = f"NOT in order: {broken}" if broken else "in order"
    return f"{order}; messages handled: {number(report.handled)}; repeats: {repeats or 'none'}"
