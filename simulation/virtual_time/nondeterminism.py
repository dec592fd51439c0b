"""The nondeterminism guard: during a simulation, calls that bypass the Runtime fail.

Functions of the standard library are replaced by guards during a run: in their own modules, and in modules of Lockstep
and of the scenario that imported them by name (`from time import time`). A guard searches the stack for the caller,
skipping modules of the standard library that only pass calls on (random, uuid, pathlib, ...). Tools such as logging and
pytest are allowed. Not detected: C code, other threads, and names that third-party modules imported.
"""

import asyncio
import builtins
import datetime as dt
import io
import os
import random
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lockstep.simulation.errors import NondeterminismError
from lockstep.simulation.virtual_time.callers import PASSES_ON, caller_of, module_of
from lockstep.simulation.virtual_time.cures import (
    CLOCK,
    DISK,
    DRIVE,
    IDENTITY,
    NETWORK,
    PROCESSES,
    RANDOM,
    SLEEP,
    THREADS,
    WAITS,
    Cure,
)

__all__ = ["NondeterminismGuard"]

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
           "process_time_ns", "thread_time", "thread_time_ns", "localtime", "gmtime", "ctime")  # fmt: skip


class _Watch(NamedTuple):
    owner: Any  # a module or a class
    name: str
    cure: Cure
    is_nondeterministic: Callable[..., bool]  # given the call's arguments


def _always(*_: Any, **__: Any) -> bool:
    return True


def _without_argument(*args: Any, **_: Any) -> bool:
    """localtime(seconds) only converts a time."""
    return not args or args[0] is None


def _without_seed(_: object, seed: object = None, *__: Any, **___: Any) -> bool:
    return seed is None


def _module_level_random() -> list[str]:
    """The functions of `random` that use its global generator."""
    hidden = random.random.__self__  # type: ignore[attr-defined]  # a bound method
    return [name for name in random.__all__ if getattr(getattr(random, name), "__self__", None) is hidden]


def _watched() -> list[_Watch]:
    converts = {"localtime", "gmtime", "ctime"}
    clocks = [_Watch(time, name, CLOCK, _without_argument if name in converts else _always) for name in _CLOCKS]
    randomness = [_Watch(random, name, RANDOM, _always) for name in _module_level_random()]
    return [
        *clocks,
        _Watch(time, "sleep", SLEEP, _always),
        *randomness,
        _Watch(random.Random, "seed", RANDOM, _without_seed),
        _Watch(random, "_urandom", RANDOM, _always),  # what SystemRandom and secrets draw from
        _Watch(os, "urandom", RANDOM, _always),
        *(_Watch(secrets, name, RANDOM, _always) for name in ("token_bytes", "token_hex", "token_urlsafe")),
        _Watch(uuid, "uuid1", IDENTITY, _always),
        _Watch(uuid, "uuid4", IDENTITY, _always),
        _Watch(uuid, "getnode", IDENTITY, _always),
        _Watch(os, "getpid", IDENTITY, _always),
        _Watch(socket, "gethostname", IDENTITY, _always),
        _Watch(threading.Thread, "start", THREADS, _always),
        _Watch(threading.Condition, "wait", WAITS, _always),  # also of Event.wait(), Queue.get() and Future.result()
        _Watch(select, "select", WAITS, _always),
        # Before it is made: a loop that is half made cannot be closed.
        _Watch(asyncio.events, "new_event_loop", DRIVE, _always),
        _Watch(subprocess.Popen, "__init__", PROCESSES, _always),
        *(_Watch(os, name, PROCESSES, _always) for name in ("system", "fork")),
        _Watch(socket.socket, "__init__", NETWORK, _always),
        *(_Watch(socket, name, NETWORK, _always) for name in ("getaddrinfo", "gethostbyname", "socketpair")),
    ]


# Only Lockstep's own code must not use the real disk; a scenario may read its test vectors.
_WATCHED_DISK = [_Watch(owner, name, DISK, _always) for owner, name in ((builtins, "open"), (io, "open"), (os, "open"))]

_ALLOWED = {"_pytest", "_hypothesis_pytestplugin", "bdb", "coverage", "faulthandler", "hypothesis", "importlib",
        "inspect", "linecache", "logging", "pdb", "pluggy", "pytest", "pytest_asyncio", "pytest_timeout", "structlog",
        "tokenize", "traceback", "warnings"}  # fmt: skip
