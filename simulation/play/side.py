"""A side of the page: the process that plays its run, and what it has shown and told until now."""

import asyncio
import contextlib
import json
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from lockstep.simulation.play import worker

__all__ = ["Json", "Side", "SideDiedError"]

Json = dict[str, Any]

_KEPT: Final = {"story": 2000, "calls": 2000, "marks": 2000, "wrongs": 200}
_LINE_BYTES_MAX: Final = 1 << 26
_END_S: Final = 2.0
_SILENT_S: Final = 10.0  # on its way a process tells where it is 10 times a second, if a listener lets it
_LONG: Final = "timeline"  # an order that plays whole runs and tells nothing meanwhile


class SideDiedError(Exception):
    """The process of a side has ended by itself. The text is a sentence."""


class Side:
    """Orders to a process, one at a time, and its answers.

    Args:
        on_change: called when there is something new to show.
    """

    def __init__(self, on_change: Callable[[], object]) -> None:
        self.scene: Json = {}
        self.passes_ms: int | None = None  # where it is on its way; None: it is on none
        self.died = ""  # why there is no process
        self._on_change = on_change
        self._kept: dict[str, deque[Json]] = {name: deque(maxlen=size) for name, size in _KEPT.items()}
        self._counts = dict.fromkeys(_KEPT, 0)  # all that were told, also those that are not kept
        self._answer: asyncio.Future[Json] | None = None
        self._has_told = True  # since the last look
        self._order = ""  # the one that is not answered yet
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    async def start(self) -> None:
        """Start a process."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                worker.__name__,
                str(number),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(number,),
            )
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=_LINE_BYTES_MAX)
        self.died = ""
        self._reading = asyncio.create_task(self._read(reader), name="play side")

    async def end(self) -> None:
        """End the process; it is gone when this returns."""
        process, self._process = self._process, None
        if process is None:
            return
        self._reading.cancel()
        self._writer.close()  # the process ends with it, after its present slice
        await _ended(process)

    @property
    def now_ms(self) -> int:
        return int(self.scene.get("now_ms", 0))

    @property
    def is_over(self) -> bool:
        return bool(self.scene.get("over"))

    @property
    def is_judged(self) -> bool:
        """Whether the judge has read all that is shown, or there is none."""
        return bool(self.died or self.scene.get("is_judged", True))

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def forget(self) -> None:
        """Another run begins."""
        self.scene = {}
        for name, kept in self._kept.items():
            kept.clear()
            self._counts[name] = 0

    def new_since(self, counts: Json) -> Json:
        """The scene, with what was told since; `counts` is brought up to date."""
        new: Json = {}
        for name, kept in self._kept.items():
            count = min(self._counts[name] - counts.get(name, 0), len(kept))
            new[name] = list(kept)[len(kept) - count :] if count else []
        new["story"] = sorted([*new["story"], *new.pop("calls")], key=lambda one: one["at_ms"])
        counts.update(self._counts)
        shown = {key: value for key, value in self.scene.items() if key not in ("taken", "can_touch", "is_judged")}
        return shown | new | ({"error": self.died} if self.died else {})

    # Orders --------------------------------------------------------------------------------------------------

    async def ask(self, do: str, **order: Any) -> Json:
        """Give an order, and wait until it is done. A process that tells nothing for long is ended.

        Raises:
            SideDiedError: the process has ended.
        """
        if self.died:
            raise SideDiedError(self.died)
        assert self._answer is None
        self._answer = asyncio.get_running_loop().create_future()
        self._order = do
        self._send({"do": do, **order})
        try:
            while not (await asyncio.wait([self._answer], timeout=_SILENT_S))[0]:
                if not self._has_told and do != _LONG and self._process is not None:
                    self._process.kill()
                self._has_told = False
            return self._answer.result()
        finally:
            self._answer = self.passes_ms = None
            self._has_told, self._order = True, ""

    def hold(self) -> None:
        """Let it stop where it is on its way."""
        if self._answer is not None and not self.died:
            self._send({"do": "hold"})

    def _send(self, order: Json) -> None:
        self._writer.write(json.dumps(order).encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # ValueError: an answer that is too large
            while line := await reader.readline():
                self._hear(json.loads(line))
        await self._is_dead()

    def _hear(self, message: Json) -> None:
        self._has_told = True
        if "new" in message and self._order == "start":
            return  # it is of the run before
        side = message.get("at") or message.get("side") or message.get("new")
        if side is not None:
            self._show(side)
        if "passes" in message:
            self.passes_ms = message["passes"]
            self._on_change()
        elif "new" not in message and self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _show(self, side: Json) -> None:
        for name, kept in self._kept.items():
            new = side.pop(name, ())
            kept.extend(new)
            self._counts[name] += len(new)
        if "hosts" in side:
            self.scene = side
        else:
            self.scene |= side
        self._on_change()

    async def _is_dead(self) -> None:
        process = self._process
        assert process is not None
        self._process = None
        self._writer.close()
        status = await _ended(process)
        how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        if not self._has_told:
            how = f"did not answer for {_SILENT_S:g} s, as when a listener never returns, and was ended"
        self.died = f"The process of this run {how}. Start the run again."
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(SideDiedError(self.died))
        self._on_change()


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for the end of a process, and end it if that takes long. Returns its status."""
    try:
        async with asyncio.timeout(_END_S):
            return await process.wait()
    except TimeoutError:  # not before: `kill` takes the status of a process that has ended, and asyncio has none then
        process.kill()
        return await process.wait()
