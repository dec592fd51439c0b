"""Writes docs/articles.md from the registry of sections: `make articles-page`."""

from collections.abc import Iterator

from lockstep.simulation.articles.play import told_text
from lockstep.simulation.articles.registry import SECTIONS, find_section
from tests.tidy.source import ROOT

__all__ = ["PAGE", "page"]

PAGE = ROOT / "docs" / "articles.md"
SHOWN = ("1/2.2.2", "4/3.2")
INTRODUCTION = """\
# The articles live

Five articles describe how RocketMQ consumes in order and without order. `lockstep-sim article 1/2.2.2` tells a section
of them as a story on virtual time: what clients ask, what brokers answer, when the listener is called, and how lock
table, offsets and ProcessQueues change. The brokers and clients are the real ones, on a network without latency. So
the times are exact to the millisecond, and every sentence is made from what happened. `make articles-page` writes this
page.

Consumers have the intervals of the articles where these differ from 4.9.8: `client.profiles.PROFILES["articles"]`.
`lockstep consume --profile articles` has them too, and [a listener](commands.md#a-listener-to-try-things-with) that
works, fails and suspends to try the same on real brokers. [COVERAGE.md](COVERAGE.md) has the rules of each section,
with the code and the tests.

A line with `|` is a change of a table: before -> after. `cached` are offsets that wait in a ProcessQueue, `taken` those
that the listener has and that are not committed, `offset` is the next one to commit.
"""
HEAD = "| section | title | what it says | what the story shows |\n|---|---|---|---|"


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## The sections\n"
    yield HEAD
    for section in SECTIONS:
        yield f"| `{section.id}` | {section.title} | {section.summary} | {section.story_text or '-'} |"
    for name in SHOWN:
        yield f"\n## `lockstep-sim article {name}`\n\n```text"
        yield from told_text(find_section(name))
        yield "```"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
