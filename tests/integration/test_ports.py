"""The ports that tests give to programs: nobody else's, from the choice to the end of the process."""

import socket
import subprocess
import sys
from contextlib import closing
from itertools import pairwise

import pytest

from tests.integration.harness import ports

FEW = (31_000, 31_060)
OTHER = f"""
from tests.integration.harness import ports
ports.RANGE = {FEW}
print(*(ports.free_port() for _ in range(10)), flush=True)
input()
"""


def test_two_processes_never_get_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a range so small that ten of 60 would meet ten others nearly always."""
    monkeypatch.setattr(ports, "RANGE", FEW)
    command = [sys.executable, "-c", OTHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin
        assert other.stdout
        theirs = {int(port) for port in other.stdout.readline().split()}
        ours = {ports.free_port() for _ in range(10)}
        other.stdin.write("\n")
    assert len(theirs) == len(ours) == 10
    assert not theirs & ours


def test_a_port_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", port := ports.free_port()))
        monkeypatch.setattr(ports, "RANGE", (port, port + 10))
        monkeypatch.setattr(ports, "_lock", lambda _: True)
        assert port not in {ports.free_port() for _ in range(100)}


def test_neighbours_are_at_their_distances() -> None:
    assert [after - before for before, after in pairwise(ports.free_ports_at(-2, 0, 1))] == [2, 1]
