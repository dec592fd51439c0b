"""Who called: the code that is to blame for a call which leaves the simulation."""

import sys
from pathlib import PurePath
from types import FrameType
from typing import Final

__all__ = ["PASSES_ON", "place_of", "place_of_caller"]

# Modules of the standard library that only pass calls on.
PASSES_ON: Final = frozenset({
    "asyncio", "concurrent", "ftplib", "http", "multiprocessing", "pathlib", "queue", "random", "secrets", "selectors",
    "smtplib", "socket", "socketserver", "ssl", "subprocess", "tempfile", "threading", "urllib", "uuid",
})  # fmt: skip


def place_of(frame: FrameType | None) -> str:
    """ "shop.py:14" """
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else "nowhere"


def place_of_caller() -> str:
    """Where the function that asks was called from, behind the standard library."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the only way to see a caller
    while frame is not None and str(frame.f_globals.get("__name__", "?")).partition(".")[0] in PASSES_ON:
        frame = frame.f_back
    return place_of(frame)
