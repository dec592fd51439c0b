"""The port of this front. What serves it is imported at the first connection: a broker without such clients is as
small, and starts as fast, as before.
"""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.remoting.connections.byte_budget import ConnectionBounds
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.settings import SettingError

if TYPE_CHECKING:
    from lockstep.broker.fronts.grpc.front import GrpcFront

__all__ = ["GrpcPort", "Shell", "check_installed"]

_NEEDED: Final = ("h2", "google.protobuf")
_STREAMS_MAX: Final = 2000
_SESSIONS_MAX: Final = 20_000
_SESSIONS_PER_CONNECTION_MAX: Final = 500
_RENEWALS_MAX: Final = 200_000
_UNDECIDED_MAX: Final = 20_000


class Shell(NamedTuple):
    """What a server has for the connections of this port.

    Args:
        bounds: What connections may keep in memory.
        on_opened, on_closed: Called with each connection.
        may_request: Whether a peer may make one more request now, in epoch ms; True: one that is spared.
        after_read: The calls of one read were handled.
        when_kept: See `Parts`.
        port: The number of this port, as clients reach it.
    """

    bounds: ConnectionBounds
    on_opened: Callable[[Any], object]
    on_closed: Callable[[Any], object]
    may_request: Callable[[Any, int, bool], bool]
    after_read: Callable[[], None]
    when_kept: Callable[[Callable[[str], None]], None]
    port: Callable[[], int]


def check_installed() -> None:
    """Raises SettingError, with what to install."""
    for name in _NEEDED:
        try:
            found = find_spec(name) is not None
        except ModuleNotFoundError:  # of the package around it
            found = False
        if not found:
            raise SettingError(f"grpc_port needs {name}; install it: pip install 'lockstep-mq[grpc]'")


class GrpcPort:
    """Makes the connections of the port."""

    def __init__(self, broker: Broker, runtime: Runtime, shell: Shell) -> None:
        self._broker = broker
        self._runtime = runtime
        self._shell = shell
        self._front: GrpcFront | None = None
        self._next: TimerHandle | None = None

    def new_connection(self) -> asyncio.Protocol:
        from lockstep.broker.fronts.grpc.http2.connection import Http2Callbacks, Http2Connection, Http2Settings

        if self._front is None:
            self._front = self._new_front()
        shell, settings = self._shell, Http2Settings(_STREAMS_MAX, self._broker.config.idle_close_ms)
        callbacks = Http2Callbacks(shell.on_opened, shell.on_closed)
        return Http2Connection(self._runtime, settings, self._front, callbacks, self._broker.log, shell.bounds)

    def tick(self, now_ms: int) -> None:
        """Called every few seconds."""
        if self._front is not None:
            self._front.tick(now_ms)
            self._renew()

    def _renew(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._front is not None and self._front.renew(self._runtime.now_ms()):
            self._next = self._runtime.call_later_ms(1, self._renew)

    def _new_front(self) -> "GrpcFront":
        from lockstep.broker.fronts.grpc.front import GrpcFront
        from lockstep.broker.fronts.grpc.notices import BothNotices
        from lockstep.broker.fronts.grpc.parts import Parts
        from lockstep.broker.fronts.grpc.renewals import Renewals
        from lockstep.broker.fronts.grpc.sessions import Sessions
        from lockstep.broker.fronts.grpc.undecided import Undecided

        broker, undecided = self._broker, Undecided(_UNDECIDED_MAX)
        broker.front = BothNotices(broker.front, undecided, self._runtime.now_ms)
        sessions = Sessions(_SESSIONS_MAX, _SESSIONS_PER_CONNECTION_MAX)
        parts = Parts(broker, sessions, Renewals(_RENEWALS_MAX), undecided, self._shell.port, self._shell.when_kept)
        return GrpcFront(parts, self._shell.after_read, self._shell.may_request)
