"""Free ports for programs that cannot take port 0 and say which they got, and for tests of a port that refuses.

Seconds lie between the choice of a port and the moment when a JVM listens on it. Nothing else may take it in these:
the range is one from which systems give no ports to those who ask for any, and a chosen port is locked for all tests
on the machine until this process ends.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path

__all__ = ["free_port", "free_ports_at"]

RANGE = (20_000, 32_000)
_given: set[int] = set()  # a lock does not keep out the process that has it


def free_port() -> int:
    return free_ports_at(0)[0]


def free_ports_at(*offsets: int) -> list[int]:
    """Ports that nobody has, on any address, at these distances from one base, in the order of `offsets`."""
    while True:
        base = random.randrange(RANGE[0] - min(offsets), RANGE[1] - max(offsets))
        ports = [base + offset for offset in offsets]
        if all(_lock(port) for port in ports) and _are_free(ports):
            return ports


def _lock(port: int) -> bool:
    """Whether this process has the port from now on. The byte of the file at the port's number stands for it."""
    if port in _given:
        return False
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given.add(port)
    return True


@cache
def _lock_file() -> int:
    """Stays open: to close it, even by another descriptor, gives all locks back."""
    path = Path(tempfile.gettempdir()) / f"lockstep-tests-{os.getuid()}.ports"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _are_free(ports: list[int]) -> bool:
    with ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(closing(socket.socket())).bind(("", port))
        except OSError:
            return False
        return True
