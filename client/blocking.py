"""A blocking client without a loop: routes, offsets, pulls and sends. It imports little, for Spark's executors.

It works with our broker and with Apache RocketMQ 4.9. A `BlockingClient` does not pickle: send its `Addresses` to an
executor, and open one there.
"""

from typing import Any, Final, NamedTuple, Self, TypeVar

from lockstep.client.errors import NoRouteError, TopicNotFoundError
from lockstep.protocol.bodies.broker import TopicList, TopicRouteData
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    GetRouteInfoRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueueRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.blocking_endpoint import BlockingEndpoint, pause
from lockstep.remoting.errors import ConnectionLost, RemotingError, must_succeed
from lockstep.remoting.tls.options import TlsOptions, client_context, text_of_failure

__all__ = ["Addresses", "BlockingClient", "PullReply", "SendReply", "Ticket", "send_command"]

H = TypeVar("H", bound=tuple[Any, ...])

_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_NO_NAME_SERVER: Final = "is no name server; by default a name server listens on port 9876, and a broker on 10911"
_BULK: Final = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK)
_PULL_CODES: Final = frozenset({
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip
_SEND_CODES: Final = frozenset({
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
})  # fmt: skip  # wire.md 4.5: stored, and flushed
_DEFAULT_QUEUES: Final = 4


class Addresses(NamedTuple):
    """What an executor needs to make a client; it pickles. Times are milliseconds for one attempt."""

    name_servers: tuple[str, ...]
    group: str = "lockstep-pipeline"
    timeout_ms: int = 3_000
    retries: int = 3
    retry_interval_ms: int = 100
    serialize_type: SerializeType = SerializeType.MSGPACK
    credentials: Credentials | None = None
    tls: TlsOptions | None = None

    def open(self) -> "BlockingClient":
        """Raises SettingError for files of TLS that cannot be used."""
        return BlockingClient(self)


class PullReply(NamedTuple):
    """The reply to a pull.

    `code` is SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY or PULL_OFFSET_MOVED (wire.md 6.3). `body` is stored
    messages back to back, for `lockstep.protocol.messages.message`. `status` is the broker's text for the result,
    such as "FOUND".
    """

    code: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    status: str


class SendReply(NamedTuple):
    """The reply to a send. `queue_offset` is of the first message.

    `msg_id` is the broker's, for a batch with commas.
    """

    code: int
    queue_offset: int
    msg_id: str


class Ticket(NamedTuple):
    """A request in flight."""

    endpoint: BlockingEndpoint
    number: int
    code: int


def send_command(
    group: str,
    queue: MessageQueue,
    body: bytes,
    properties: str,
    born_timestamp_ms: int,
    *,
    flag: int = 0,
    is_batch: bool = False,
    place: tuple[int | None, int | None, str | None] = (None, None, None),
) -> RemotingCommand:
    """A send of an encoded body.

    Args:
        place: (generation, sequence, id) in a send sequence, which only a Lockstep broker knows.
    """
    header = SendMessageRequestHeaderV2(
        group,
        queue.topic,
        DEFAULT_TOPIC,
        _DEFAULT_QUEUES,
        queue.queue_id,
        0,
        born_timestamp_ms,
        flag,
        properties,
        0,
        False,
        None,
        is_batch,
        queue.broker_name,
        *place,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    return RemotingCommand(code, header, body)


class BlockingClient:
    """A client for one thread. It connects when needed and keeps connections; `with` or `close()` closes them.

    Routes, offsets and `pull` are repeated `retries` times after a network failure; sends are not.

    Raises (all calls):
        RemotingError: Cannot connect, connection lost, timeout, or refused.
        TopicNotFoundError: The name servers do not know the topic.
        NoRouteError: They do not know the broker.
    """

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self._tls = None if addresses.tls is None else client_context(addresses.tls)
        self._endpoints: dict[str, BlockingEndpoint] = {}
        self._routes: dict[str, TopicRouteData] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._endpoints.clear()

    # Name servers --------------------------------------------------------------------------------------------

    def route(self, topic: str, *, fresh: bool = False) -> TopicRouteData:
        """The route of a topic; from memory unless `fresh`."""
        known = self._routes.get(topic)
        if known is not None and not fresh:
            return known
        reply = self._ask_name_servers(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(f"no topic {topic!r}: the name servers {self._named()} have no route for it")
        must_succeed(reply, self._named(), RequestCode.GET_ROUTEINFO_BY_TOPIC)
        route = decode_body(TopicRouteData, reply.body, reply.serialize_type)
        self._routes[topic] = route
        return route

    def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted, with RocketMQ's own."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        reply = self._ask_name_servers(code, None)
        must_succeed(reply, self._named(), code)
        return tuple(sorted(decode_body(TopicList, reply.body, reply.serialize_type).topic_list))

    def readable_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues, sorted; asked again in each call."""
        return self.route(topic, fresh=True).readable_queues(topic)

    def writable_queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues, sorted; asked again in each call."""
        return self.route(topic, fresh=True).writable_queues(topic)

    def _named(self) -> str:
        return ";".join(self.addresses.name_servers)

    def _ask_name_servers(self, code: RequestCode, header: tuple[Any, ...] | None) -> RemotingCommand:
        failures: dict[str, None] = {}
        for attempt in range(self.addresses.retries + 1):
            self._pause(attempt)
            refusal: RemotingCommand | None = None
            for address in self.addresses.name_servers:
                try:
                    # only our name servers would answer an offer of MSGPACK, and JSON is enough for all
                    endpoint = self._endpoint(address, SerializeType.JSON)
                    reply = endpoint.request(RemotingCommand(code, header), self.addresses.timeout_ms)
                except RemotingError as error:
                    failures[text_of_failure(error, self.addresses.tls)] = None
                    continue
                if reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return reply
                reply.remark, refusal = f"{address} {_NO_NAME_SERVER}", reply
            if refusal is not None:
                return refusal
        raise ConnectionLost(self._named(), f"no name server answers ({'; '.join(failures)})")

    # Brokers -------------------------------------------------------------------------------------------------

    def address_of(self, queue: MessageQueue) -> str:
        """Address of a broker's master. Raises NoRouteError when the route has none."""
        for data in self.route(queue.topic).broker_datas:
            if data.broker_name == queue.broker_name and data.master_addr:
                return data.master_addr
        raise NoRouteError(
            f"queue {queue}: the name servers {self._named()} know no master of broker {queue.broker_name}"
        )

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can be read."""
        return self._offset(queue, RequestCode.GET_MIN_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return self._offset(queue, RequestCode.GET_MAX_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    def _offset(self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]) -> int:
        reply, endpoint = self._call(queue, code, header)
        must_succeed(reply, endpoint.address, code)
        return reply.decode_header(OffsetResponseHeader).offset

    def pull(self, queue: MessageQueue, offset: int, max_messages: int, tags: str = "*") -> PullReply:
        """Stored messages from `offset` on, without waiting for new ones. Brokers limit it (32 messages, 256 KiB)."""
        header = self._pull_header(queue, offset, max_messages, tags)
        reply, endpoint = self._call(queue, RequestCode.PULL_MESSAGE, header)
        return self._pull_reply(reply, endpoint.address)

    def start_pull(self, queue: MessageQueue, offset: int, max_messages: int, tags: str = "*") -> Ticket:
        """Start a pull; `finish_pull` takes its reply, other pulls may start before. Neither is repeated.

        A Lockstep broker then has no limit of messages, only the one in bytes.
        """
        header = self._pull_header(queue, offset, max_messages, tags)
        if self.agrees(queue):
            header = header._replace(sys_flag=_BULK)
        return self.start(queue, RemotingCommand(RequestCode.PULL_MESSAGE, header))

    def finish_pull(self, ticket: Ticket) -> PullReply:
        return self._pull_reply(self.finish(ticket), ticket.endpoint.address)

    def _pull_header(self, queue: MessageQueue, offset: int, max_messages: int, tags: str) -> PullMessageRequestHeader:
        group = self.addresses.group
        return PullMessageRequestHeader(
            group, queue.topic, queue.queue_id, offset, max_messages, _SUBSCRIPTION, 0, 0, 0, tags, "TAG"
        )

    def _pull_reply(self, reply: RemotingCommand, address: str) -> PullReply:
        must_succeed(reply, address, RequestCode.PULL_MESSAGE, _PULL_CODES)
        header = reply.decode_header(PullMessageResponseHeader)
        return PullReply(
            reply.code, header.next_begin_offset, header.min_offset, header.max_offset, reply.body, reply.remark or ""
        )

    # Sending -------------------------------------------------------------------------------------------------

    def send(self, queue: MessageQueue, record: BatchRecord, born_timestamp_ms: int) -> SendReply:
        """Send one message. After RequestTimeout or ConnectionLost it may or may not be stored."""
        return self.finish_send(self.start_send(queue, record, born_timestamp_ms))

    def send_batch(self, queue: MessageQueue, records: list[BatchRecord], born_timestamp_ms: int) -> SendReply:
        """Send several messages to adjacent offsets of the queue: all or none. A broker takes 4 MiB by default."""
        return self.finish_send(self.start_send(queue, records, born_timestamp_ms))

    def start_send(self, queue: MessageQueue, what: BatchRecord | list[BatchRecord], born_timestamp_ms: int) -> Ticket:
        """Start a send; sends to one broker are stored in the order of their starts."""
        group = self.addresses.group
        if isinstance(what, BatchRecord):
            command = send_command(group, queue, what.body, what.properties, born_timestamp_ms, flag=what.flag)
        else:
            command = send_command(group, queue, encode_batch(what), "", born_timestamp_ms, is_batch=True)
        return self.start(queue, command)

    def finish_send(self, ticket: Ticket) -> SendReply:
        reply = self.finish(ticket)
        must_succeed(reply, ticket.endpoint.address, ticket.code, _SEND_CODES)
        header = reply.decode_header(SendMessageResponseHeader)
        return SendReply(reply.code, header.queue_offset, header.msg_id)

    # Any request ---------------------------------------------------------------------------------------------

    def start(self, queue: MessageQueue, command: RemotingCommand) -> Ticket:
        """Send a request to the broker of a queue. `finish` the tickets of one broker in the order of their starts."""
        endpoint = self._endpoint(self.address_of(queue), self.addresses.serialize_type, agree=True)
        return Ticket(endpoint, endpoint.start(command, self.addresses.timeout_ms), command.code)

    def agrees(self, queue: MessageQueue) -> bool:
        """Whether the broker of a queue agreed to our encoding, and so to requests that RocketMQ does not have."""
        return self._endpoint(self.address_of(queue), self.addresses.serialize_type, agree=True).agreed

    def finish(self, ticket: Ticket) -> RemotingCommand:
        """The reply, with any code."""
        return ticket.endpoint.finish(ticket.number, self.addresses.timeout_ms)

    def _call(
        self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]
    ) -> tuple[RemotingCommand, BlockingEndpoint]:
        """A request, repeated after a network failure with a fresh route: the broker may have moved."""
        for attempt in range(self.addresses.retries + 1):
            self._pause(attempt)
            try:
                if attempt:
                    self.route(queue.topic, fresh=True)
                ticket = self.start(queue, RemotingCommand(code, header))
                return self.finish(ticket), ticket.endpoint
            except RemotingError as error:
                if attempt == self.addresses.retries or not error.retriable:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, attempt: int) -> None:
        if attempt:
            pause(self.addresses.retry_interval_ms)

    def _endpoint(self, address: str, serialize_type: SerializeType, *, agree: bool = False) -> BlockingEndpoint:
        endpoint = self._endpoints.get(address)
        if endpoint is None or endpoint.closed:
            endpoint = self._endpoints[address] = BlockingEndpoint(
                address, self.addresses.timeout_ms, serialize_type, self.addresses.credentials, self._tls
            )
            if agree and serialize_type is SerializeType.MSGPACK:
                # a cheap request that every broker knows: after it, pulls and sends may overlap
                header = QueueRequestHeader(DEFAULT_TOPIC, 0)
                endpoint.request(RemotingCommand(RequestCode.GET_MAX_OFFSET, header), self.addresses.timeout_ms)
        return endpoint
