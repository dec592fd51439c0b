"""A section of an article: our summary of it, the story that shows it, what is shown of the story, and the point."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lockstep.simulation.articles.stage import Stage
from lockstep.simulation.articles.told import Focus

__all__ = ["Point", "Section", "Story"]

Story = Callable[[Stage], Awaitable[None]]
Point = Callable[[Stage], str]


@dataclass(frozen=True)
class Section:
    """Args:
    id: as it is asked for: 1/2.2.2.
    summary: what the section says, in our words.
    story: None: the section has no mechanism.
    focus: what is shown of the story.
    point: made from what happened in the story: the sentence that the story is about.
    """

    id: str
    title: str
    summary: str
    story: Story | None = None
    focus: tuple[Focus, ...] = ()
    point: Point | None = None

    @property
    def article(self) -> int:
        return int(self.id.partition("/")[0])

    @property
    def line(self) -> str:
        """For a list: the id, the title without its number, and the story."""
        number, _, rest = self.title.partition(" ")
        title = rest if number.replace(".", "").isdigit() else self.title
        return f"{self.id:<23}{title}{'' if self.story else ' (no mechanism)'}"

    @property
    def story_text(self) -> str:
        """What happens in the story: the docstring of its function, on one line."""
        return " ".join(((self.story and self.story.__doc__) or "").split())
