"""What stderr shows while a job runs: stages, tasks, and how many messages were sent."""

import io
import re
import threading
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from rich.console import Console

from lockstep.pipeline.jobs.publish import SentCount
from lockstep.pipeline.spark.progress import JobProgress
from tests.pipeline.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stage(NamedTuple):
    numTasks: int  # noqa: N815
    numCompletedTasks: int  # noqa: N815


class Tracker:
    """Two stages that run, and one that has just ended and is told no more."""

    stages: ClassVar = {1: Stage(8, 3), 2: Stage(4, 4), 3: None}

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return list(self.stages)

    def getStageInfo(self, stageId: int) -> Stage | None:  # noqa: N802, N803
        return self.stages[stageId]


class Session:
    """The used part of a session."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.statusTracker = Tracker


class Screen(io.StringIO):
    """Says when `text` was written."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.written = threading.Event()

    def write(self, text: str) -> int:
        if self._text in text:
            self.written.set()
        return super().write(text)


def shown(*, terminal: bool, count: SentCount, until: str) -> str:
    """What a console shows of a job that ends when it has shown `until`."""
    out = Screen(until)
    console = Console(file=out, force_terminal=terminal, width=120, _environ={"TERM": "xterm"})
    with JobProgress(cast("SparkSession", Session()), "publish to board", console, count.text):
        assert out.written.wait(60)
    return out.getvalue()


def test_publish_shows_a_running_count(topic: Topic) -> None:
    """A line in a log, and one line that is redrawn on a terminal; messages that were there before do not count."""
    topic.fill(5, 2)
    with SentCount(topic.broker.name_server, topic.name) as count:
        topic.fill(1000, 234, first=5)
        line = shown(terminal=False, count=count, until="sent")
        assert re.fullmatch(r" +\d+\.\d s  publish to board, 1,234 sent: 2 stages, 7 of 12 tasks\n", line), line
        topic.fill(1, first=2000)
        drawn = shown(terminal=True, count=count, until="sent")
        assert "publish to board, 1,235 sent" in drawn
        assert "2 stages, 7 of 12 tasks" in drawn


def test_the_count_of_a_topic_that_is_made_later(topic: Topic) -> None:
    """It begins at 0, and keeps the last number when no broker answers."""
    later = Topic(topic.broker, topic.name + "-later")
    with SentCount(topic.broker.name_server, later.name) as count:
        assert count.text() == "0 sent"
        later.resize(2)
        later.fill(3, 4)
        assert count.text() == "7 sent"
        later.delete()
        assert count.text() == "7 sent"
