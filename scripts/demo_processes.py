"""The demo's processes: started with a log of their own, watched, and every one ended by its own handle."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Child", "Children", "ProcessDied"]

SCRIPTS = Path(__file__).parent
END_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 12
LOOKS_FOR_THE_DEAD, LOOK_PAUSE_S = 20, 0.05


class ProcessDied(RuntimeError):
    """A process of the demo ended that should not have."""


class Child:
    """A running process. Its stdout is ours to read, its stderr goes to its log file."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    async def line(self) -> str:
        """The next line of its stdout. Raises ProcessDied when there is none."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        if not line:
            await self.process.wait()
            raise ProcessDied(self.obituary())
        return line

    def obituary(self) -> str:
        """How it ended, with the end of its log."""
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n  ".join([f"{self.name} ended with status {self.process.returncode}", *tail])


class Children:
    """Everything the demo started. Leaving its `async with` ends what still runs, by SIGKILL after an exception."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Child] = []

    async def start(self, name: str, *arguments: str) -> Child:
        """Start a Python process: a script of this folder, or `-m module`."""
        log = self._folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )
        child = Child(name, process, log)
        self._running.append(child)
        return child

    async def start_script(self, name: str, script: str, *arguments: str) -> Child:
        """Start one of the demo's own scripts."""
        return await self.start(name, str(SCRIPTS / script), *arguments)

    def __iter__(self) -> Iterator[Child]:
        return iter(self._running)

    def check(self) -> None:
        """Raises ProcessDied when one of them has ended with a failure by itself."""
        for child in self._running:
            if child.process.returncode:
                raise ProcessDied(child.obituary())

    async def find_dead(self) -> None:
        """After a connection broke: raises ProcessDied if a process has ended, which may be known a moment later."""
        for _ in range(LOOKS_FOR_THE_DEAD):
            self.check()
            await asyncio.sleep(LOOK_PAUSE_S)

    async def kill(self, child: Child) -> None:
        """SIGKILL, without warning."""
        self._running.remove(child)
        child.process.kill()
        await child.process.wait()

    async def end(self, *children: Child) -> None:
        """SIGTERM to all of them at once, and SIGKILL to those that take longer than 10 s."""
        for child in children:
            if child.process.returncode is None:
                child.process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                for child in children:
                    await child.process.wait()
        finally:
            for child in children:
                if child.process.returncode is None:
                    child.process.kill()
                    await child.process.wait()
        self._running = [child for child in self._running if child not in children]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is not None:  # nobody waits for good manners after a failure or Ctrl-C
            for child in self._running:
                if child.process.returncode is None:
                    child.process.kill()
        await self.end(*self._running)
