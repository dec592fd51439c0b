"""Programs that drive a client of another language: they take `--name value`, and say what they do as JSON lines.

What a driver says goes to a file, which is read as it grows: the evidence of a killed one is whole, but for a torn
last line. Every driver is ended when its test ends; what they said is shown when it failed.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.harness.processes import PATIENCE
from tests.interop.harness.installed import BUILD, ROOT, jars, require

__all__ = ["FAST", "Driver", "Drivers", "Event"]

Event = dict[str, Any]
T = TypeVar("T")

# RocketMQ's own -D properties. They match servers.LOCK_LIFE_MS: renewed every 1.5 s, trusted for 5 s, kept for 10 s.
FAST = {
    "rocketmq.client.rebalance.waitInterval": "1000",
    "rocketmq.client.rebalance.lockInterval": "1500",
    "rocketmq.client.rebalance.lockMaxLiveTime": "5000",
    "rocketmq.client.unlockDelayTimeMills": "1500",
}
PATIENT = {"com.rocketmq.remoting.client.connect.timeout": "15000"}  # as for answers: Clients.java
JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]
POLL_S = 0.02
END_S = 15.0
SHOWN_LINES = 25


class Driver:
    """A running driver."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.events: list[Event] = []  # all it has said so far, as of the last look
        self._unread = b""
        self._offset = 0
        self._stdout, self._stderr = folder / f"{name}.jsonl", folder / f"{name}.err"
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._popen = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=out, stderr=err, env={**os.environ, **environment}
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative after a signal; None while it runs."""
        return self._popen.poll()

    @property
    def output(self) -> Path:
        """The file of its JSON lines."""
        return self._stdout

    def stderr(self) -> str:
        return self._stderr.read_text(encoding="utf-8", errors="replace")

    def look(self) -> list[Event]:
        """Read what it has said since; all its events. Lines that are no JSON object are left out."""
        with self._stdout.open("rb") as lines:
            lines.seek(self._offset)
            fresh = lines.read()
        self._offset += len(fresh)
        *whole, self._unread = (self._unread + fresh).split(b"\n")
        self.events += [json.loads(line) for line in whole if line.startswith(b"{")]
        return self.events

    def of(self, event: str) -> list[Event]:
        """Its events of one name, oldest first."""
        return [said for said in self.look() if said["event"] == event]

    async def wait_for(self, event: str | Callable[[Event], bool], timeout_s: float = 30) -> Event:
        """The first event of that name, or of which that is true, from its beginning on; fails when it ends without."""
        wanted = event if callable(event) else lambda said: said["event"] == event
        place = 0

        def look() -> Event | None:
            nonlocal place
            for said in self.look()[place:]:
                place += 1
                if wanted(said):
                    return said
            return None

        return await self.until(look, f"{self.name} says {event}", timeout_s)

    async def until(self, condition: Callable[[], T | None], what: str, timeout_s: float = 30) -> T:
        """The first true answer of `condition`; fails when the driver ends before or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s * PATIENCE
        while True:
            ended = self.status is not None
            answer = condition()
            if answer:
                return answer
            assert not ended, f"{self.name} ended with {self.status} before: {what}\n{self.tail()}"
            assert loop.time() < deadline, f"not within {timeout_s} s: {what}\n{self.tail()}"
            await asyncio.sleep(POLL_S)

    async def ended(self, timeout_s: float = END_S) -> int:
        """Wait for its end by itself; the exit status."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s * PATIENCE
        while self.status is None:
            assert loop.time() < deadline, f"{self.name} did not end within {timeout_s} s\n{self.tail()}"
            await asyncio.sleep(POLL_S)
        self.look()
        assert self.status is not None
        return self.status

    async def close(self, timeout_s: float = END_S) -> int:
        """Close its stdin, which asks it to end in order; the exit status."""
        self.tell_end()
        return await self.ended(timeout_s)

    async def terminate(self, timeout_s: float = END_S) -> int:
        self._popen.terminate()
        return await self.ended(timeout_s)

    async def kill(self) -> None:
        """SIGKILL: no word of goodbye to anybody."""
        self._popen.kill()
        assert await self.ended() == -signal.SIGKILL, f"{self.name} had ended before it was killed"

    def write(self, line: str) -> None:
        """A line on its stdin."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{line}\n".encode())
        self._popen.stdin.flush()

    def tell_end(self) -> None:
        if self._popen.stdin is not None and not self._popen.stdin.closed:
            try:
                self._popen.stdin.close()
            except BrokenPipeError:
                pass

    def end(self) -> None:
        """At the end of a test, whatever became of it."""
        self.tell_end()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._popen.poll() is None:
                self._popen.send_signal(number)
                try:
                    self._popen.wait(END_S)
                except subprocess.TimeoutExpired:
                    print(f"{self.name} did not end within {END_S} s of {number!r}")

    def tail(self) -> str:
        """The end of what it said, for a person."""
        said = self._stdout.read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [*said[-SHOWN_LINES:], *self.stderr().splitlines()[-SHOWN_LINES:]]
        return "\n  ".join([f"{self.name}: pid {self.pid}, status {self.status}", *lines])


