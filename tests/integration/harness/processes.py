"""Real processes for tests: each is started, watched and ended by its own handle, also when its test fails."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar, overload

from lockstep.client import AdminClient, ClientConfig, ProducerConfig, SerializeType
from lockstep.testing.process import BrokerProcess, ChildProcess
from tests.forked.process import Forked

__all__ = [
    "ANSWER_MS",
    "PATIENCE",
    "PATIENT",
    "PATIENT_CLIENT",
    "PATIENT_PRODUCER",
    "Broker",
    "ConsumerProcess",
    "Process",
    "Processes",
    "rss_bytes",
    "until",
]

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
CONSUMER_PROGRAM = "tests.integration.harness.consumer_program"
POLL_S = 0.02
ANSWER_MS = 20_000  # for a request of a test's own client; RocketMQ's 3 s are short on a busy machine
PATIENT: Final[dict[str, Any]] = {"connect_timeout_ms": ANSWER_MS, "request_timeout_ms": ANSWER_MS}
PATIENT_CLIENT: Final = ClientConfig(**PATIENT)
PATIENT_PRODUCER: Final = ProducerConfig(**PATIENT, send_timeout_ms=ANSWER_MS)
PATIENCE = 6  # times the seconds a condition should take: machines are shared, and what comes true waits for nothing
END_S = 10.0  # from a signal to the end of a process
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}


@overload
async def until(condition: Callable[[], Awaitable[T | None]], what: str, timeout_s: float = 15) -> T: ...
@overload
async def until(condition: Callable[[], T | None], what: str, timeout_s: float = 15) -> T: ...
async def until(condition: Callable[[], Any], what: str, timeout_s: float = 15) -> Any:
    """The first true answer of `condition`, asked again and again; fails with `what` when the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s * PATIENCE
    while True:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        assert loop.time() < deadline, f"not within {timeout_s} s: {what}; last seen: {answer!r}"
        await asyncio.sleep(POLL_S)


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(shown.stdout) * 1024


class Process(ChildProcess):
    """A process that a test waits for without blocking its event loop; forked, which saves the time of a start."""

    starter = Forked

    async def ended(self, timeout_s: float = END_S) -> int:
        """Wait for its end; the exit status."""
        await until(lambda: self.status is not None, f"the end of {self.name}", timeout_s)
        assert self.status is not None
        return self.status

    async def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = END_S) -> int:
        self.send_signal(number)
        return await self.ended(timeout_s)

    async def said(self, pattern: re.Pattern[str], timeout_s: float = 15) -> re.Match[str]:
        """The first match on its stdout; fails at once when the process ends without."""

        def look() -> re.Match[str] | None:
            ended = self.status is not None
            found = pattern.search(self.stdout())
            assert found or not ended, self.tail()
            return found

        return await until(look, f"{self.name} says {pattern.pattern!r}", timeout_s)


class Broker(BrokerProcess, Process):
    """A broker with its name server; it logs JSON lines on stderr."""

    def admin(self, serialize_type: SerializeType = SerializeType.MSGPACK) -> AdminClient:
        """A client that waits on a busy machine for as long as it must."""
        return AdminClient(name_server=self.name_server, config=ClientConfig(serialize_type=serialize_type, **PATIENT))


class ConsumerProcess(Process):
    client_id: str
    trace: Path


@dataclass
class Processes:
    """Starts processes in `folder` and ends all of them when left."""

    folder: Path

    def __post_init__(self) -> None:
        self._started: list[Process] = []

    def _note(self, process: Process) -> None:
        self._started.append(process)

    def _name(self, kind: str) -> str:
        return f"{kind}-{sum(process.name.startswith(kind) for process in self._started) + 1}"

    async def broker(self, *options: str, like: Broker | None = None) -> Broker:
        """A broker that listens; on the ports of `like`, which has ended, or on free ones."""
        ports = (like.port, like.name_server_port) if like is not None else (0, 0)
        given = (f"--port={ports[0]}", f"--name-server-port={ports[1]}", "--log-format=json", *options)
        process = await asyncio.to_thread(Broker, *given, name=self._name("broker"), folder=self.folder)
        self._note(process)
        return process

    async def consumer(self, broker: Broker, topic: str, *, group: str, **spec: Any) -> ConsumerProcess:
        """A consumer that has started; `spec` is as consumer_program.py describes it."""
        name = self._name("consumer")
        trace = self.folder / f"{name}.trace"
        spec |= {"name_server": broker.name_server, "topic": topic, "group": group, "trace": str(trace)}
        command = [sys.executable, "-m", CONSUMER_PROGRAM, json.dumps(spec)]
        process = ConsumerProcess(name, command, self.folder, env=UNBUFFERED, cwd=ROOT)
        self._note(process)
        process.client_id = (await process.said(re.compile(r"started (\S+)\n")))[1]
        process.trace = trace
        return process

    def program(self, name: str, *arguments: str) -> Process:
        """Any program of this Python."""
        process = Process(self._name(name), [sys.executable, *arguments], self.folder, env=UNBUFFERED)
        self._note(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            process.end()
        for process in self._started:
            print(f"\n--- pid {process.pid}: {process.tail()}")
