"""What the tasks and threads of a process are at, as text: for whoever asks a running client what it waits for."""

import asyncio
import io
import sys
import traceback
from collections.abc import Mapping
from typing import Any

__all__ = ["task_stacks", "thread_stacks"]


def task_stacks() -> str:
    """A heading and a stack for every task of the running loop, by name."""
    text = io.StringIO()
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        text.write(f'"{task.get_name()}" task\n')
        awaited: Any = task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None)) is not None:  # get_stack shows the outermost only
            text.writelines(traceback.format_stack(frame, limit=1))
            awaited = awaited.cr_await
        text.write("\n")
    return text.getvalue()


def thread_stacks(names: Mapping[int, str]) -> str:
    """Likewise for every thread; `names` by their identifiers."""
    frames = sys._current_frames()  # noqa: SLF001 - the one way there is, and documented
    parts = [
        f'"{names.get(identifier, identifier)}" thread\n{"".join(traceback.format_stack(frames[identifier]))}\n'
        for identifier in sorted(frames)
    ]
    return "".join(parts)