class Drivers:
    """Starts drivers in a folder and ends all of them when left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Driver] = []

    def java(self, main_class: str, *, properties: dict[str, str] | None = None, **arguments: Any) -> Driver:
        """A class of scripts/interop/java. `properties` are -D properties on top of FAST."""
        return self._java("java", main_class, properties or {}, arguments)

    def _java(self, part: str, main_class: str, properties: dict[str, str], arguments: dict[str, Any]) -> Driver:
        require(part.replace("java", "drivers"))
        class_path = f"{BUILD / part / 'classes'}:{jars(part)}/*"
        home = [f"-Duser.home={self.folder}", f"-Drocketmq.client.logRoot={self.folder}/rocketmq-logs"]
        defined = [f"-D{name}={value}" for name, value in {**FAST, **PATIENT, **properties}.items()]
        command = ["java", *JVM, *home, *defined, "-cp", class_path, main_class, *words(arguments)]
        return self.start(main_class, command, {})

    def java5(self, main_class: str, *, properties: dict[str, str] | None = None, **arguments: Any) -> Driver:
        """The same class, with the client 5.x."""
        return self._java("java5", main_class, properties or {}, arguments)

    def node(self, script: str, **arguments: Any) -> Driver:
        """A script of scripts/interop/node."""
        modules = require("node") / "node_modules"
        path = ROOT / "scripts" / "interop" / "node" / script
        return self.start(path.stem, ["node", str(path), *words(arguments)], {"NODE_PATH": str(modules)})

    def go(self, command: str, **arguments: Any) -> Driver:
        """A command of scripts/interop/go: produce, consume."""
        return self.start(f"go-{command}", [str(require("go") / "driver"), command, *words(arguments)], {})

    def go5(self, command: str, **arguments: Any) -> Driver:
        """A command of scripts/interop/go5: produce, simple, push."""
        environment = {"rocketmq.client.logRoot": f"{self.folder}/rocketmq-logs"}
        return self.start(f"go5-{command}", [str(require("go5") / "driver"), command, *words(arguments)], environment)

    def node5(self, command: str, *, ca: str = "", **arguments: Any) -> Driver:
        """A command of scripts/interop/node5: produce, simple, push. `ca`: it speaks TLS, and believes this one."""
        path = ROOT / "scripts" / "interop" / "node5" / "driver.js"
        return self._checking("node5", ["node", str(path), command], ca, arguments, "NODE_PATH", "node_modules")

    def python5(self, command: str, *, ca: str = "", **arguments: Any) -> Driver:
        """The same of scripts/interop/python/driver5.py: RocketMQ's own client."""
        path = ROOT / "scripts" / "interop" / "python" / "driver5.py"
        return self._checking("python5", [sys.executable, str(path), command], ca, arguments, "PYTHONPATH", ".")

    def _checking(
        self, part: str, command: list[str], ca: str, arguments: dict[str, Any], variable: str, folder: str
    ) -> Driver:
        """A client of gRPC that checks certificates; its library takes those it believes from the environment."""
        environment = {variable: str(require(part) / folder), "HOME": str(self.folder)}
        if ca:
            arguments, environment = arguments | {"tls": True}, environment | {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": ca}
        return self.start(f"{part}-{command[-1]}", [*command, *words(arguments)], environment)

    def rust5(self, command: str, **arguments: Any) -> Driver:
        """A command of scripts/interop/rust5: produce, simple."""
        return self.start(f"rust5-{command}", [str(require("rust5") / "driver"), command, *words(arguments)], {})

    def cpp(self, script: str, **arguments: Any) -> Driver:
        """A Python script of scripts/interop/cpp, with the wheel that carries librocketmq on its path."""
        wheel = require("cpp")
        path = ROOT / "scripts" / "interop" / "cpp" / script
        environment = {"PYTHONPATH": str(wheel), "PYTHONUNBUFFERED": "1", "HOME": str(self.folder)}
        return self.start(path.stem, [sys.executable, str(path), *words(arguments)], environment)

    def python(self, script: str, **arguments: Any) -> Driver:
        """A Python script of scripts/interop/python: our own client, in a process of its own."""
        path = ROOT / "scripts" / "interop" / "python" / script
        environment = {"PYTHONUNBUFFERED": "1"}
        return self.start(path.stem, [sys.executable, str(path), *words(arguments)], environment)

    def start(self, name: str, command: Sequence[str], environment: dict[str, str]) -> Driver:
        """Any program that behaves as a driver."""
        driver = Driver(f"{name}-{len(self._started) + 1}", command, self.folder, environment)
        self._started.append(driver)
        return driver

    def end(self) -> None:
        """Tell all to end, wait for it, and show what they said."""
        for driver in self._started:
            driver.tell_end()
        for driver in reversed(self._started):
            driver.end()
        for driver in self._started:
            print(f"\n--- {driver.tail()}")


def words(arguments: dict[str, Any]) -> list[str]:
    """`name_server="a:1", tags=["x", "y"], manual=True` as --name-server a:1 --tags x --tags y --manual true."""
    found: list[str] = []
    for name, value in arguments.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            shown = str(one).lower() if isinstance(one, bool) else str(one)
            found += [f"--{name.replace('_', '-')}", shown]
    return found
