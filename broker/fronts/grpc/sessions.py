"""Sessions: the clients of this front, by the id that each chooses, and when the broker last heard of them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.heartbeat import ConsumeType
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.grpc import messages as pb
from lockstep.remoting.errors import RemotingError

__all__ = ["Session", "SessionActions", "Sessions", "Then"]

Then = Callable[[RemotingCommand | RemotingError], None]


class SessionActions(NamedTuple):
    """What a session does.

    Args:
        end: It is over, with the reason.
        ask: An administrator asks its client something: within so many ms the last one is called with the answer.
    """

    end: Callable[["Session", str], None]
    ask: Callable[["Session", RemotingCommand, int, Then], None]


class Session:
    """A client. For the tables of members it is a `Peer`: one process may have several on one connection.

    For administrators it is a `Connection` too: what they ask a client of RocketMQ 4, this one answers.

    Attributes:
        connection: The last one it used.
        telemetry: Its stream of commands.
        client_type: A ClientType of apache.rocketmq.v2.
        group: Of a consumer.
        topics: Of a producer, which names them; a transaction's producer group is its topic.
        heard_ms: When it last sent settings or a heartbeat, in epoch ms.
        request_timeout_ms: How long it waits for an answer.
        parked: Its calls that wait for messages, by what each asks for: topic, group, the queue that it names,
            and its attempt id; a call without one stands for itself.
    """

    serialize_type = SerializeType.JSON

    def __init__(self, client_id: str, telemetry: Call, actions: SessionActions) -> None:
        self.client_id = client_id
        self.telemetry = telemetry
        self.connection: Peer = telemetry.peer
        self.address = self.connection.address
        self.client_type = pb.CLIENT_TYPE_UNSPECIFIED
        self.group = ""
        self.topics: tuple[str, ...] = ()
        self.heard_ms = telemetry.received_ms
        self.request_timeout_ms = 0
        self.parked: dict[tuple[str, str, int, str | Call], Call] = {}
        self._actions = actions

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
        self._actions.end(self, reason)

    @property
    def consume_type(self) -> ConsumeType:
        is_push = self.client_type == pb.PUSH_CONSUMER
        return ConsumeType.CONSUME_PASSIVELY if is_push else ConsumeType.CONSUME_ACTIVELY

    def send_one_way(self, command: RemotingCommand) -> None:
        """It asks itself for what clients of RocketMQ 4 are told, or need not know it: no queue is its own."""

    def request_then(self, command: RemotingCommand, timeout_ms: int, then: Then) -> None:
        self._actions.ask(self, command, timeout_ms, then)


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

    def clear(self) -> None:
        self._by_id.clear()
        self._counts.clear()

    def _count(self, connection: Peer, more: int) -> None:
        self._counts[connection] = self._counts.get(connection, 0) + more
        if not self._counts[connection]:
            del self._counts[connection]
