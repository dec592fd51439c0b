"""Sessions: the clients of this front, by the id that each chooses, and when the broker last heard of them."""

from collections.abc import Callable, Iterator

from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.peer import Peer
from lockstep.protocol.grpc import messages as pb

__all__ = ["Session", "Sessions"]


class Session:
    """A client. For the tables of members it is a `Peer`: one process may have several on one connection.

    Attributes:
        connection: The last one it used.
        telemetry: Its stream of commands.
        client_type: A ClientType of apache.rocketmq.v2.
        group: Of a consumer.
        topics: Of a producer, which names them; a transaction's producer group is its topic.
        heard_ms: When it last sent settings or a heartbeat, in epoch ms.
        request_timeout_ms: How long it waits for an answer.
        waits_for: Topic and group of calls that waited for messages to renew.
    """

    def __init__(self, client_id: str, telemetry: Call, end: Callable[["Session", str], None]) -> None:
        self.client_id = client_id
        self.telemetry = telemetry
        self.connection: Peer = telemetry.peer
        self.address = self.connection.address
        self.client_type = pb.CLIENT_TYPE_UNSPECIFIED
        self.group = ""
        self.topics: tuple[str, ...] = ()
        self.heard_ms = telemetry.received_ms
        self.request_timeout_ms = 0
        self.waits_for = set[tuple[str, str]]()
        self._end = end

    @property
    def is_open(self) -> bool:
        return self.telemetry.is_open

    @property
    def ended_by_peer(self) -> bool:
        return self.connection.ended_by_peer

    @property
    def write_paused(self) -> bool:
        return self.connection.write_paused

    def when_writable(self, then: Callable[[], None]) -> None:
        self.connection.when_writable(then)

    def abort(self, reason: str) -> None:
        self._end(self, reason)


class Sessions:
    """The table of sessions.

    Args:
        per_connection_max: Of one connection; a process has as many as it has producers and consumers.
    """

    def __init__(self, sessions_max: int, per_connection_max: int) -> None:
        self._sessions_max = sessions_max
        self._per_connection_max = per_connection_max
        self._by_id: dict[str, Session] = {}
        self._counts: dict[Peer, int] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))

    def find(self, client_id: str) -> Session | None:
        return self._by_id.get(client_id)

    def has_room(self, connection: Peer) -> bool:
        of_connection = self._counts.get(connection, 0)
        return len(self._by_id) < self._sessions_max and of_connection < self._per_connection_max

    def add(self, session: Session) -> None:
        self._by_id[session.client_id] = session
        self._count(session.connection, 1)

    def move(self, session: Session, connection: Peer) -> None:
        """The client goes on on another connection."""
        if connection is not session.connection:
            self._count(session.connection, -1)
            session.connection, session.address = connection, connection.address
            self._count(connection, 1)

    def remove(self, session: Session) -> bool:
        """Returns whether it was there."""
        if self._by_id.get(session.client_id) is not session:
            return False
        del self._by_id[session.client_id]
        self._count(session.connection, -1)
        return True

    def _count(self, connection: Peer, more: int) -> None:
        self._counts[connection] = self._counts.get(connection, 0) + more
        if not self._counts[connection]:
            del self._counts[connection]
