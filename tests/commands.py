"""Commands of the project as processes, for tests that read what they print: a broker, `lockstep`, programs.

They are forked (`tests.forked`), which saves the half second of a start. `Running` with `subprocess.Popen` starts one.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from lockstep.testing.process import BrokerProcess
from tests.forked.process import Forked

__all__ = [
    "END_S",
    "NO_SETTINGS",
    "SCRIPTS",
    "TIMEOUT_S",
    "ForkedBroker",
    "Lockstep",
    "Result",
    "Running",
    "is_readable",
    "running_broker",
    "without_progress",
]

TIMEOUT_S = 120  # of a busy machine
END_S = 60
SCRIPTS = Path(sys.executable).parent
NO_SETTINGS = SCRIPTS / "no-settings"  # instead of the folder with the contexts of the person who runs the tests


# Of a command that takes longer than 2 s, and of a consumer that has no queue or no message by then or stood still.
_PROGRESS = re.compile(
    r"lockstep: ([\d,]+ [\w ]+, [\d,]+/s|waiting for a queue of .*|no message for .*|loop_kept .*)\n"
)


def without_progress(errors: str) -> str:
    """What a command said, without what it says on a busy machine too."""
    return _PROGRESS.sub("", errors)


class Result(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """stdout as JSON: an array, or an object a line."""
        if self.out.startswith("["):
            return list(json.loads(self.out))
        return [json.loads(line) for line in self.out.splitlines()]


def is_readable(file: int | IO[bytes], timeout_s: float) -> bool:
    """Whether a descriptor has data, or its end, within this time; unlike `select.select`, above 1,023 too."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


class Running:
    """A process that runs beside the test; ended by `with`."""

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        *,
        stdout: int = subprocess.PIPE,
        starter: Callable[..., Forked | subprocess.Popen[bytes]] = Forked,
    ) -> None:
        pipe = subprocess.PIPE
        self.popen = starter(command, stdin=pipe, stdout=stdout, stderr=pipe, env=environment)
        self._seen = b""
        self._seen_errors = b""

    def line(self, timeout_s: float = TIMEOUT_S) -> str:
        """The next line on stdout, waited for."""
        line, self._seen = self._next_line(self.popen.stdout, self._seen, timeout_s)
        return line

    def error_line(self, timeout_s: float = TIMEOUT_S) -> str:
        """The next line on stderr, waited for."""
        line, self._seen_errors = self._next_line(self.popen.stderr, self._seen_errors, timeout_s)
        return line

    def _next_line(self, stream: IO[bytes] | None, seen: bytes, timeout_s: float) -> tuple[str, bytes]:
        """(a line, the bytes after it)."""
        assert stream is not None
        while b"\n" not in seen:
            assert is_readable(stream, timeout_s), f"no line within {timeout_s} s"
            data = os.read(stream.fileno(), 65536)
            assert data, f"it ended with {self.popen.wait(END_S)}: {self._errors()}"
            seen += data
        line, _, rest = seen.partition(b"\n")
        return line.decode() + "\n", rest

    def stop(self, number: signal.Signals) -> Result:
        self.popen.send_signal(number)
        return self.ended()

    def ended(self, timeout_s: float = TIMEOUT_S, *, data: bytes = b"") -> Result:
        out, err = self.popen.communicate(data, timeout_s)
        return Result(self.popen.wait(), (self._seen + out).decode(), (self._seen_errors + err).decode())

    def _errors(self) -> str:
        assert self.popen.stderr is not None
        return (self._seen_errors + self.popen.stderr.read()).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()


@dataclass(frozen=True)
class Lockstep:
    """The `lockstep` command and other programs, with the name server in the environment."""

    name_server: str

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        inherited.pop("LOCKSTEP_CONTEXT", None)
        return {**inherited, "NAMESRV_ADDR": self.name_server, "XDG_CONFIG_HOME": str(NO_SETTINGS)}

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [str(SCRIPTS / "lockstep"), *arguments]

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        """`lockstep` with these arguments, to its end."""
        return self.run("lockstep", *arguments, stdin=stdin)

    def run(self, program: str, *arguments: str, stdin: str | bytes = b"") -> Result:
        """A program of the project, to its end."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        with Running([str(SCRIPTS / program), *arguments], self.environment) as running:
            return running.ended(data=data)

    def start(self, *arguments: str) -> Running:
        return Running(self.command(*arguments), self.environment)

    def program(self, path: Path, *arguments: str) -> Running:
        return Running([sys.executable, "-u", str(path), *arguments], self.environment)


class ForkedBroker(BrokerProcess):
    starter = Forked


@contextmanager
def running_broker(*options: str) -> Iterator[Lockstep]:
    """A broker with a name server on free ports, and the command that talks to it."""
    with ForkedBroker(*options) as broker:
        yield Lockstep(broker.name_server)
