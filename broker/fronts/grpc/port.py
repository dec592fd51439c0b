"""The port of this front. What serves it is imported at the first connection: a broker without such clients is as
small, and starts as fast, as before.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.grpc_counts import GrpcCounts
from lockstep.remoting.connections.byte_budget import ConnectionBounds
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.settings import SettingError

if TYPE_CHECKING:
    from lockstep.broker.fronts.grpc.call import OnCall
    from lockstep.broker.fronts.grpc.front import GrpcFront
    from lockstep.broker.fronts.grpc.parts import AskRoute

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
        ask_route: See `Parts`.
        before: Stands between the connections and the calls, for tests.
    """

    bounds: ConnectionBounds
    on_opened: Callable[[Any], object]
    on_closed: Callable[[Any], object]
    may_request: Callable[[Any, int, bool], bool]
    after_read: Callable[[], None]
    when_kept: Callable[[Callable[[str], None]], None]
    ask_route: "AskRoute"
    before: Callable[["OnCall"], "OnCall"] | None


def check_installed() -> None:
    """Raises SettingError, with what to install."""
    for name in _NEEDED:
        try:
            found = find_spec(name) is not None
        except ModuleNotFoundError:  # of the package around it
            found = False
        if not found:
            raise SettingError(f"--grpc-port: needs {name}; install it: pip install 'lockstep-mq[grpc]'")


class GrpcPort:
    """Makes the connections of the port."""

    def __init__(self, broker: Broker, runtime: Runtime, shell: Shell) -> None:
        self._broker = broker
        self._runtime = runtime
        self._shell = shell
        self._counts = broker.grpc_counts = GrpcCounts()
        self._front: GrpcFront | None = None
        self._new: Callable[[], asyncio.Protocol] | None = None
        self._next: TimerHandle | None = None

    def prepare(self) -> Callable[[], asyncio.Protocol]:
        """Import what serves connections, which takes some 30 ms. Returns what makes one."""
        from lockstep.broker.fronts.grpc.http2.connection import Http2Callbacks, Http2Connection, Http2Settings
        from lockstep.broker.fronts.grpc.http2.turns import Turns

        if self._new is None:
            self._front = self._new_front()
            settings = Http2Settings(_STREAMS_MAX, self._broker.config.idle_close_ms)
            callbacks = Http2Callbacks(self._opened, self._closed)
            made = (self._runtime, Turns(self._runtime), settings, self._front, callbacks)
            self._new = partial(Http2Connection, *made, self._broker.log, self._shell.bounds)
        return self._new

    def new_connection(self) -> asyncio.Protocol:
        return (self._new or self.prepare())()

    def _opened(self, connection: Any) -> None:
        self._counts.connections += 1
        self._shell.on_opened(connection)

    def _closed(self, connection: Any) -> None:
        self._counts.connections -= 1
        self._shell.on_closed(connection)

    def tick(self, now_ms: int) -> None:
        """Called every few seconds."""
        if self._front is not None:
            self._front.tick(now_ms)
            self._renew()

    def refresh(self, now_ms: int) -> None:
        """Treat every connected client as if it had just sent a heartbeat."""
        for session in self._front.parts.sessions if self._front is not None else ():
            if session.is_open:
                session.heard_ms = now_ms

    def stop(self) -> None:
        """The broker ends. Its clients keep what they hold, and say so to the next one."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._front is not None:
            self._front.parts.sessions.clear()

    def _renew(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._front is not None and self._front.renew(self._runtime.now_ms()):
            self._next = self._runtime.call_later_ms(1, self._renew)

    def _new_front(self) -> "GrpcFront":
        from lockstep.broker.fronts.grpc.asked import Asked
        from lockstep.broker.fronts.grpc.front import GrpcFront
        from lockstep.broker.fronts.grpc.notices import BothNotices
        from lockstep.broker.fronts.grpc.parts import Parts
        from lockstep.broker.fronts.grpc.renewals import Renewals
        from lockstep.broker.fronts.grpc.sessions import Sessions
        from lockstep.broker.fronts.grpc.undecided import Undecided

        broker, undecided = self._broker, Undecided(_UNDECIDED_MAX)
        broker.front = BothNotices(broker.front, undecided, self._runtime.now_ms)
        sessions = Sessions(_SESSIONS_MAX, _SESSIONS_PER_CONNECTION_MAX)
        asked = Asked(broker, self._runtime.call_later_ms)
        self._counts.sessions = sessions.__len__
        tables = (sessions, Renewals(_RENEWALS_MAX), undecided, asked, self._counts)
        shell = self._shell
        parts = Parts(broker, *tables, shell.when_kept, shell.ask_route)
        return GrpcFront(parts, shell.after_read, shell.may_request, shell.before)
