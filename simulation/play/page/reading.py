"""Pages to read beside the run: those of docs/, and sections of the articles."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException

import lockstep.simulation
from lockstep.simulation.articles.registry import UnknownSection, find_section

__all__ = ["Part", "article_parts", "docs_parts"]

_NAME: Final = re.compile(r"[a-z]+\.md")
_HEADING: Final = re.compile(r"(#{1,4}) (.+)")


class Part(NamedTuple):
    """A heading of a level with an id, or a text with level 0."""

    level: int
    id: str
    text: str


def docs_parts(name: str, texts: Mapping[str, str]) -> list[Part]:
    """A page of docs/ as it is written, with ids at its headings. An installed Lockstep has no docs/: it says where."""
    if not _NAME.fullmatch(name):
        raise HTTPException(404)
    path = Path(next(iter(lockstep.simulation.__path__))).parent / "docs" / name
    if not path.is_file():
        return [Part(1, "", name), Part(0, "", texts["docs.none"].format(name=name))]
    return list(_parts(path.read_text("utf-8")))


def _parts(text: str) -> Iterator[Part]:
    lines: list[str] = []
    in_code = False
    for line in [*text.splitlines(), "# "]:
        in_code ^= line.startswith("```")
        heading = None if in_code else _HEADING.fullmatch(line)
        if (heading or line == "# ") and "".join(lines).strip():
            yield Part(0, "", "\n".join(lines).strip("\n"))
        if heading:
            yield Part(len(heading[1]), _anchor(heading[2]), heading[2])
            lines = []
        else:
            lines.append(line)


def _anchor(heading: str) -> str:
    """As GitHub makes it: lower case, without punctuation, "-" for a space."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def article_parts(name: str, texts: Mapping[str, str]) -> list[Part]:
    """A section of an article: what it says, and its story, in our words."""
    try:
        section = find_section(name)
    except UnknownSection:
        raise HTTPException(404) from None
    number, _, rest = section.id.partition("/")
    title = texts["docs.article"].format(section=rest, article=number, title=section.bare_title)
    parts = [Part(1, "", title), Part(0, "", section.summary)]
    if section.story_text:
        parts.append(Part(0, "", texts["docs.story"].format(story=section.story_text)))
    return parts