_OURS = "lockstep"
# Of each module of ours when it was looked at last: how many names it has, and which of them had to be replaced.
_SEEN: dict[str, tuple[types.ModuleType, int, Iterable[str]]] = {}


class NondeterminismGuard:
    """A context manager. Every forbidden call is added to `violations`; guards are also set in `modules`."""

    def __init__(self, violations: list[NondeterminismError], modules: tuple[str, ...] = ()) -> None:
        self._violations = violations
        self._modules = modules
        self._thread = threading.get_ident()
        self._undo: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        guards: dict[int, Any] = {}
        for watch in (*_watched(), *_WATCHED_DISK):
            original = getattr(watch.owner, watch.name)
            guard = self._guard(watch, original)
            if isinstance(watch.owner, types.ModuleType):
                guards[id(original)] = guard
            self._replace(watch.owner, watch.name, guard)
        for name in ("datetime", "date"):
            original = getattr(dt, name)
            guards[id(original)] = guarded = self._guard_date(original)
            self._replace(dt, name, guarded)
        self._replace_imported(guards)

    def __exit__(self, *_: object) -> None:
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)

    def _replace(self, owner: Any, name: str, guard: Any) -> None:
        self._undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, guard)

    def _replace_imported(self, guards: dict[int, Any]) -> None:
        """Set the guards also where a module has imported a function by name."""
        for module_name, module in list(sys.modules.items()):
            if module_name in self._modules:
                self._replace_in(module, list(vars(module)), guards)
            elif module_name.startswith(f"{_OURS}.") and not module_name.startswith(__package__):
                # Looking at all names of all modules took 1.4 ms a world.
                size = len(vars(module))
                known, known_size, names = _SEEN.get(module_name, (None, 0, ()))
                if known is not module or size != known_size:
                    names = [name for name, value in vars(module).items() if id(value) in guards]
                    _SEEN[module_name] = module, size, names
                self._replace_in(module, names, guards)

    def _replace_in(self, module: types.ModuleType, names: Iterable[str], guards: dict[int, Any]) -> None:
        for name in names:
            value = vars(module).get(name)
            if id(value) in guards:
                self._replace(module, name, guards[id(value)])

    def _guard(self, watch: _Watch, original: Callable[..., Any]) -> Callable[..., Any]:
        owner = watch.owner.__name__ if isinstance(watch.owner, types.ModuleType) else watch.owner.__qualname__
        made = watch.name == "__init__"  # people write socket.socket()
        what = f"{watch.owner.__module__}.{owner}" if made else f"{owner}.{watch.name}"
        ours_only = watch.cure is DISK

        def guard(*args: Any, **kwargs: Any) -> Any:
            if watch.is_nondeterministic(*args, **kwargs):
                self._check(what, watch.cure, ours_only)
            return original(*args, **kwargs)

        return guard

    def _guard_date(self, original: Any) -> Any:
        check = self._check

        class Meta(type(original)):  # type: ignore[misc]  # real dates must remain instances
            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, original)

            def __subclasscheck__(cls, subclass: type) -> bool:
                return issubclass(subclass, original)

        def reading(name: str) -> Any:
            def read(_: object, *args: Any, **kwargs: Any) -> Any:
                check(f"{original.__name__}.{name}", CLOCK, False)
                return getattr(original, name)(*args, **kwargs)

            return classmethod(read)

        readers = [name for name in ("now", "utcnow", "today") if hasattr(original, name)]
        return Meta(original.__name__, (original,), {name: reading(name) for name in readers})

    def _check(self, what: str, cure: Cure, ours_only: bool) -> None:
        """Raises NondeterminismError unless the caller is allowed."""
        if threading.get_ident() != self._thread:
            return
        frame: types.FrameType | None = sys._getframe(2)  # noqa: SLF001 - the only way to see a caller
        first = frame
        while frame is not None:
            top = module_of(frame).partition(".")[0]
            if top in _ALLOWED or (ours_only and top != _OURS and top not in PASSES_ON):
                return
            if top not in PASSES_ON and module_of(frame) != __name__:
                break
            frame = frame.f_back
        caller = caller_of(first, aside=__name__)
        error = NondeterminismError(caller.refusal(what, cure))
        self._violations.append(error)
        raise error
