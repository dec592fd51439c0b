"""The native part: pure functions of this package, written in Rust (native/). Each has a twin in Python.

An installation has it when cargo built it or a platform wheel brought it. `LOCKSTEP_NATIVE=0` leaves it alone, and
`LOCKSTEP_NATIVE=1` fails without it. One that an older tree left behind is not used.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import Final

__all__ = ["INTERFACE", "NATIVE", "arm"]


# As in native/src/lib.rs: it rises when a function comes, goes, or takes and refuses other bytes than before.
INTERFACE: Final = 3


def _load() -> ModuleType | None:
    choice = os.environ.get("LOCKSTEP_NATIVE", "")
    if choice == "0":
        return None
    try:
        native = import_module("lockstep.protocol._native")
        if getattr(native, "INTERFACE", 0) != INTERFACE:
            raise ImportError("the native part is of another version of this tree; build it anew with `make native`")
        return native
    except ImportError:
        if choice == "1":
            raise
        return None


NATIVE: Final[ModuleType | None] = _load()


def arm() -> str:
    """What `--version` says of it."""
    return "native" if NATIVE is not None else "pure Python"
