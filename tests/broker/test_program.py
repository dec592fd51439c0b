"""`lockstep-broker` as a process: its one line, its exit codes, its start."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.testing.process import Addresses, BrokerProcess
from tests.commands import END_S, TIMEOUT_S

PROGRAM = (sys.executable, "-m", "lockstep.broker")
FREE_PORTS = ("--port", "0", "--name-server-port", "0")


def run(*options: str) -> "subprocess.CompletedProcess[str]":
    """The program, to its end."""
    return subprocess.run((*PROGRAM, *options), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.long)]
)
def test_it_says_where_it_listens_and_ends_cleanly(number: signal.Signals, status: int) -> None:
    """One line on stdout when both ports accept; 0 after SIGTERM, 130 after SIGINT, clients connected or not."""
    with BrokerProcess() as broker:
        assert broker.stdout().startswith("listening broker=127.0.0.1:")
        assert broker.addresses == Addresses(broker=broker.address, name_server=broker.name_server)
        connect(broker.name_server).close()
        with connect(broker.address):
            broker.send_signal(number)
            assert broker.wait(END_S) == status
        assert broker.stdout().count("\n") == 1
        assert "shutting_down" in broker.stderr()


@pytest.mark.long
def test_roles_print_only_what_they_serve() -> None:
    """A name server alone, and a broker that joins it."""
    with BrokerProcess("--role", "name-server") as name_server:
        assert name_server.addresses == Addresses(name_server=name_server.name_server)
        with BrokerProcess("--name-server", name_server.name_server) as broker:
            assert broker.addresses == Addresses(broker=broker.address)


def test_logs_are_json_when_asked_for() -> None:
    """Every line of stderr is an object with its event, level and time."""
    with BrokerProcess("--log-format", "json") as broker:
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(END_S) == 0
        lines = [json.loads(line) for line in broker.stderr().splitlines()]
    assert [line["event"] for line in lines] == ["listening", "shutting_down"]
    assert all(line["level"] == "info" and line["timestamp"] for line in lines)


@pytest.mark.long
@pytest.mark.parametrize("brokers", ["1", "2"])
def test_an_end_when_nobody_can_read_the_addresses(brokers: str) -> None:
    """The reader of stdout is gone: one line and status 1, and with `--brokers` no process is left."""
    reader, writer = os.pipe()
    os.close(reader)
    command = (*PROGRAM, *FREE_PORTS, "--brokers", brokers)
    try:
        ended = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False
        )
    finally:
        os.close(writer)
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if "process=" not in line]
    assert lines == ["lockstep-broker: stdout: cannot write the addresses: Broken pipe"]


def test_the_version_is_told() -> None:
    """One line on stdout, and nothing is started."""
    ended = run("--version")
    assert ended.stdout.startswith("lockstep-broker ")
    assert (ended.returncode, ended.stderr) == (0, "")


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


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_start_is_a_feature() -> None:
    """Accepting connections with little more of a processor than Python's own start, in the best of five each, in under
    45 MB. Beside each other, for a busy machine is no finding.
    """
    seconds, of_python = [], []
    for _ in range(5):
        of_python.append(processor_s_of_python())
        with BrokerProcess() as broker:
            connect(broker.address).close()
            seconds.append(processor_s(broker.pid))
            broker.wait_until(broker.stderr, "a log line")  # the log is open: everything is imported
            status = Path(f"/proc/{broker.pid}/status").read_text()
        (resident_kb,) = [int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS")]
        assert resident_kb < 45_000
    assert min(seconds) < 4 * min(of_python)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_a_folder_is_opened_again_however_its_broker_ended(tmp_path: Path, number: signal.Signals) -> None:
    """The topic is there without being named again; a second broker on an open folder ends with one line, status 1."""
    options = ("--data-dir", str(tmp_path / "store"), "--flush", "sync")
    with BrokerProcess(*options, "--topic", "orders:3") as broker:
        second = run(*FREE_PORTS, *options)
        assert (second.returncode, second.stdout, second.stderr.count("\n")) == (1, "", 1)
        assert "is open in another broker" in second.stderr
        broker.send_signal(number)
        broker.wait(END_S)
    assert (tmp_path / "store" / "abort").exists() is (number == signal.SIGKILL)
    with BrokerProcess(*options) as broker:
        assert '"orders"' in (tmp_path / "store" / "config" / "topics.json").read_text()
        broker.send_signal(signal.SIGTERM)
        broker.wait(END_S)
        assert ("recovered_after_crash" in broker.stderr()) is (number == signal.SIGKILL)
