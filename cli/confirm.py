"""A question before something is changed, on a terminal."""

import asyncio
import os
import sys

from lockstep.cli.output import CliError

__all__ = ["asks", "confirm"]

_ANSWER_BYTES = 1024


def asks(yes: bool) -> bool:
    """Whether somebody is there to be asked: a script goes on as if it had said --yes."""
    return not yes and sys.stdin.isatty() and sys.stderr.isatty()


async def confirm(question: str) -> None:
    """Raises CliError unless the answer is yes. A signal ends the waiting as it ends any work."""
    sys.stderr.write(f"lockstep: {question} [y/N] ")
    sys.stderr.flush()
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    readable = asyncio.Event()
    loop.add_reader(number, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(number)
    answer = os.read(number, _ANSWER_BYTES).decode("utf-8", "replace").strip().lower()
    if answer not in ("y", "yes"):
        raise CliError("nothing is changed")
