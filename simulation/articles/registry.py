"""All sections of the five articles, by their ids."""

import difflib
from typing import Final

from lockstep.simulation.articles.section import Section
from lockstep.simulation.articles.sections import article_1, article_2, article_3, article_4, article_5

__all__ = ["SECTIONS", "UnknownSection", "find_section"]

SECTIONS: Final = (
    *article_1.SECTIONS, *article_2.SECTIONS, *article_3.SECTIONS, *article_4.SECTIONS, *article_5.SECTIONS
)  # fmt: skip
_NEAR_MAX: Final = 3


class UnknownSection(LookupError):
    """No section has this id. The text names the nearest."""


def find_section(name: str) -> Section:
    """The section of an id such as 1/2.2.2. Raises UnknownSection."""
    for section in SECTIONS:
        if section.id == name:
            return section
    known = [section.id for section in SECTIONS]
    near = [one for one in known if name and one.startswith(name)]
    if not near:
        of_article = [one for one in known if one.startswith(f"{name.partition('/')[0]}/")]
        near = difflib.get_close_matches(name, of_article or known, _NEAR_MAX, 0.0)
    raise UnknownSection(f"no article has a section {name!r}; the nearest are {', '.join(near)}")
