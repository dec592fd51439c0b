"""The documents of the project as data for tests: their code blocks, links, headings and the files that they name."""

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["CODE", "DOCUMENTS", "ROOT", "Link", "anchors", "blocks", "code_blocks", "links", "named_files", "title"]

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
FOLDERS = (
    r"(?:protocol|remoting|store|order|broker|client|simulation|cli|testing|pipeline|"
    r"scripts|examples|tests|docs|requirements)"
)
NAMED = re.compile(rf"`({FOLDERS}/[\w./-]*)`")


class Link(NamedTuple):
    """What a document points to: a file (empty: itself) and a heading in it (empty: the file as a whole)."""

    target: str
    anchor: str


def title(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of every fenced block."""
    return [(match[1], match[2]) for match in CODE.finditer(text)]


def blocks(text: str, language: str) -> list[str]:
    return [content for found, content in code_blocks(text) if found == language]


def links(path: Path) -> list[Link]:
    """Those that lead to files of the project; addresses of other sites are left out."""
    prose = CODE.sub("", path.read_text(encoding="utf-8"))
    found = [target for target in LINK.findall(prose) if "://" not in target and not target.startswith("mailto:")]
    return [Link(*target.partition("#")[::2]) for target in found]


def anchors(path: Path) -> set[str]:
    """The names that GitHub gives to the headings of a document."""
    prose = CODE.sub("", path.read_text(encoding="utf-8"))
    return {anchor(heading) for heading in HEADING.findall(prose)}


def anchor(heading: str) -> str:
    """Links and marks count by their text; letters, digits, "_" and "-" stay, blanks become "-"."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def named_files(path: Path) -> list[str]:
    return NAMED.findall(path.read_text(encoding="utf-8"))
