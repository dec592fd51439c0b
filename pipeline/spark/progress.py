"""Shows on stderr how far Spark is, for work of more than two seconds.

On a terminal one line is redrawn; elsewhere there is a new line every five seconds, if it says something new.
"""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JobProgress", "Stage", "Tracker", "Work", "work_of"]

_AFTER_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.5
_LINE_EVERY_S: Final = 5.0
_EQUAL_LINE_EVERY_S: Final = 60.0
_END_TIMEOUT_S: Final = 5.0


class Tracker(Protocol):
    """The used part of Spark's StatusTracker."""

    def getActiveStageIds(self) -> list[int]: ...  # noqa: N802
    def getStageInfo(self, stageId: int) -> "Stage | None": ...  # noqa: N802, N803


class Stage(Protocol):
    @property
    def numTasks(self) -> int: ...  # noqa: N802
    @property
    def numCompletedTasks(self) -> int: ...  # noqa: N802


class Work(NamedTuple):
    """Spark's running stages and tasks at one moment."""

    stages: int
    tasks: int
    done: int

    def __str__(self) -> str:
        stages = "1 stage" if self.stages == 1 else f"{self.stages} stages"
        return f"{stages}, {self.done:,} of {self.tasks:,} tasks"


def work_of(tracker: Tracker) -> Work:
    """The sum of all running stages."""
    found = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    return Work(len(found), sum(info.numTasks for info in found), sum(info.numCompletedTasks for info in found))


class JobProgress:
    """`with JobProgress(spark, "audit") as progress: progress.show("reading the traces")`, from any thread.

    `count` gives a further text to show each time, such as how many messages were sent. It runs in a thread of this
    object.
    """

    def __init__(
        self,
        spark: "SparkSession",
        what: str,
        console: Console | None = None,
        count: Callable[[], str] = str,
    ) -> None:
        self._tracker: Tracker = spark.sparkContext.statusTracker()
        self._what = what
        self._count = count
        self._console = console or Console(stderr=True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="spark-progress", daemon=True)

    def show(self, what: str) -> None:
        """The text to show from now on."""
        self._what = what

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(_END_TIMEOUT_S)

    def _follow(self) -> None:
        if self._ended.wait(_AFTER_S):
            return
        follow = self._redraw if self._console.is_terminal else self._write_lines
        follow()

    def _redraw(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[work]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task: TaskID = progress.add_task(self._what, total=None, work="")
            while True:
                work = self._look()
                total = work.tasks if work and work.tasks else None
                progress.update(task, description=self._shown(), total=total, completed=work.done if work else 0,
                                work=str(work or ""))  # fmt: skip
                if self._ended.wait(_LOOK_EVERY_S):
                    return

    def _write_lines(self) -> None:
        began, last, last_s = time.monotonic(), "", 0.0
        while True:
            work = self._look()
            took_s = time.monotonic() - began + _AFTER_S
            text = self._shown() + (f": {work}" if work else "")
            if text != last or took_s - last_s >= _EQUAL_LINE_EVERY_S:
                self._console.print(f"{took_s:6.1f} s  {text}", highlight=False)
                last, last_s = text, took_s
            if self._ended.wait(_LINE_EVERY_S):
                return

    def _shown(self) -> str:
        return ", ".join(filter(None, (self._what, self._count())))

    def _look(self) -> Work | None:
        """None while Spark runs nothing, or does not answer."""
        try:
            work = work_of(self._tracker)
        except Exception as error:  # the session may end during the call, and py4j then raises many kinds of errors
            if sys.is_finalizing() or self._ended.is_set():
                return None
            self._what = f"{self._what} (Spark does not show its progress: {type(error).__name__})"
            return None
        return work if work.stages else None
