"""`lockstep-broker` as a process: its one line, its exit codes, its start."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "lockstep.broker")
FREE_PORTS = ("--port", "0", "--name-server-port", "0")


@contextmanager
def running(*options: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A broker process and the line that it printed when ready."""
    process = subprocess.Popen((*PROGRAM, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def port_of(line: str, what: str) -> int:
    (address,) = [word.partition("=")[2] for word in line.split() if word.startswith(f"{what}=")]
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_says_where_it_listens_and_ends_cleanly(number: signal.Signals, status: int) -> None:
    """One line on stdout when both ports accept; 0 after SIGTERM, 130 after SIGINT, clients connected or not."""
    with running(*FREE_PORTS) as (process, line):
        assert line.startswith("listening broker=127.0.0.1:")
        for what in ("broker", "name-server"):
            socket.create_connection(("127.0.0.1", port_of(line, what))).close()
        with socket.create_connection(("127.0.0.1", port_of(line, "broker"))):
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
        assert (process.returncode, out) == (status, "")
        assert "shutting down" in err


def test_roles_print_only_what_they_serve() -> None:
    """A name server alone, and a broker that joins it."""
    with running("--role", "name-server", *FREE_PORTS) as (_, line):
        assert "broker=" not in line
        address = f"127.0.0.1:{port_of(line, 'name-server')}"
        with running("--name-server", address, "--port", "0") as (_, other):
            assert other.startswith("listening broker=")
            assert "name-server=" not in other


def test_logs_are_json_when_asked_for() -> None:
    """Every line of stderr is an object with its event, level and time."""
    with running(*FREE_PORTS, "--log-format", "json") as (process, _):
        process.terminate()
        _, err = process.communicate(timeout=10)
    lines = [json.loads(line) for line in err.splitlines()]
    assert [line["event"] for line in lines] == ["listening", "shutting down"]
    assert all(line["level"] == "info" and line["timestamp"] for line in lines)


def test_a_port_in_use_ends_with_one_line_and_status_1() -> None:
    """It names the port and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run((*PROGRAM, "--port", str(port)), capture_output=True, text=True, timeout=10, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert f"port {port} on 127.0.0.1 is in use" in ended.stderr


def test_an_unknown_option_ends_with_one_line_and_status_2() -> None:
    """Before anything is opened."""
    ended = subprocess.run((*PROGRAM, "--nonsense"), capture_output=True, text=True, timeout=10, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)


def test_the_version_is_told() -> None:
    """One line on stdout, and nothing is started."""
    ended = subprocess.run((*PROGRAM, "--version"), capture_output=True, text=True, timeout=20, check=True)
    assert ended.stdout.startswith("lockstep-broker ")
    assert ended.stderr == ""


def test_an_address_nobody_could_use_is_refused() -> None:
    """It would stand in every route and message id."""
    ended = subprocess.run((*PROGRAM, "--advertise", "x y"), capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "'x y' is neither a host name nor an IPv4 address" in ended.stderr


def test_a_topic_that_cannot_be_ends_with_one_line_and_status_1() -> None:
    """A broker's own name is taken."""
    arguments = (*PROGRAM, *FREE_PORTS, "--topic", "broker-a:4")
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=10, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)


def processor_s(pid: int) -> float:
    """What a process has used of processors so far, itself and the system for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_s_of_python() -> float:
    """What it uses to start and to import the event loop."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import asyncio, uvloop"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_start_is_a_feature() -> None:
    """Accepting connections with little more of a processor than Python's own start, in the best of five each, in under
    45 MB. Beside each other, for a busy machine is no finding.
    """
    seconds, of_python = [], []
    for _ in range(5):
        of_python.append(processor_s_of_python())
        with running(*FREE_PORTS) as (process, line):
            socket.create_connection(("127.0.0.1", port_of(line, "broker"))).close()
            seconds.append(processor_s(process.pid))
            assert process.stderr is not None
            process.stderr.readline()  # the log is open: everything is imported
            status = Path(f"/proc/{process.pid}/status").read_text()
        (resident_kb,) = [int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS")]
        assert resident_kb < 45_000
    assert min(seconds) < 3.5 * min(of_python)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_folder_is_opened_again_however_its_broker_ended(tmp_path: Path, number: signal.Signals) -> None:
    """The topic is there without being named again; a second broker on an open folder ends with one line, status 1."""
    options = (*FREE_PORTS, "--data-dir", str(tmp_path / "store"), "--flush", "sync")
    with running(*options, "--topic", "orders:3") as (process, line):
        assert line.startswith("listening")
        second = subprocess.run((*PROGRAM, *options), capture_output=True, text=True, timeout=20, check=False)
        assert (second.returncode, second.stdout, second.stderr.count("\n")) == (1, "", 1)
        assert "is open in another broker" in second.stderr
        process.send_signal(number)
        process.communicate(timeout=10)
    assert (tmp_path / "store" / "abort").exists() is (number == signal.SIGKILL)
    with running(*options) as (process, line):
        assert line.startswith("listening")
        assert '"orders"' in (tmp_path / "store" / "config" / "topics.json").read_text()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
    assert ("recovered after a crash" in err) is (number == signal.SIGKILL)
