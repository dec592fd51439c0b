"""Consume offsets as a clustering client keeps them: in memory, stored on the broker (wire.md 8.3, 12.9)."""

from collections.abc import Callable, Iterable
from typing import Protocol

from lockstep.client.instance import MQClientInstance
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused

__all__ = ["NO_OFFSET", "OffsetStore", "RemoteBrokerOffsetStore"]

NO_OFFSET = -1


class OffsetStore(Protocol):
    """Where a consumer has got to in each queue: a copy in memory, kept for the next start elsewhere."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None: ...

    def in_memory(self, queue: MessageQueue) -> int:
        """NO_OFFSET when it is not known."""

    def forget(self, queue: MessageQueue) -> None: ...

    async def read(self, queue: MessageQueue) -> int:
        """The kept offset, or NO_OFFSET. Raises RemotingError, NoRouteError; the caller tries again."""

    def persist(self, queues: Iterable[MessageQueue], before_sending: Callable[[MessageQueue, int], None]) -> None:
        """Keep the offsets of `queues` that are known; `before_sending` is told of each."""


class RemoteBrokerOffsetStore:
    def __init__(self, instance: MQClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        if not increase_only or offset > self._offsets.get(queue, NO_OFFSET):
            self._offsets[queue] = offset

    def in_memory(self, queue: MessageQueue) -> int:
        return self._offsets.get(queue, NO_OFFSET)

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    async def read(self, queue: MessageQueue) -> int:
        """The stored offset, or NO_OFFSET.

        Only QUERY_NOT_FOUND means "none". Java takes any error code for it, and so may jump to the end when a
        broker is busy (wire.md 8.3); here other codes raise RequestRefused, network trouble RemotingError.
        """
        header = QueryConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        reply = await self._instance.call(queue.broker_name, code, header, timeout_ms=5000)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return NO_OFFSET
        if reply.code != ResponseCode.SUCCESS:
            raise RequestRefused(queue.broker_name, request_name(code), reply.code, reply.remark)
        offset = reply.decode_header(OffsetResponseHeader).offset
        self.update(queue, offset)
        return offset

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
