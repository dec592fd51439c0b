"""LeftWork: finds work that a listener's call started, and that goes on after the call returned.

Such a message counts as handled although its work is not done, the next message of its key begins, and a crash loses
the work. Some calls are looked at: the first ones, then about one a second. Within such a call a variable of the
context has a mark; tasks and timers copy the context in which they are made.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from functools import partial
from types import CodeType
from typing import Any, Final

from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog

__all__ = ["LeftWork", "Look"]

_CALL: Final[ContextVar[object]] = ContextVar("call", default=None)
_FIRST_LOOKS: Final = 16
_CALLS_BETWEEN: Final = 64  # after the first ones: so few calls ask the clock
_LOOK_EVERY_MS: Final = 1000  # a look costs a microsecond for each task of the loop
# A task that the first calls start and that lives on, such as one of a pool of connections, is no work of a message.
_WARN_AT: Final = 3
# A send that nobody awaits is the user's work. Other tasks of ours, such as one of a connection, are not.
_OF_PRODUCERS: Final = "lockstep.client.producer.producer"


class LeftWork:
    """Of the calls of one listener."""

    def __init__(self, runtime: Runtime, log: EventLog, group: str) -> None:
        self.calls_between = 1  # until the next look
        self.runtime = runtime
        self._log = log
        self._group = group
        self._looks = 0
        self._last_ms = 0
        self._seen: Counter[tuple[str, CodeType]] = Counter()

    def look(self, listener: Callable[..., Any], *, is_async: bool) -> "Look | None":
        """Begin to look at the call that comes now; None: the last look was a moment ago."""
        if self._looks >= _FIRST_LOOKS:
            self.calls_between = _CALLS_BETWEEN
            now_ms = self.runtime.now_ms()
            if now_ms - self._last_ms < _LOOK_EVERY_MS:
                return None
            self._last_ms = now_ms
        self._looks += 1
        return Look(self, listener, is_async=is_async)

    def pending(self, mark: object) -> Iterator[tuple[str, CodeType]]:
        """The tasks and timers that have the mark: "task" or "timer", and the code that they run."""
        pending = self.runtime.pending()
        for task in pending.tasks:
            if task.done() or task.cancelling() or _context_of(task).get(_CALL) is not mark:
                continue
            running: Any = task.get_coro()
            frame = getattr(running, "cr_frame", None)
            if frame is not None and not _is_ours(frame.f_globals.get("__name__")):
                yield "task", frame.f_code
        for callback, context in pending.timers:
            if context.get(_CALL) is not mark:
                continue
            function = callback.func if isinstance(callback, partial) else callback
            code = getattr(function, "__code__", None)
            if code is not None and not _is_library(function.__module__, code):
                yield "timer", code

    def found(self, kind: str, code: CodeType) -> None:
        """Tell of work; as a warning once for each function."""
        self._seen[kind, code] += 1
        work = f"{kind} {code.co_qualname} ({_file(code)}:{code.co_firstlineno})"
        self._log.debug("listener_left_work_seen", work=work)
        if self._seen[kind, code] == _WARN_AT:
            why = f"a call of the listener of {self._group} returned while a {work} went on: await it in the call"
            consequence = "the message counts as handled, and the next one of its key begins"
            self._log.warning("listener_left_work", work=work, why=why, consequence=consequence)


class Look:
    """At one call of a listener. Call `listener` in place of the user's, then `ended` on the event loop."""

    def __init__(self, of: LeftWork, listener: Callable[..., Any], *, is_async: bool) -> None:
        self.listener = self._call_async if is_async else self._call
        self._of = of
        self._inner = listener
        self._mark = object()
        self._threads = frozenset(of.runtime.pending().threads)

    async def _call_async(self, *arguments: Any) -> Any:
        token = _CALL.set(self._mark)
        try:
            return await self._inner(*arguments)
        finally:
            _CALL.reset(token)

    def _call(self, *arguments: Any) -> Any:
        token = _CALL.set(self._mark)
        try:
            return self._inner(*arguments)
        finally:
            _CALL.reset(token)

    def ended(self) -> None:
        """The call has returned."""
        for kind, code in dict.fromkeys([*self._of.pending(self._mark), *self._new_threads()]):
            self._of.found(kind, code)

    def _new_threads(self) -> Iterator[tuple[str, CodeType]]:
        """Threads that run a function of the listener's own module. No thread knows who started it."""
        module = getattr(self._inner, "__module__", None)
        for thread, target in self._of.runtime.pending().threads.items():
            code = getattr(target, "__code__", None)
            if thread not in self._threads and code is not None and getattr(target, "__module__", None) == module:
                yield "thread", code


def _context_of(task: asyncio.Task[Any]) -> Context:
    get = getattr(task, "get_context", None)  # since Python 3.12
    if get is not None:
        return get()  # type: ignore[no-any-return]
    return next((one for one in gc.get_referents(task) if type(one) is Context), _NO_CONTEXT)


_NO_CONTEXT: Final = Context()


def _is_ours(module: Any) -> bool:
    return str(module).partition(".")[0] == "lockstep" and module != _OF_PRODUCERS


def _is_library(module: Any, code: CodeType) -> bool:
    """Whose timers keep connections alive, or end a wait."""
    top = str(module).partition(".")[0]
    return top == "lockstep" or top in sys.stdlib_module_names or "site-packages" in code.co_filename


def _file(code: CodeType) -> str:
    return code.co_filename.replace("\\", "/").rpartition("/")[2]
