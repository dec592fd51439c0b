"""OffsetStore: consume offsets in memory, and stored on the broker or in a file (wire.md 8.3, 12.9)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Final

from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.headers.together import CommitTogetherRequestHeader
from lockstep.protocol.messages.together import COMMITS_MAX, NO_EPOCH, Commit, encode_commits
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import must_succeed

__all__ = ["NO_OFFSET", "BeforeSending", "OffsetStore", "ReadOffsetType", "RemoteBrokerOffsetStore", "commit_frames"]

NO_OFFSET = -1
_UPDATE_OFFSET: Final = int(RequestCode.UPDATE_CONSUMER_OFFSET)
_COMMIT_TOGETHER: Final = int(RequestCode.COMMIT_TOGETHER)
_Encoded = tuple[CommitTogetherRequestHeader, bytes]
BeforeSending = Callable[[Mapping[MessageQueue, int]], None]


class ReadOffsetType(Enum):
    """Which offset to read: that in memory, the stored one, or the stored one if memory has none."""

    READ_FROM_MEMORY = "memory"
    READ_FROM_STORE = "store"
    MEMORY_FIRST_THEN_STORE = "memory first"


class OffsetStore(ABC):
    """The next offset to consume in each queue: a copy in memory, and a stored one for the next owner.

    `on_broker`: pulls may carry the offset to the broker. `commits`: offsets that were sent to brokers, or written.
    """

    on_broker: ClassVar[bool] = True

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self.commits = 0

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Set the offset in memory. `increase_only`: ignore an offset that is lower than the known one."""
        if not increase_only or offset > self._offsets.get(queue, NO_OFFSET):
            self._offsets[queue] = offset

    def in_memory(self, queue: MessageQueue) -> int:
        """Return the offset in memory, or NO_OFFSET."""
        return self._offsets.get(queue, NO_OFFSET)

    def forget(self, queue: MessageQueue) -> None:
        """Remove the offset from memory."""
        self._offsets.pop(queue, None)

    async def read(self, queue: MessageQueue, kind: ReadOffsetType = ReadOffsetType.READ_FROM_STORE) -> int:
        """Return the offset, or NO_OFFSET. A stored offset is in memory afterwards.

        Raises:
            RemotingError, NoRouteError: the store cannot be read now.
        """
        known = self._offsets.get(queue, NO_OFFSET)
        if kind is ReadOffsetType.READ_FROM_MEMORY:
            return known
        if kind is ReadOffsetType.MEMORY_FIRST_THEN_STORE and known >= 0:
            return known
        kept = await self._read_stored(queue)
        if kept >= 0:
            self.update(queue, kept)
        return kept

    @abstractmethod
    async def _read_stored(self, queue: MessageQueue) -> int: ...

    @abstractmethod
    def persist(self, queues: Iterable[MessageQueue], before_sending: BeforeSending) -> None:
        """Store the known offsets of `queues`; `before_sending` is called with them."""

    async def load(self) -> None:  # noqa: B027 - most stores have nothing to load
        """Read the stored offsets, before any other call. Raises ConsumerError when they cannot be read."""

    async def flush(self) -> None:  # noqa: B027 - a store on the broker has nothing to flush
        """Wait until persisted offsets are on the local disk. Raises ConsumerError when they cannot be written."""

    async def close(self) -> None:  # noqa: B027
        """Wait until the last `persist` is done."""


class RemoteBrokerOffsetStore(OffsetStore):
    """Stores the offsets on the brokers: the store of a clustering consumer."""

    def __init__(self, instance: MQClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        self._encoded: dict[tuple[str, str], tuple[list[Commit], list[_Encoded]]] = {}  # the last of each broker

    async def _read_stored(self, queue: MessageQueue) -> int:
        """Ask the broker. Without a master its slave answers, with offsets that are up to 10 s old.

        Only QUERY_NOT_FOUND means "no offset". Java takes any error code for it, so a consumer of a busy broker may
        jump to the end of the queue (wire.md 8.3). Here other codes raise RequestRefused.
        """
        header = QueryConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        found = self._instance.routes.reading_address(queue.broker_name)
        address = found[0] if found is not None else self._instance.address_of(queue.broker_name)
        reply = await self._instance.call_address(address, code, header, timeout_ms=5000)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return NO_OFFSET
        must_succeed(reply, queue.broker_name, code)
        return reply.decode_header(OffsetResponseHeader).offset

    def persist(self, queues: Iterable[MessageQueue], before_sending: BeforeSending) -> None:
        """Send the known offsets of `queues` one-way, with one write to each broker; `before_sending` is called before.

        A broker without a connection is skipped until the next round.
        """
        sent: dict[MessageQueue, int] = {}
        offsets, endpoints = self._offsets, dict[str, Endpoint | None]()
        commits: dict[tuple[Endpoint, str], list[Commit]] = {}
        # A broker with ACL refuses a frame as a whole, and one topic must not cost the others their offsets.
        one_topic = self._instance.config.credentials is not None
        for queue in queues:
            topic, name, queue_id = queue
            offset = offsets.get(queue)
            if offset is None:
                continue
            if name not in endpoints:
                address = self._instance.routes.master_address(name)
                endpoints[name] = self._instance.dialer.open_endpoint(address) if address else None
            endpoint = endpoints[name]
            if endpoint is None:
                continue
            of_frame = commits.setdefault((endpoint, topic if one_topic else ""), [])
            of_frame.append(new_tuple(Commit, (topic, queue_id, offset, NO_EPOCH)))
            sent[queue] = offset
        if sent:
            before_sending(sent)
            self.commits += len(sent)
        for (endpoint, topic), of_broker in commits.items():
            if len(of_broker) > 1 and endpoint.together and self._instance.config.commit_together:
                endpoint.send_one_way(*self._frames((endpoint.address, topic), of_broker))
            else:
                headers = [UpdateConsumerOffsetRequestHeader(self._group, *commit[:3]) for commit in of_broker]
                endpoint.send_one_way(*[RemotingCommand(_UPDATE_OFFSET, header) for header in headers])

    def _frames(self, to: tuple[str, str], commits: list[Commit]) -> list[RemotingCommand]:
        """As `commit_frames`. What did not change since the last round, as in an idle group, is not encoded again."""
        last, encoded = self._encoded.get(to, (None, []))
        if commits != last:
            encoded = _encoded(self._group, commits)
            self._encoded[to] = commits, encoded
        return [RemotingCommand(_COMMIT_TOGETHER, *part) for part in encoded]


def commit_frames(group: str, commits: Sequence[Commit], client_id: str | None = None) -> list[RemotingCommand]:
    """COMMIT_TOGETHER requests, each with as many commits as a broker takes."""
    return [RemotingCommand(_COMMIT_TOGETHER, *part) for part in _encoded(group, commits, client_id)]


def _encoded(group: str, commits: Sequence[Commit], client_id: str | None = None) -> list[_Encoded]:
    """The headers and bodies of COMMIT_TOGETHER requests."""
    parts = [commits[i : i + COMMITS_MAX] for i in range(0, len(commits), COMMITS_MAX)]
    return [(CommitTogetherRequestHeader(group, len(part), client_id), encode_commits(part)) for part in parts]
