"""Who called: the code that is to blame for a call which leaves the simulation."""

import sys
from pathlib import PurePath
from types import FrameType
from typing import Final, NamedTuple

from lockstep.simulation.virtual_time.cures import CURES_OF_MODULES, Cure

__all__ = ["PASSES_ON", "Caller", "caller_of", "module_of", "place_of", "public_name"]

# Modules of the standard library that only pass calls on.
PASSES_ON: Final = frozenset({
    "asyncio", "concurrent", "ftplib", "http", "multiprocessing", "pathlib", "queue", "random", "secrets", "selectors",
    "smtplib", "socket", "socketserver", "ssl", "subprocess", "tempfile", "threading", "urllib", "uuid",
})  # fmt: skip


class Caller(NamedTuple):
    """Who called something that leaves the simulation.

    Args:
        place: as "shop.py:14", behind the standard library.
        called: what is written there, as "multiprocessing.Process", where that is a function of the standard library
            which only passed the call on; None: it is what was called.
        module: of that function; empty: there is none.
        is_ours: it is code of Lockstep.
    """

    place: str
    called: str | None
    module: str
    is_ours: bool

    def refusal(self, what: str, cure: Cure) -> str:
        """The text of the error.

        Args:
            what: was called, if nothing passed it on.
        """
        called = f"{self.called or what}() at {self.place}"
        cure = next((one for name, one in CURES_OF_MODULES.items() if f"{self.module}.".startswith(f"{name}.")), cure)
        return f"{called} bypasses the simulation: {cure.ours if self.is_ours else cure.others}"


def caller_of(frame: FrameType | None, *, aside: str = "") -> Caller:
    """The first frame outside of the modules that only pass calls on, from `frame` outwards.

    Args:
        aside: a module whose frames do not count.
    """
    passed: FrameType | None = None
    while frame is not None:
        if module_of(frame).partition(".")[0] in PASSES_ON:
            passed = frame
        elif module_of(frame) != aside:
            break
        frame = frame.f_back
    place = place_of(frame) if frame is not None else "nowhere"
    is_ours = frame is not None and module_of(frame).partition(".")[0] == "lockstep"
    if passed is None:
        return Caller(place, None, "", is_ours)
    return Caller(place, public_name(passed), module_of(passed), is_ours)


def place_of(frame: FrameType) -> str:
    """ "shop.py:14" """
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


def public_name(frame: FrameType) -> str:
    """The function of a frame as people write it: "subprocess.run", "asyncio.Event.wait", "multiprocessing.Process"."""
    code, module = frame.f_code, module_of(frame)
    for package in _packages(module):
        found = getattr(sys.modules.get(package), code.co_name, None)
        if getattr(found, "__code__", None) is code:  # a function, or a bound method
            return f"{package}.{code.co_name}"
    owners = _owners(frame)
    if not owners:
        return f"{module}.{code.co_qualname}"
    defining = [one for one in owners if getattr(vars(one).get(code.co_name), "__code__", None) is code]
    owner = next((one for one in defining if _home(one) != one.__module__ or "." not in one.__module__), owners[0])
    name = f"{_home(owner)}.{owner.__name__}"
    return name if code.co_name == "__init__" else f"{name}.{code.co_name}"


def _home(owner: type) -> str:
    """The package that people import a class from."""
    packages = _packages(owner.__module__)
    return next(
        one for one in packages if one == owner.__module__ or vars(sys.modules[one]).get(owner.__name__) is owner
    )


def _packages(module: str) -> list[str]:
    """ "a.b.c" -> "a", "a.b", "a.b.c": people import from the shortest that has a name."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _owners(frame: FrameType) -> list[type]:
    """The class of the method that a frame runs, and its bases; none that a user has made of them."""
    code = frame.f_code
    if not code.co_argcount or code.co_qualname == code.co_name:
        return []
    kinds = type(frame.f_locals.get(code.co_varnames[0])).__mro__
    top = module_of(frame).partition(".")[0]
    return [one for one in kinds if one.__module__.partition(".")[0] == top]
