"""The control port of a broker process: lines in, lines out, and a process that ends with its stdin."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.commands import END_S, TIMEOUT_S, ForkedBroker
from tests.rows import by_row

UNREAD_BYTES_MAX = 64 << 20  # of both ends' sockets, on any machine
PROGRAM = (sys.executable, "-P", "-m", "lockstep.broker", "--port", "0", "--name-server-port", "0")


def controlled() -> ForkedBroker:
    """A broker with a control port that ends with its stdin."""
    return ForkedBroker("--control-port", "0", end_with_us=True)


@pytest.fixture(scope="module")
def broker() -> Iterator[ForkedBroker]:
    """One for the tests that leave it as they found it, but for its clock."""
    with controlled() as process:
        yield process


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def advanced_ms(broker: ForkedBroker) -> int:
    """How far its clock was moved so far."""
    with connect(broker.addresses.control) as control:
        control.sendall(b'{"call": "status"}\n')
        return int(json.loads(control.recv(65536))["result"]["advancedMs"])


def test_calls_are_lines_answered_in_order(broker: ForkedBroker) -> None:
    """However they are cut; an error is an answer, and the connection goes on."""
    calls = b'{"call": "status"}\n{"call": "nonsense"}\n{"call": "advance", "seconds": 61}\n{"call": "status"}\n'
    with connect(broker.addresses.control) as control:
        for part in (calls[:7], calls[7:60], calls[60:]):
            control.sendall(part)
        with control.makefile("rb") as answers:
            first, wrong, moved, second = [json.loads(answers.readline()) for _ in range(4)]
    assert (first["ok"], wrong["ok"], moved["ok"], second["ok"]) == (True, False, True, True)
    assert second["result"]["advancedMs"] == first["result"]["advancedMs"] + 61_000
    assert second["result"]["nowMs"] >= first["result"]["nowMs"] + 61_000


@by_row("line", [b"GET / HTTP/1.1", b"[1]", b'{"call": 1}', b'{"seconds": 1}', b"[" * 100_000])
def test_what_is_no_call_ends_its_connection(line: bytes, broker: ForkedBroker) -> None:
    """At the first wrong line: later lines, such as a body after the head of HTTP, are not read."""
    before_ms = advanced_ms(broker)
    with connect(broker.addresses.control) as control:
        control.sendall(line + b'\n{"call": "advance", "seconds": 61}\n')
        assert ended(control)
    assert advanced_ms(broker) == before_ms


@pytest.mark.long
def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    """Its answers do not pile up, another peer is served meanwhile, and it gets them all in the end."""
    call = b'{"call": "nonsense"}\n'
    with controlled() as broker, connect(broker.addresses.control) as control:
        control.setblocking(False)
        sent, tries = 0, 0
        while tries < 5:  # until nothing is taken any more
            try:
                sent += control.send((call * 1000)[sent % len(call) :])
                tries = 0
            except BlockingIOError:
                tries += 1
                with connect(broker.addresses.control) as other:
                    other.sendall(b'{"call": "status"}\n')
                    assert json.loads(other.recv(65536))["ok"]
            assert sent < UNREAD_BYTES_MAX
        control.setblocking(True)
        control.settimeout(60)
        with control.makefile("rb") as answers:
            assert all(not json.loads(answers.readline())["ok"] for _ in range(sent // len(call)))


@pytest.mark.long
def test_there_is_a_bound_of_connections() -> None:
    """Those that are open go on."""
    with controlled() as broker, ExitStack() as stack:
        first = stack.enter_context(connect(broker.addresses.control))
        for _ in range(63):
            stack.enter_context(connect(broker.addresses.control))
        assert ended(stack.enter_context(connect(broker.addresses.control)))
        first.sendall(b'{"call": "status"}\n')
        assert json.loads(first.recv(65536))["ok"]


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_down_and_up_keep_ports_and_state(broker: ForkedBroker) -> None:
    """Both ports refuse while it is down and let in again after that; the clock stays where it was moved."""
    before_ms = advanced_ms(broker)
    with connect(broker.addresses.control) as control:

        def call(name: str, **arguments: Any) -> Any:
            control.sendall(json.dumps({"call": name, **arguments}).encode() + b"\n")
            answer = json.loads(control.recv(65536))
            assert answer["ok"], answer
            return answer["result"]

        call("advance", seconds=5)
        with connect(broker.address) as connected:
            call("down")
            assert ended(connected)
        call("down")
        for address in (broker.address, broker.name_server):
            with pytest.raises(ConnectionRefusedError):
                connect(address)
        for _ in range(2):
            call("up")
            connect(broker.address).close()
            connect(broker.name_server).close()
        assert call("status")["advancedMs"] == before_ms + 5000


def test_it_ends_when_its_stdin_closes() -> None:
    """With status 0, as after SIGTERM, and it says why."""
    with controlled() as broker:
        broker.ask_to_end()
        assert broker.wait(END_S) == 0
        assert "stdin closed" in broker.stderr()


def test_stdin_must_be_a_pipe_to_end_with_it() -> None:
    """A file has ended before it began, and a terminal is no program."""
    command = (*PROGRAM, "--end-with-stdin")
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    ended = subprocess.run(command, **pipes, timeout=TIMEOUT_S, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "stdin must be a pipe" in ended.stderr


def test_without_the_option_there_is_no_control_port() -> None:
    """Nothing of it is even imported."""
    look = "import sys, lockstep.broker.__main__; print([name for name in sys.modules if 'control_port' in name])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout == "[]\n"


def test_down_and_up_of_two_connections_at_once_are_both_answered(broker: ForkedBroker) -> None:
    """One waits for the other; in the end the broker is up."""
    with ExitStack() as opened:
        first, second = (opened.enter_context(connect(broker.addresses.control)) for _ in range(2))
        answers = [opened.enter_context(control.makefile("rb")) for control in (first, second)]
        for _ in range(50):
            first.sendall(b'{"call": "down"}\n')
            second.sendall(b'{"call": "up"}\n')
        for of_one in answers:
            for _ in range(50):
                assert json.loads(of_one.readline())["ok"]
        first.sendall(b'{"call": "up"}\n')
        assert json.loads(answers[0].readline())["ok"]
        connect(broker.address).close()
