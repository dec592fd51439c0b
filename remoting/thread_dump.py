"""Thread and task dump as text (like jstack), for GET_CONSUMER_RUNNING_INFO."""

import asyncio
import io
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

__all__ = ["frame_lines", "task_stacks", "thread_stacks"]


def frame_lines(frame: FrameType) -> str:
    """The place of a frame and its line of source."""
    return "".join(traceback.format_stack(frame, limit=1))


def task_stacks(tasks: Iterable[asyncio.Task[Any]], lines: Callable[[FrameType], str] = frame_lines) -> str:
    """The name and the stack of every task, sorted by name."""
    text = io.StringIO()
    for task in sorted(tasks, key=asyncio.Task.get_name):
        text.write(f'"{task.get_name()}" task\n')
        awaited: Any = task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None)) is not None:  # get_stack shows the outermost only
            text.write(lines(frame))
            awaited = awaited.cr_await
        text.write("\n")
    return text.getvalue()


def thread_stacks(names: Mapping[int, str]) -> str:
    """The name and the stack of every thread; `names` are by thread identifier."""
    frames = sys._current_frames()  # noqa: SLF001 - documented, and there is no other way
    parts = [
        f'"{names.get(identifier, identifier)}" thread\n{"".join(traceback.format_stack(frames[identifier]))}\n'
        for identifier in sorted(frames)
    ]
    return "".join(parts)
