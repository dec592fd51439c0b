"""Ends a command that watches something when nobody reads its output any more."""

import asyncio
import select
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from lockstep.remoting.host.runtime import Runtime

__all__ = ["is_unread", "while_read"]

_LOOK_EVERY_S: Final = 0.2


@asynccontextmanager
async def while_read(runtime: Runtime) -> AsyncIterator[None]:
    """During the `with` block, look whether stdout can still be read. A command that waits writes nothing, so that no
    write tells it.

    Raises:
        BrokenPipeError: The reader has closed stdout; the block was cancelled.
    """
    block = asyncio.current_task()
    assert block is not None
    before = block.cancelling()
    unread = False

    async def look() -> None:
        nonlocal unread
        while not unread:
            await asyncio.sleep(_LOOK_EVERY_S)
            unread = is_unread()
        block.cancel()

    looking = runtime.create_task(look(), name="watch stdout")
    try:
        yield
    except asyncio.CancelledError:
        if unread and block.uncancel() <= before:  # else a signal came, too
            raise BrokenPipeError from None
        raise
    finally:
        looking.cancel()


def is_unread() -> bool:
    """Whether stdout is a pipe or a socket whose other end is closed."""
    waiting = select.poll()
    try:
        waiting.register(sys.stdout.fileno(), 0)  # errors and hang-ups are told always
    except (AttributeError, OSError, ValueError):  # no file stands behind it
        return False
    return bool(waiting.poll(0))
