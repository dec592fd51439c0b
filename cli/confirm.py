"""Asks for confirmation on a terminal before something is changed."""

import asyncio
import os
import sys

from lockstep.cli.output import CliError

__all__ = ["asks", "confirm"]

_ANSWER_BYTES = 1024


def asks(yes: bool) -> bool:
    """Whether to ask: only on a terminal, and not with --yes. A script goes on as with --yes."""
    return not yes and sys.stdin.isatty() and sys.stderr.isatty()


async def confirm(question: str) -> None:
    """Ask, and wait for the answer; a signal ends the wait. Raises CliError unless the answer is yes."""
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
