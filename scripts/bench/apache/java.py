"""Java's client: one JVM for all measurements, so that its code is compiled when it counts."""

import json
import subprocess
from collections import deque
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from scripts.bench.apache.figures import Sample, Stopwatch
from scripts.bench.apache.servers import Contender
from tests.interop.harness.installed import BUILD, jars, require, version_of

__all__ = ["JavaClient", "said_by"]

JVM: Final = ("-XX:+UseSerialGC", "-Xms512m", "-Xmx512m")
END_S: Final = 20.0
SHOWN_LINES: Final = 20
_groups = count()


class JavaClient:
    """scripts/interop/java/BenchClient.java as a process. Everything it writes is in `folder`."""

    def __init__(self, folder: Path) -> None:
        require("drivers")
        class_path = f"{BUILD / 'java' / 'classes'}:{jars('java')}/*"
        defined = (f"-Duser.home={folder}", f"-Drocketmq.client.logRoot={folder}", "-Drocketmq.client.logLevel=WARN")
        command = ["java", *JVM, *defined, "-cp", class_path, "BenchClient"]
        self.version = version_of("java", "rocketmq-client")
        with ExitStack() as stack:
            errors = stack.enter_context((folder / "java-client.err").open("wb"))
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self._process = subprocess.Popen(command, cwd=folder, text=True, bufsize=1, **pipes)  # type: ignore[call-overload]
        said_by(self._process, "started")

    def _ask(self, contender: Contender, *words: object) -> Sample:
        watch = Stopwatch(contender.server.pids[0], self._process.pid)
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        said = said_by(self._process, "measured")
        return watch.sample(said["messages"], said["took_ns"] / 1e9)

    def send(self, contender: Contender, topic: str, threads: int, seconds: float) -> Sample:
        """Send in order, with a MessageQueueSelector and keys of its own for each thread."""
        return self._ask(contender, "send", contender.server.name_server, topic, threads, seconds)

    def drain(self, contender: Contender, topic: str, batch: int, messages: int) -> Sample:
        """Handle so many stored messages in order, as a new group; from the first call of the listener to the last."""
        group = f"BenchJava{next(_groups)}"
        sample = self._ask(contender, "drain", contender.server.name_server, topic, group, batch, messages)
        said_by(self._process, "ended")
        return sample

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def said_by(client: "subprocess.Popen[str]", event: str) -> dict[str, Any]:
    """The next event of this name. Raises RuntimeError with what the client said last when it ends before."""
    lines = deque[str](maxlen=SHOWN_LINES)
    for line in client.stdout or ():
        lines.append(line)
        said: dict[str, Any] = json.loads(line) if line.startswith("{") else {}  # RocketMQ writes there as well
        if said.get("event") == event:
            return said
    raise RuntimeError(f"the client ended with {client.wait()} before it said {event}:\n{''.join(lines)}")
