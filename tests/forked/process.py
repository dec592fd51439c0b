"""A program of the project as a process that a server of this session forks: started in some 20 ms."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

__all__ = ["Forked", "seconds_of_forked", "stop_server"]

SERVER = Path(__file__).with_name("server.py")


class _Server:
    """The process that forks; started at the first use, and ended by the end of its socket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.seconds = 0.0

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        text = json.dumps(request).encode()
        with self._lock:
            control = self._control = self._control or self._started()
            socket.send_fds(control, [len(text).to_bytes(4)], descriptors)
            control.sendall(text)

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen([sys.executable, "-P", str(SERVER), str(number)], pass_fds=[number])
        return ours

    def stop(self) -> None:
        if self._control is not None and self._process is not None:
            self._control.close()
            self._process.wait()
            self._control = self._process = None


_SERVER = _Server()


def stop_server() -> None:
    """At the end of a session. What has ended of what was forked is counted in this process's children."""
    _SERVER.stop()


def seconds_of_forked() -> float:
    """Processor time of those that have ended and were waited for, in seconds."""
    return _SERVER.seconds


class Forked:
    """What tests use of `subprocess.Popen`.

    Args:
        command: A script of the project, or `sys.executable` with -P or -u and then `-m MODULE` or a file.
        stdin, stdout, stderr: As for Popen; None is the stream of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        start_new_session: bool = False,
    ) -> None:
        self.args = command
        self.returncode: int | None = None
        ours, theirs = socket.socketpair()
        opened = [theirs.fileno()]
        try:
            self.stdin, reads = _stream(stdin, 0, opened)
            self.stdout, writes = _stream(stdout, 1, opened)
            self.stderr, complains = _stream(stderr, 2, opened)
            request = {
                "command": list(command),
                "environment": dict(os.environ if env is None else env),
                "folder": str(cwd or Path.cwd()),
                "new_session": start_new_session,
            }
            _SERVER.fork(request, [reads, writes, complains, theirs.fileno()])
        finally:
            theirs.detach()
            for descriptor in opened:
                os.close(descriptor)
        self._answer = ours
        self.pid = int(self._line())

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            data = self._answer.recv(1)
            if not data:
                raise ProcessLookupError(f"no process for {self.args}")
            line += data
        return line

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative after a signal. Raises TimeoutExpired."""
        if self.returncode is None:
            self._answer.settimeout(timeout)
            try:
                status, seconds = self._line().split()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0) from None
            self.returncode = int(status)
            _SERVER.seconds += float(seconds)
            self._answer.close()
        return self.returncode

    def communicate(self, data: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write to stdin, read stdout and stderr to their ends. Raises TimeoutExpired when that takes longer."""
        late = threading.Event()

        def end() -> None:
            late.set()
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # not `kill`: the other thread may wait for the same answer

        timer = threading.Timer(timeout or threading.TIMEOUT_MAX, end)
        timer.daemon = True
        timer.start()
        try:
            with ThreadPoolExecutor(2) as readers:
                out, err = (readers.submit(stream.read) if stream else None for stream in (self.stdout, self.stderr))
                if self.stdin is not None and not self.stdin.closed:
                    with suppress(BrokenPipeError):  # it has ended, or has closed its stdin
                        self.stdin.write(data)
                    self.stdin.close()
            self.wait()
        finally:
            timer.cancel()
        if late.is_set():
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return out.result() if out else b"", err.result() if err else b""

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def _stream(given: int | IO[bytes] | None, number: int, opened: list[int]) -> tuple[IO[bytes] | None, int]:
    """(our end of a pipe, the descriptor for the process). What the process alone is to have is put into `opened`."""
    if given is None:
        return None, number
    if given == subprocess.PIPE:
        reads, writes = os.pipe()
        theirs, ours = (reads, writes) if number == 0 else (writes, reads)
        opened.append(theirs)
        return os.fdopen(ours, "wb" if number == 0 else "rb"), theirs
    if given == subprocess.DEVNULL:
        opened.append(os.open(os.devnull, os.O_RDWR))
        return None, opened[-1]
    return None, given if isinstance(given, int) else given.fileno()
