"""One pull: its broker, its flags, and the meaning of its answer, for every consumer (wire.md 6, 12.6).

Each answer suggests the id of the broker for the next pull: 0, the master, or a slave when the messages are no longer
in the master's memory. The suggestion is remembered for each queue. A slave stores no offsets, so a pull that goes to a
slave has none.
"""

from enum import Enum
from typing import NamedTuple

from lockstep.client.errors import NoRouteError
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import MASTER_ID, PullSysFlag, RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueueRequestHeader,
)
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.pulled import Taken, decode_pulled, take
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError, RequestRefused, must_succeed

__all__ = ["PullCalls", "PullRequest", "PullResult", "PullSource", "PullStatus"]

_COMMIT, _SUSPEND, _SUBSCRIPTION = (
    int(flag) for flag in (PullSysFlag.COMMIT_OFFSET, PullSysFlag.SUSPEND, PullSysFlag.SUBSCRIPTION)
)


class PullStatus(Enum):
    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUSES = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullResult(NamedTuple):
    """The answer to a pull. `messages` may be empty when FOUND: the filter of this client took all of them out."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]


class PullSource(NamedTuple):
    address: str
    is_slave: bool


class PullRequest(NamedTuple):
    """One pull.

    Args:
        sys_flag: bits of PullSysFlag.
        commit_offset: used with the bit COMMIT_OFFSET only.
        sub_version: the version of the subscription in the last heartbeat; 0 where the request has its text.
        suspend_ms: how long the broker may hold the request.
        timeout_ms: how long this client waits for the answer.
        epoch: of the fenced lock; 0: none.
    """

    queue: MessageQueue
    subscription: SubscriptionData
    offset: int
    max_messages: int
    sys_flag: int = _SUSPEND
    commit_offset: int = 0
    sub_version: int = 0
    suspend_ms: int = 15_000
    timeout_ms: int = 30_000
    epoch: int = 0

    @property
    def commits(self) -> bool:
        return bool(self.sys_flag & _COMMIT)

    def to_slave(self) -> "PullRequest":
        return self._replace(sys_flag=self.sys_flag & ~_COMMIT, commit_offset=0)


class PullCalls:
    """Makes the pulls of one member of a group: `source` chooses the broker, `call` pulls.

    Args:
        shown_to: for messages that the user gets as they were pulled: their topics lose the namespace.
    """

    def __init__(
        self,
        instance: MQClientInstance,
        group: str,
        hooks: ConsumeHooks | None = None,
        shown_to: NamesOfTenant | None = None,
    ) -> None:
        self._instance = instance
        self._shown_to = shown_to
        self._hooks = hooks
        self._group = group
        self._suggested: dict[MessageQueue, int] = {}  # pullFromWhichNode; the master is left out
        self._reported: dict[MessageQueue, int] = {}  # the offset of the last unreadable message that was logged

    def source(self, queue: MessageQueue) -> PullSource:
        """Choose the broker of the next pull. Raises NoRouteError while no route names it."""
        broker_id = self._suggested.get(queue, MASTER_ID)
        found = self._instance.routes.reading_address(queue.broker_name, broker_id)
        if found is None:
            raise NoRouteError(f"no route names broker {queue.broker_name!r}")
        address, found_id = found
        return PullSource(address, found_id != MASTER_ID)

    async def endpoint(self, queue: MessageQueue, source: PullSource) -> Endpoint:
        """Connect to the broker. Raises ConnectFailed; the next pull of the queue then goes to the master."""
        dialer = self._instance.dialer
        try:
            return dialer.open_endpoint(source.address) or await dialer.endpoint(source.address)
        except RemotingError:
            self._suggested.pop(queue, None)
            raise

    async def recovered_offset(self, queue: MessageQueue, endpoint: Endpoint) -> int:
        """Where the queue ended when the broker opened its log. Raises RemotingError, ProtocolError, RequestRefused."""
        header = QueueRequestHeader(queue.topic, queue.queue_id)
        command = RemotingCommand(RequestCode.GET_RECOVERED_OFFSET, header)
        reply = await endpoint.request(command, self._instance.config.request_timeout_ms)
        must_succeed(reply, endpoint.address, command.code)
        return reply.decode_header(OffsetResponseHeader).offset

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)

    async def call(self, request: PullRequest, source: PullSource, endpoint: Endpoint) -> PullResult:
        """Pull. An unreadable record is pulled again alone, and is then a message with `body_error`.

        Raises RemotingError, ProtocolError.
        """
        if source.is_slave:
            request = request.to_slave()
        reply = await self._ask(request, endpoint)
        status, bounds = self._answer(reply, request, endpoint.address)
        taken: Taken | None = Taken([], bounds.next_begin_offset)
        if status is PullStatus.FOUND:
            taken = await self._taken(reply.body, request, bounds.next_begin_offset)
        if taken is None:
            return await self.call(request._replace(max_messages=1), source, endpoint)
        messages = self._wanted(taken, request, bounds)
        return PullResult(status, taken.next_offset, bounds.min_offset, bounds.max_offset, messages)

    async def _ask(self, request: PullRequest, endpoint: Endpoint) -> RemotingCommand:
        queue, subscription = request.queue, request.subscription
        with_text = bool(request.sys_flag & _SUBSCRIPTION)
        fence = (request.epoch, self._instance.client_id) if request.epoch and endpoint.agreed else ()
        header = PullMessageRequestHeader(
            self._group,
            queue.topic,
            queue.queue_id,
            request.offset,
            request.max_messages,
            request.sys_flag,
            request.commit_offset,
            request.suspend_ms,
            request.sub_version,
            subscription.sub_string if with_text else None,
            subscription.expression_type if with_text else None,
            *fence,
        )
        command = RemotingCommand(RequestCode.PULL_MESSAGE, header)
        try:
            return await endpoint.request_nowait(command, request.timeout_ms)
        except RemotingError:
            self._suggested.pop(queue, None)
            raise

    def _answer(
        self, reply: RemotingCommand, request: PullRequest, address: str
    ) -> tuple[PullStatus, PullMessageResponseHeader]:
        queue = request.queue
        status = _STATUSES.get(reply.code)
        if status is None:
            # Do not ask a slave that cannot answer again and again.
            self._suggested.pop(queue, None)
            raise RequestRefused(address, request_name(RequestCode.PULL_MESSAGE), reply.code, reply.remark)
        bounds = reply.decode_header(PullMessageResponseHeader)
        if bounds.suggest_which_broker_id != MASTER_ID:
            self._suggested[queue] = bounds.suggest_which_broker_id
        elif self._suggested:
            self._suggested.pop(queue, None)
        return status, bounds

    async def _taken(self, data: bytes, request: PullRequest, next_offset: int) -> Taken | None:
        queue = request.queue
        pulled = decode_pulled(data, queue.broker_name)
        if pulled.packed:
            pulled = await self._instance.unpack(pulled)
        return take(pulled, data, queue, request.offset, request.max_messages, next_offset)

    def _wanted(self, taken: Taken, request: PullRequest, bounds: PullMessageResponseHeader) -> list[MessageExt]:
        """Filter the messages. An unreadable record has no tags to check."""
        queue, subscription, messages = request.queue, request.subscription, taken.messages
        min_and_max = (bounds.min_offset, bounds.max_offset)
        for message in messages:
            message.bounds = min_and_max
        if messages and subscription.tags_set and not subscription.class_filter_mode and not taken.is_raw:
            # The broker matched hashes only (wire.md 6.5). Untagged messages are dropped here.
            wanted = subscription.tags_set
            messages = [message for message in messages if message.tags in wanted]
        if messages and self._hooks is not None and self._hooks.filtering:
            messages = self._hooks.wanted(messages, queue)
        if taken.unreadable:
            for message in messages:
                if message.body_error is not None:
                    self._report(queue, message)
        if self._shown_to:
            for message in messages:
                message.topic = self._shown_to.bare(message.topic)
        return messages

    def _report(self, queue: MessageQueue, message: MessageExt) -> None:
        """Log an unreadable message once, however often it is pulled."""
        if message.queue_offset > self._reported.get(queue, -1):
            self._reported[queue] = message.queue_offset
            self._instance.log_unreadable(message)
