"""Methods of an event loop that do not exist on virtual time: threads, DNS, sockets, pipes, processes, signals.

Each call fails with an error that names what to use instead. The error is also recorded, so that the run fails even if
the code swallows it.
"""

import asyncio
import sys
from typing import Any

from lockstep.simulation.errors import NondeterminismError
from lockstep.simulation.virtual_time.callers import caller_of
from lockstep.simulation.virtual_time.cures import DRIVE, NETWORK, PROCESSES, SIGNALS, TASKS, THREADS, Cure

__all__ = ["ForbiddenCalls"]


def _forbid(name: str, cure: Cure) -> Any:
    def forbidden(self: "ForbiddenCalls", *args: object, **kwargs: object) -> None:
        caller = caller_of(sys._getframe(1))  # noqa: SLF001 - the only way to see a caller
        self.refuse(caller.refusal(f"loop.{name}", cure))

    return forbidden


class ForbiddenCalls(asyncio.AbstractEventLoop):
    """The refused methods; VirtualLoop adds those that work."""

    violations: list[NondeterminismError]

    def refuse(self, message: str) -> None:
        """Record a violation and raise it."""
        error = NondeterminismError(message)
        self.violations.append(error)
        raise error

    run_in_executor = _forbid("run_in_executor", THREADS)
    set_default_executor = _forbid("set_default_executor", THREADS)
    getaddrinfo = _forbid("getaddrinfo", NETWORK)
    getnameinfo = _forbid("getnameinfo", NETWORK)
    create_connection = _forbid("create_connection", NETWORK)
    create_server = _forbid("create_server", NETWORK)
    create_unix_connection = _forbid("create_unix_connection", NETWORK)
    create_unix_server = _forbid("create_unix_server", NETWORK)
    create_datagram_endpoint = _forbid("create_datagram_endpoint", NETWORK)
    connect_accepted_socket = _forbid("connect_accepted_socket", NETWORK)
    connect_read_pipe = _forbid("connect_read_pipe", NETWORK)
    connect_write_pipe = _forbid("connect_write_pipe", NETWORK)
    start_tls = _forbid("start_tls", NETWORK)
    sendfile = _forbid("sendfile", NETWORK)
    sock_sendfile = _forbid("sock_sendfile", NETWORK)
    sock_recv = _forbid("sock_recv", NETWORK)
    sock_recv_into = _forbid("sock_recv_into", NETWORK)
    sock_recvfrom = _forbid("sock_recvfrom", NETWORK)
    sock_recvfrom_into = _forbid("sock_recvfrom_into", NETWORK)
    sock_sendall = _forbid("sock_sendall", NETWORK)
    sock_sendto = _forbid("sock_sendto", NETWORK)
    sock_connect = _forbid("sock_connect", NETWORK)
    sock_accept = _forbid("sock_accept", NETWORK)
    add_reader = _forbid("add_reader", NETWORK)
    remove_reader = _forbid("remove_reader", NETWORK)
    add_writer = _forbid("add_writer", NETWORK)
    remove_writer = _forbid("remove_writer", NETWORK)
    subprocess_shell = _forbid("subprocess_shell", PROCESSES)
    subprocess_exec = _forbid("subprocess_exec", PROCESSES)
    add_signal_handler = _forbid("add_signal_handler", SIGNALS)
    remove_signal_handler = _forbid("remove_signal_handler", SIGNALS)
    set_task_factory = _forbid("set_task_factory", TASKS)
    run_forever = _forbid("run_forever", DRIVE)
    stop = _forbid("stop", DRIVE)
