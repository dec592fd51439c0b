"""Methods of an event loop that do not exist on virtual time: threads, DNS, sockets, pipes, processes, signals.

Each call fails with an error that names what to use instead. The error is also recorded, so that the run fails even if
the code swallows it.
"""

import asyncio
import sys
from typing import Any

from lockstep.simulation.errors import NondeterminismError
from lockstep.simulation.virtual_time.callers import caller_of

__all__ = ["ForbiddenCalls"]

_THREADS = "use Runtime.new_worker_pool(); a listener calls the function itself"
_NETWORK = "use Runtime.create_connection() and create_server(); give a listener an object with its data in memory"
_DNS = "hosts of the simulation have names; give one to Runtime.create_connection()"
_DRIVE = "simulate() runs the loop"


def _forbid(name: str, cure: str) -> Any:
    def forbidden(self: "ForbiddenCalls", *args: object, **kwargs: object) -> None:
        caller = caller_of(sys._getframe(1))  # noqa: SLF001 - the only way to see a caller
        self.refuse(f"{caller.called or f'loop.{name}'}() at {caller.place} does not exist on virtual time: {cure}")

    return forbidden


class ForbiddenCalls(asyncio.AbstractEventLoop):
    """The refused methods; VirtualLoop adds those that work."""

    violations: list[NondeterminismError]

    def refuse(self, message: str) -> None:
        """Record a violation and raise it."""
        error = NondeterminismError(message)
        self.violations.append(error)
        raise error

    run_in_executor = _forbid("run_in_executor", _THREADS)
    set_default_executor = _forbid("set_default_executor", _THREADS)
    getaddrinfo = _forbid("getaddrinfo", _DNS)
    getnameinfo = _forbid("getnameinfo", _DNS)
    create_connection = _forbid("create_connection", _NETWORK)
    create_server = _forbid("create_server", _NETWORK)
    create_unix_connection = _forbid("create_unix_connection", _NETWORK)
    create_unix_server = _forbid("create_unix_server", _NETWORK)
    create_datagram_endpoint = _forbid("create_datagram_endpoint", _NETWORK)
    connect_accepted_socket = _forbid("connect_accepted_socket", _NETWORK)
    connect_read_pipe = _forbid("connect_read_pipe", _NETWORK)
    connect_write_pipe = _forbid("connect_write_pipe", _NETWORK)
    start_tls = _forbid("start_tls", _NETWORK)
    sendfile = _forbid("sendfile", _NETWORK)
    sock_sendfile = _forbid("sock_sendfile", _NETWORK)
    sock_recv = _forbid("sock_recv", _NETWORK)
    sock_recv_into = _forbid("sock_recv_into", _NETWORK)
    sock_recvfrom = _forbid("sock_recvfrom", _NETWORK)
    sock_recvfrom_into = _forbid("sock_recvfrom_into", _NETWORK)
    sock_sendall = _forbid("sock_sendall", _NETWORK)
    sock_sendto = _forbid("sock_sendto", _NETWORK)
    sock_connect = _forbid("sock_connect", _NETWORK)
    sock_accept = _forbid("sock_accept", _NETWORK)
    add_reader = _forbid("add_reader", _NETWORK)
    remove_reader = _forbid("remove_reader", _NETWORK)
    add_writer = _forbid("add_writer", _NETWORK)
    remove_writer = _forbid("remove_writer", _NETWORK)
    subprocess_shell = _forbid("subprocess_shell", "a process is a host of the simulation")
    subprocess_exec = _forbid("subprocess_exec", "a process is a host of the simulation")
    add_signal_handler = _forbid("add_signal_handler", "only __main__ handles signals")
    remove_signal_handler = _forbid("remove_signal_handler", "only __main__ handles signals")
    set_task_factory = _forbid("set_task_factory", "tasks of the simulation hash by number")
    run_forever = _forbid("run_forever", _DRIVE)
    stop = _forbid("stop", _DRIVE)
