"""Consume offsets: a copy in memory, and as a clustering client keeps them, on the broker (wire.md 8.3, 12.9)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import ClassVar

from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused

__all__ = ["NO_OFFSET", "OffsetStore", "ReadOffsetType", "RemoteBrokerOffsetStore"]

NO_OFFSET = -1


class ReadOffsetType(Enum):
    """Which offset is meant: the copy in memory, the kept one, or the kept one where memory has none."""

    READ_FROM_MEMORY = "memory"
    READ_FROM_STORE = "store"
    MEMORY_FIRST_THEN_STORE = "memory first"


class OffsetStore(ABC):
    """Where a consumer has got to in each queue: a copy in memory, kept for the next start elsewhere.

    `on_broker`: pulls may carry the offset along.
    """

    on_broker: ClassVar[bool] = True

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """In memory. `increase_only`: a lower offset than the known one changes nothing."""
        if not increase_only or offset > self._offsets.get(queue, NO_OFFSET):
            self._offsets[queue] = offset

    def in_memory(self, queue: MessageQueue) -> int:
        """NO_OFFSET when it is not known."""
        return self._offsets.get(queue, NO_OFFSET)

    def forget(self, queue: MessageQueue) -> None:
        """The copy in memory."""
        self._offsets.pop(queue, None)

    async def read(self, queue: MessageQueue, kind: ReadOffsetType = ReadOffsetType.READ_FROM_STORE) -> int:
        """The offset, or NO_OFFSET. What the store answered is in memory then.

        Raises RemotingError, NoRouteError; the caller tries again.
        """
        known = self._offsets.get(queue, NO_OFFSET)
        if kind is ReadOffsetType.READ_FROM_MEMORY:
            return known
        if kind is ReadOffsetType.MEMORY_FIRST_THEN_STORE and known >= 0:
            return known
        kept = await self._read_kept(queue)
        if kept >= 0:
            self.update(queue, kept)
        return kept

    @abstractmethod
    async def _read_kept(self, queue: MessageQueue) -> int: ...

    @abstractmethod
    def persist(self, queues: Iterable[MessageQueue], before_sending: Callable[[MessageQueue, int], None]) -> None:
        """Keep the offsets of `queues` that are known; `before_sending` is told of each."""

    async def load(self) -> None:  # noqa: B027 - nothing to load is a store's usual case
        """Before anything else. Raises ConsumerError when what was kept cannot be read."""

    async def flush(self) -> None:  # noqa: B027 - who keeps nothing here has nothing to wait for
        """Returns when what was persisted is on this machine's disk. Raises ConsumerError when it cannot be."""

    async def close(self) -> None:  # noqa: B027
        """After the last `persist`: returns when that is done."""


class RemoteBrokerOffsetStore(OffsetStore):
    def __init__(self, instance: MQClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group

    async def _read_kept(self, queue: MessageQueue) -> int:
        """QUERY_NOT_FOUND alone means "none". Java takes any error code for it, and so may jump to the end when a
        broker is busy (wire.md 8.3); here other codes raise RequestRefused, network trouble RemotingError.

        Without a master its slave answers, with offsets that are up to 10 s old.
        """
        header = QueryConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        found = self._instance.routes.reading_address(queue.broker_name)
        address = found[0] if found is not None else self._instance.address_of(queue.broker_name)
        reply = await self._instance.call_address(address, code, header, timeout_ms=5000)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return NO_OFFSET
        if reply.code != ResponseCode.SUCCESS:
            raise RequestRefused(queue.broker_name, request_name(code), reply.code, reply.remark)
        return reply.decode_header(OffsetResponseHeader).offset

    def persist(self, queues: Iterable[MessageQueue], before_sending: Callable[[MessageQueue, int], None]) -> None:
        """Send the offsets of `queues` that are known to their brokers, one-way; `before_sending` is told of each.

        A broker without a connection is skipped: the next round comes.
        """
        for queue in queues:
            offset = self._offsets.get(queue)
            address = self._instance.routes.master_address(queue.broker_name)
            endpoint = self._instance.dialer.open_endpoint(address) if address else None
            if offset is None or endpoint is None:
                continue
            header = UpdateConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id, offset)
            before_sending(queue, offset)
            endpoint.send_one_way(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, header))
