"""Forks programs of the project from a process that has imported them: some 20 ms instead of half a second.

It runs as a program of its own with one thread, because a fork of a process with threads can hang. Its only argument is
the descriptor of a socket. A request is a length of 4 bytes with four descriptors beside it (stdin, stdout, stderr, a
socket for the answer), then JSON of that length: command, environment, folder, new_session. The answer is a line with
the process id, and, when the process has ended, one with its exit status and the processor time that it used, in
seconds.

What a forked program is not: it imports nothing slowly, and of Python's own options and variables it takes -P, -u, -m
and PYTHONUNBUFFERED alone. Tests of the start itself use `subprocess`.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = ("protocol", "remoting", "store", "order", "broker", "client", "cli")
IMPORTED_LATE = ("uvloop", "pydantic.fields", "pydantic.type_adapter", "pydantic.types")  # by functions, not by modules
LENGTH_BYTES = 4
DESCRIPTORS = 4


def preload() -> None:
    for name in PRELOADED:
        package = importlib.import_module(f"lockstep.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it marks


def forked(control: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request. Returns in each child its request; in this process None, when the tests end."""
    while True:
        prefix, descriptors, _, _ = socket.recv_fds(control, LENGTH_BYTES, DESCRIPTORS)
        _reap()
        if not prefix:
            return None
        length = int.from_bytes(prefix)
        text = b""
        while len(text) < length:
            text += control.recv(length - len(text))
        if os.fork() == 0:  # a parent for the child, that waits for it alone
            control.close()
            return _child(json.loads(text), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _reap() -> None:
    """Wait for those that have ended, so that their processor time counts as this session's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _child(request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    *streams, answer = descriptors
    child = os.fork()
    if child:
        _answer_for(child, streams, answer)
    os.close(answer)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return request


def _answer_for(child: int, streams: list[int], answer: int) -> None:
    """Say the child's id and status, and end. The streams are closed first: the child alone has them."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # a signal to the group is for the child
        signal.signal(number, signal.SIG_IGN)
    for stream in streams:
        os.close(stream)
    with socket.socket(fileno=answer) as said:
        said.sendall(b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        with suppress(BrokenPipeError):  # the test has ended
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            said.sendall(b"%d %f\n" % (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
    os._exit(0)


def run(request: dict[str, Any]) -> None:
    """The program, as Python would run it: a module after `-m`, else a file."""
    if request["new_session"]:
        os.setsid()
    os.chdir(request["folder"])
    environment = request["environment"]
    unknown = {name for name in environment if name.startswith("PYTHON") and name != "PYTHONUNBUFFERED"}
    unknown = {name for name in unknown if environment[name] != os.environ.get(name)}
    os.environ.clear()
    os.environ.update(environment)
    program, *arguments = request["command"]
    options = set[str]()
    if program == sys.executable:
        while (program := arguments.pop(0)).startswith("-"):
            options.add(program)
    if unknown := unknown | (options - {"-P", "-u", "-m"}):
        sys.exit(f"a forked program takes no {' '.join(unknown)}")
    _open_streams(unbuffered="-u" in options or bool(os.environ.get("PYTHONUNBUFFERED")))
    sys.argv = [program, *arguments]
    if "-P" not in options:
        sys.path.insert(0, request["folder"] if "-m" in options else str(Path(program).parent))
    if "-m" in options:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _open_streams(*, unbuffered: bool) -> None:
    """The standard streams anew: whether they are a terminal decides how they are buffered."""
    sys.stdin = os.fdopen(0, closefd=False)
    if unbuffered:  # both layers
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0, closefd=False), write_through=True)
    else:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


def end(status: int) -> NoReturn:
    """What Python does at the end, but for taking a thousand modules apart, which takes longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    preload()
    with socket.socket(fileno=int(sys.argv[1])) as from_tests:
        asked = forked(from_tests)
    if asked is not None:
        try:
            run(asked)
            end(0)
        except SystemExit as ended:
            if ended.code is not None and not isinstance(ended.code, int):
                raise  # Python prints it
            end(ended.code or 0)
