"""`lockstep-sim article`: the sections of the five articles, and the story of one."""

from collections.abc import Iterator
from typing import Annotated

import typer

from lockstep.simulation.articles.play import narration_row, narration_text, section_row
from lockstep.simulation.articles.registry import SECTIONS, UnknownSection, find_section
from lockstep.simulation.articles.section import ARTICLES, article_name
from lockstep.simulation.commands.choose import Output, OutputFormat, tell

__all__ = ["app"]

app = typer.Typer()


def _listed() -> Iterator[str]:
    for article in ARTICLES:
        yield f"Article {article}: {article_name(article)}"
        yield from (one.line for one in SECTIONS if one.article == article)


@app.command("article")
def _article(
    section: Annotated[
        str | None, typer.Argument(metavar="ARTICLE/SECTION", help="as in 1/2.2.2; without: a list")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Tell a section of the five articles as a story on virtual time, or list the sections.

    Brokers and consumers are the real ones. The text is made from what they did: requests, answers, listener calls, and
    the changes of lock table, offsets and ProcessQueues.
    """
    if section is None:
        tell(
            output,
            _listed,
            lambda: {"sections": [section_row(one) for one in SECTIONS]},
        )
        return
    try:
        found = find_section(section)
    except UnknownSection as error:
        raise typer.BadParameter(str(error)) from None
    tell(output, lambda: narration_text(found), lambda: narration_row(found))
