"""A forked program is a process as a started one is: streams, status, signals, environment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked.process import Forked

PIPE = subprocess.PIPE


def started(command: list[str], folder: Path, data: bytes) -> tuple[bytes, bytes, int]:
    environment = {**os.environ, "COLOUR": "red"}
    done = subprocess.run(command, input=data, capture_output=True, env=environment, cwd=folder, check=False)
    return done.stdout, done.stderr, done.returncode


def forked(command: list[str], folder: Path, data: bytes) -> tuple[bytes, bytes, int]:
    environment = {**os.environ, "COLOUR": "red"}
    with Forked(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, cwd=folder) as process:
        return *process.communicate(data, 60), process.wait()


ENDS = {
    "nothing": "",
    "a status": "sys.exit(3)",
    "a text": "sys.exit('no')",
    "an error": "raise ValueError('of this program')",
    "at once": "os._exit(4)",
    "a signal": "os.kill(os.getpid(), signal.SIGTERM)",
    "Ctrl-C": "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "a thread": "threading.Timer(0.01, lambda: print('after the end')).start()",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_it_ends_as_a_started_one(end: str, tmp_path: Path) -> None:
    """The same on stdout and stderr, but for the lines of a traceback; the same status."""
    program = tmp_path / "program.py"
    program.write_text(
        "import atexit, os, signal, sys, threading, time\n"
        "atexit.register(print, 'at exit')\n"
        "print(sys.argv[1:], os.environ['COLOUR'], os.getcwd(), sys.stdin.read(), __name__, sys.path[0], flush=True)\n"
        f"{end}\n"
    )
    command = [sys.executable, "-u", str(program), "a b", ""]
    (out, err, status), (wanted, said, wanted_status) = (way(command, tmp_path, b"typed") for way in (forked, started))
    assert (out, status) == (wanted, wanted_status)
    assert err.splitlines()[-1:] == said.splitlines()[-1:]


def test_it_can_be_waited_for_signalled_and_killed(tmp_path: Path) -> None:
    """As with subprocess.Popen."""
    program = tmp_path / "program.py"
    program.write_text("import sys; print('here', flush=True); sys.stdin.read()\n")
    with Forked([sys.executable, str(program)], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait(60) == process.poll() == -signal.SIGKILL
        process.kill()  # no other process with its number
    with Forked([sys.executable, str(program)], stdin=PIPE, stdout=PIPE) as late:
        assert late.stdin is not None
        keeps_open = os.dup(late.stdin.fileno())
        with pytest.raises(subprocess.TimeoutExpired):
            late.communicate(timeout=0.01)
        os.close(keeps_open)
    assert late.returncode == -signal.SIGKILL


def test_what_python_reads_at_its_start_is_refused(tmp_path: Path) -> None:
    """Such a program would run as if nothing had been asked for."""
    program = tmp_path / "program.py"
    program.touch()
    for options, more in ((["-S"], {}), ([], {"PYTHONPATH": "/elsewhere"})):
        command = [sys.executable, *options, str(program)]
        with Forked(command, stderr=PIPE, env={**os.environ, **more}) as process:
            _, err = process.communicate(timeout=60)
            assert process.wait() == 1
        assert err.decode() == f"a forked program takes no {' '.join([*options, *more])}\n"
