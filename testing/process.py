"""The broker of a test session as a process: started with the plugin's options, ended with the session.

It ends when its stdin closes, so also when pytest is killed. What it says on stderr is kept for whoever must know why
it did not start, or has gone.
"""

import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Final, NamedTuple

__all__ = ["Addresses", "BrokerFailed", "BrokerProcess"]

# -P: the project under test may have a module of any name where it runs, and none of them is ours.
_COMMAND: Final = (sys.executable, "-P", "-m", "lockstep.broker")
_OPTIONS: Final = ("--port", "0", "--name-server-port", "0", "--log-level", "warning")
_OURS: Final = ("--control-port", "0", "--end-with-stdin")
_LISTENING: Final = re.compile(r"listening broker=(\S+) name-server=(\S+) control=(\S+)\n")
_START_TIMEOUT_S: Final = 20
_END_TIMEOUT_S: Final = 5
_TAIL_BYTES: Final = 4000


class BrokerFailed(Exception):
    """The broker did not start, or is gone; the text says why, in the broker's own words where there are some."""


class Addresses(NamedTuple):
    """Each as "host:port"."""

    broker: str
    name_server: str
    control: str


class BrokerProcess:
    def __init__(self, options: Sequence[str]) -> None:
        """Start it and wait until it listens; `options` win over the plugin's. Raises BrokerFailed."""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        command = [*_COMMAND, *_OPTIONS, *options, *_OURS]
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is for pytest, which ends us in its own time
            )
        except OSError as error:
            self._errors.close()
            raise BrokerFailed(f"the broker could not be started: {error}") from None
        try:
            line = self._first_line()
            found = _LISTENING.fullmatch(line)
            if found is None:
                raise BrokerFailed(self._why_not(line, command))
        except BaseException:
            self.end()
            raise
        self.addresses = Addresses(*found.groups())

    @property
    def process_id(self) -> int:
        return self._popen.pid

    def _first_line(self) -> str:
        """Until its end, or that of stdout; "" when it did not come in time."""
        assert self._popen.stdout is not None
        seen, deadline_s = b"", time.monotonic() + _START_TIMEOUT_S
        while not seen.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            ready, _, _ = select.select([self._popen.stdout], [], [], max(left_s, 0))
            data = os.read(self._popen.stdout.fileno(), 4096) if ready else b""
            if not data:
                break
            seen += data
        return seen.decode(errors="replace")

    def _why_not(self, line: str, command: list[str]) -> str:
        status = self._wait(1)
        if line:
            reason = f"it said {line.strip()!r}, and the plugin needs a broker and a name server in one process"
        elif status is None:
            reason = f"it said nothing for {_START_TIMEOUT_S} s"
        else:
            reason = f"it ended with status {status}"
        return f"the broker did not start: {reason}\n{self.last_words()}\nthe command was: {' '.join(command)}"

    def last_words(self) -> str:
        """The end of what the broker said on stderr."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - _TAIL_BYTES, 0))
        return self._errors.read().decode(errors="replace").strip()

    def _wait(self, timeout_s: float) -> int | None:
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def how_it_ended(self) -> str | None:
        """None while it runs; also a moment after its connections closed it is asked for its status."""
        status = self._wait(1)
        return None if status is None else f"the broker ended with status {status}\n{self.last_words()}".strip()

    def end(self) -> None:
        """Close its stdin, and kill it where that does not help."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        if self._wait(_END_TIMEOUT_S) is None:
            self._popen.kill()
            self._popen.wait()
        self._popen.stdout.close()
        self._errors.close()
