"""`--end-with-stdin`: end the broker when the process that started it, at the other end of a pipe, has ended."""

import asyncio
import os
import stat
import sys
from collections.abc import Callable

from lockstep.remoting.settings import SettingError

__all__ = ["watch_stdin"]


class _Stdin(asyncio.Protocol):
    """Ignores the bytes and waits for the end."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()


async def watch_stdin(closed: Callable[[], None]) -> None:
    """Call `closed` when stdin ends. Raises SettingError when stdin is no pipe."""
    mode = os.fstat(sys.stdin.fileno()).st_mode if sys.stdin else 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise SettingError("--end-with-stdin: stdin must be a pipe")
    await asyncio.get_running_loop().connect_read_pipe(lambda: _Stdin(closed), sys.stdin)
