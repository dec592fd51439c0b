"""Processes for tests, benchmarks and the demo: a broker, or any other program, with its output in files.

Files instead of pipes: a process never blocks because its reader is slow, and an error can show the end of its log.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

__all__ = ["Addresses", "BrokerFailed", "BrokerProcess", "ChildProcess", "ProcessFailed"]

T = TypeVar("T")

# -P: the project under test may have a module of any name in its folder, and none of them is ours.
_COMMAND: Final = (sys.executable, "-P", "-m", "lockstep.broker")
_LISTENING: Final = re.compile(r"listening((?: [\w-]+=\S+)+)\n")
_ROLES: Final = ("broker", "name-server", "control", "metrics", "grpc")
_END_WITH_US: Final = "--end-with-stdin"
_START_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.01
_TAIL_LINES: Final = 30


class ProcessFailed(Exception):
    """A process did not start, or ended too early. The text has its exit status and the end of its output."""


class BrokerFailed(ProcessFailed):
    """The same for a broker."""


class ChildProcess:
    """A running program. stdout goes to NAME.out and stderr to NAME.err in `folder`.

    Args:
        name: For messages and the names of the files.
        popen: More arguments of subprocess.Popen. stdin is closed unless it is among them.
    """

    failure: type[ProcessFailed] = ProcessFailed
    starter: Callable[..., Any] = subprocess.Popen  # or what is used like it

    def __init__(self, name: str, command: Sequence[str], folder: Path, **popen: Any) -> None:
        self.name = name
        self._asked_to_end = False
        self._out, self._err = (folder / f"{name.replace(' ', '-')}.{stream}" for stream in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._popen: subprocess.Popen[bytes] = self.starter(
                command, **{"stdin": subprocess.DEVNULL, **popen, "stdout": out, "stderr": err}
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative after a signal; None while it runs."""
        return self._popen.poll()

    def stdout(self) -> str:
        """All output so far."""
        return _text(self._out)

    def stderr(self) -> str:
        """All log lines so far."""
        return _text(self._err)

    def tail(self) -> str:
        """One line with the status, then the last lines of stdout and stderr."""
        state = "runs" if self.status is None else f"ended with status {self.status}"
        lines = [*self.stdout().splitlines()[-_TAIL_LINES:], *self.stderr().splitlines()[-_TAIL_LINES:]]
        return "\n  ".join([f"the {self.name} {state}", *lines])

    def wait_until(self, condition: Callable[[], T | None], what: str, timeout_s: float = _START_TIMEOUT_S) -> T:
        """Returns the first true answer. Raises ProcessFailed when the process ends before, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            ended = self.wait(_POLL_S) is not None  # asked first: the answer may be the last thing that it wrote
            if answer := condition():
                return answer
            if ended:
                raise self.failure(f"{self.tail()}\n{what} did not come")
            if time.monotonic() > deadline_s:
                raise self.failure(f"{what} did not come within {timeout_s:g} s; {self.tail()}")

    def wait(self, timeout_s: float = _END_TIMEOUT_S) -> int | None:
        """Wait for the end of the process. Returns its status, None when it still runs after `timeout_s`."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def ask_to_end(self) -> None:
        """Close its stdin if that is a pipe, and send SIGTERM if not; only once."""
        if self._asked_to_end:
            return
        self._asked_to_end = True
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        else:
            self._popen.terminate()

    def end(self) -> int:
        """Ask the process to end, and kill it when it does not within 10 s. Returns its status."""
        self.ask_to_end()
        if self.wait() is None:
            self._popen.kill()
        return self._popen.wait()

    def kill(self) -> None:
        """SIGKILL. Raises ProcessFailed when the process had ended before."""
        self._popen.kill()
        if self._popen.wait() != -signal.SIGKILL:
            raise self.failure(f"it was to be killed, but {self.tail()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return file.read()


class Addresses(NamedTuple):
    """Each as "host:port", or "" for a role that the process does not have; of several brokers with commas between."""

    broker: str = ""
    name_server: str = ""
    control: str = ""
    metrics: str = ""  # an URL
    grpc: str = ""


class BrokerProcess(ChildProcess):
    """A broker that listens, on free ports unless the options name others."""

    failure = BrokerFailed

    def __init__(
        self, *options: str, name: str = "broker", folder: Path | None = None, end_with_us: bool = False
    ) -> None:
        """Start a broker and wait until it listens.

        Args:
            options: Options of lockstep-broker.
            folder: For its output; by default a temporary folder that goes with the broker.
            end_with_us: The broker ends when this process does, even when this process is killed. It is not
                in our process group then: Ctrl-C in a terminal reaches only us, and we end it in order.

        Raises:
            BrokerFailed: The broker does not start. The text has its own error.
        """
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="lockstep-broker-")
            folder = Path(self._temporary.name)
        popen = {"stdin": subprocess.PIPE, "start_new_session": True} if end_with_us else {}
        command = [*_COMMAND, "--port", "0", "--name-server-port", "0", *options, *([_END_WITH_US] * end_with_us)]
        try:
            super().__init__(name, command, folder, **popen)
        except OSError as error:
            raise BrokerFailed(f"the broker could not be started: {error}") from None
        try:
            found = self.wait_until(lambda: _LISTENING.search(self.stdout()), "its line with addresses")
        except BaseException:
            self.end()
            raise
        addresses = dict(word.split("=", 1) for word in found[1].split())
        self.addresses = Addresses(*(addresses.get(role, "") for role in _ROLES))

    @property
    def address(self) -> str:
        """ "host:port" of the broker."""
        return self.addresses.broker

    @property
    def name_server(self) -> str:
        """ "host:port" of the name server."""
        return self.addresses.name_server

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def name_server_port(self) -> int:
        return int(self.name_server.rpartition(":")[2])

    def events(self, event: str) -> list[dict[str, Any]]:
        """Log records of this name, oldest first, without an unfinished last line. Needs `--log-format json`."""
        lines = self.stderr().splitlines(keepends=True)
        records = (json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n"))
        return [record for record in records if record["event"] == event]

    def end(self) -> int:
        status = super().end()
        if self._temporary is not None:
            self._temporary.cleanup()
        return status
