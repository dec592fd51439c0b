"""A section of an article: our summary of it, the story that shows it, what is shown of the story, and the point."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from lockstep.simulation.lab.event_texts import Focus
from lockstep.simulation.lab.recorded_cluster import RecordedCluster

__all__ = ["ARTICLES", "AUTHORS", "Point", "Section", "Story", "article_name"]

# The titles that their authors gave them. The third names its place, https://www.cnblogs.com/yyxxn/p/13223354.html; of
# the second's series two others lead to cnblogs.com/shanml. The rest name nobody.
ARTICLES: Final = {
    1: "23. rocketmq顺序消费",
    2: "【RocketMQ】【源码】顺序消息实现原理",
    3: "RocketMQ消费者之消息消费过程分析",
    4: "RocketMQ——Consumer篇：PUSH模式下消费消息（顺序和并发两种）",  # noqa: RUF001
    5: "consumer 1.启动",
}
AUTHORS: Final = {2: "shanml", 3: "yyxxn"}  # their accounts at cnblogs.com

Story = Callable[[RecordedCluster], Awaitable[None]]
Point = Callable[[RecordedCluster], str]


def article_name(number: int) -> str:
    """The title of an article, and its author where the text names one."""
    return f"{ARTICLES[number]}, by {AUTHORS[number]}" if number in AUTHORS else ARTICLES[number]


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
        return f"{self.id:<23}{self.bare_title}{'' if self.story else ' (no mechanism)'}"

    @property
    def bare_title(self) -> str:
        """The title without its number."""
        number, _, rest = self.title.partition(" ")
        return rest if number.replace(".", "").isdigit() else self.title

    @property
    def story_text(self) -> str:
        """What happens in the story: the docstring of its function, on one line."""
        return " ".join(((self.story and self.story.__doc__) or "").split())
