"""Producer: sends messages. Those with a sharding key, a selector or a given queue stay in call order."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from lockstep.client.callables import log_or_raise
from lockstep.client.config import ProducerConfig
from lockstep.client.credentials import with_credentials
from lockstep.client.errors import ClientError
from lockstep.client.hook_calls import SendHooks
from lockstep.client.hooks import CheckForbiddenHook, CommunicationMode, SendMessageHook
from lockstep.client.instance.client import BrokerCall, ClientRole, MQClientInstance, name_server_addresses
from lockstep.client.instance.registry import GroupClaim, claim_group
from lockstep.client.lifecycle import Lifecycle
from lockstep.client.producer.metrics import SendTimes
from lockstep.client.producer.ordered import OrderedSender
from lockstep.client.producer.outgoing import Outgoing
from lockstep.client.producer.publish_queues import PublishQueues
from lockstep.client.producer.request import SendRequests, common_sharding_key
from lockstep.client.producer.request_reply import Replies, RequestMessage
from lockstep.client.producer.round_robin import AnywhereSender
from lockstep.client.producer.selectors import MessageQueueSelector, select_by_hash
from lockstep.client.producer.send_trace import SendTrace
from lockstep.client.producer.wrong_types import check_timeout, wrong_type
from lockstep.client.send_result import SendResult
from lockstep.client.tls import with_tls
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers.messaging import RecallMessageRequestHeader, RecallMessageResponseHeader
from lockstep.protocol.messages.ids import UniqueKeyMaker, pack_host
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.protocol.recall import RecallHandle
from lockstep.protocol.selector import queue_of_hash
from lockstep.protocol.signature import Credentials
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.logs import EventLog, client_log
from lockstep.remoting.tls.options import TlsOptions

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Producer", "ProducerOptions", "ProducerParts", "SendCallback"]

SendCallback = Callable[[SendResult | None, BaseException | None], object]
"""`(result, error)`, one of them None; `error` may be a BaseException. Called on the event loop when a send ends."""


class ProducerParts(NamedTuple):
    """The parts of a started producer."""

    instance: MQClientInstance
    claim: GroupClaim
    requests: SendRequests
    queues: PublishQueues
    ordered: OrderedSender
    anywhere: AnywhereSender
    replies: Replies
    trace: SendTrace | None


def _traced(parts: ProducerParts, outgoing: Outgoing, sending: Awaitable[SendResult]) -> Awaitable[SendResult]:
    return sending if parts.trace is None else parts.trace.follow(outgoing, sending)


class _Place(NamedTuple):
    """Where a message must go."""

    sharding_key: str | None = None
    selector: MessageQueueSelector | None = None
    arg: Any = None
    queue: MessageQueue | None = None


class ProducerOptions(TypedDict, total=False):
    """The keyword arguments of a Producer."""

    name_server: str | None
    namespace: str | None
    config: ProducerConfig | None
    credentials: Credentials | None
    tls: TlsOptions | bool | None
    trace: str | None
    metrics: "CollectorRegistry | None"
    runtime: Runtime | None
    log: EventLog | None


class Producer(Lifecycle):
    """`async with Producer("group", name_server="127.0.0.1:9876") as producer: await producer.send(message)`

    Args:
        name_server: "host:port[;host:port]"; without it, the environment variable NAMESRV_ADDR.
        namespace: separates the topics and groups of tenants. Brokers see `namespace%name`, callers see `name`.
        credentials: the account that signs the requests; without it, LOCKSTEP_ACCESS_KEY and LOCKSTEP_SECRET_KEY
            of the environment, or no signature.
        tls: True or TlsOptions: all connections use TLS; without it, as LOCKSTEP_TLS says.
        trace: the path of a file that gets one JSON line for each message that was sent or failed.
        metrics: a registry of prometheus_client that gets the metrics of this producer while it runs (docs/metrics.md).
    """

    _config_class = ProducerConfig

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        namespace: str | None = None,
        config: ProducerConfig | None = None,
        credentials: Credentials | None = None,
        tls: TlsOptions | bool | None = None,
        trace: str | None = None,
        metrics: "CollectorRegistry | None" = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        check_group(group)
        self._tenant = NamesOfTenant(namespace)
        self._has_tenant = bool(self._tenant)
        self.group = self._tenant.wrap(group)
        check_group(self.group)
        self.config = with_tls(with_credentials(config or ProducerConfig(), credentials), tls)
        self._name_servers = name_server_addresses(name_server, self.config)
        self._trace_path = trace
        self._metrics = metrics
        self._end_metrics: Callable[[], None] = lambda: None
        self._runtime = runtime
        self._log = client_log(log)
        self._hooks = SendHooks(self.group, self._log, self._tenant)
        self._parts: ProducerParts | None = None
        self._client_id: str | None = None
        self._starting = 0  # sends that were called and have not begun; later sends must not overtake them

    # Life ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        config, runtime = self.config, self._runtime or AsyncioRuntime()
        role = ClientRole(producer_group=self.group)
        instance = MQClientInstance(runtime, self._name_servers, config, self._log, role)
        claim = claim_group(instance, "producer", self.group)
        self._client_id = instance.client_id
        try:
            self._parts = self._assemble(instance, claim, runtime)
        except BaseException:
            claim.release()
            raise
        instance.serve(self._broker_calls(self._parts))
        instance.start()
        if self._metrics is not None:
            from lockstep.client.metrics import attach  # imported here: it needs the extra `metrics`

            times = SendTimes(runtime, self._tenant, (self.group, instance.client_id))
            self._hooks.add_send(times)
            self._end_metrics = attach(self._metrics, times.rows)

    def _assemble(self, instance: MQClientInstance, claim: GroupClaim, runtime: Runtime) -> ProducerParts:
        config, identity = self.config, instance.identity
        keys = UniqueKeyMaker(pack_host(identity.host), identity.pid, identity.serial)
        requests = SendRequests(
            self.group, config, instance.client_id, keys, runtime, tenant=self._tenant, hooks=self._hooks
        )
        queues = PublishQueues(instance.routes, config.default_topic_queue_nums, config.create_topic_key)
        trace = None
        if self._trace_path:
            trace = SendTrace(TraceWriter(runtime, self._trace_path, instance.client_id, self.group))
        return ProducerParts(
            instance,
            claim,
            requests,
            queues,
            OrderedSender(instance, requests, config),
            AnywhereSender(instance, requests, config, queues),
            Replies(instance),
            trace,
        )

    def _broker_calls(self, parts: ProducerParts) -> Mapping[int, BrokerCall]:
        return parts.replies.handlers

    async def _shutdown(self) -> None:
        parts, self._parts = self._started(), None
        self._end_metrics()
        await parts.instance.shutdown()
        parts.claim.release()
        parts.requests.close()
        if parts.trace is not None:
            parts.trace.close()

    @property
    def client_id(self) -> str:
        """Known from the start on, after the shutdown too."""
        if self._client_id is None:
            raise self.wrong_state()
        return self._client_id

    def register_send_message_hook(self, hook: SendMessageHook) -> None:
        """Called before and after each attempt to send."""
        self._hooks.add_send(hook)

    def register_check_forbidden_hook(self, hook: CheckForbiddenHook) -> None:
        self._hooks.add_check_forbidden(hook)

    # Sending -------------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        selector: MessageQueueSelector | None = None,
        arg: Any = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        With a sharding key (here or on the message), a selector with its `arg`, or a queue, the message goes to that
        queue in call order, even while other sends are in flight, and is attempted once. Without these, queues take
        turns, and after a failure other brokers are tried (`retry_times`).

        Raises:
            SendError: the message is not stored, or may not be; `outcome` says which.
            NoRouteError: the topic has no queue.
            SendForbiddenError: a hook forbids it.
            LocalProtocolError: the message must not be sent.
        """
        parts = self._parts or self._started()
        if self._starting:
            await self._after_earlier_calls()
        outgoing = parts.requests.outgoing(message, sharding_key)
        key = outgoing.sharding_key
        timeout_ms = self.config.send_timeout_ms if timeout_ms is None else self._timeout_ms(timeout_ms)
        queues = parts.queues.known(outgoing.topic) if key is not None and selector is None and queue is None else None
        if queues is not None:
            # The common case needs no other coroutine.
            queue = queue_of_hash(queues, key)
            sending = parts.ordered.send(queue, outgoing, timeout_ms)
            result = await (sending if parts.trace is None else parts.trace.follow(outgoing, sending))
        else:
            result = await self._send(parts, message, outgoing, _Place(key, selector, arg, queue), timeout_ms)
        return result._replace(queue=self._tenant.bare_queue(result.queue)) if self._has_tenant else result

    async def _send(
        self, parts: ProducerParts, message: Message, outgoing: Outgoing, place: _Place, timeout_ms: int
    ) -> SendResult:
        """Send to the place that the caller named, or to any queue. The result has the names that brokers know."""
        if place.sharding_key is None and place.selector is None and place.queue is None:  # `arg` alone names none
            return await _traced(parts, outgoing, parts.anywhere.send(outgoing, timeout_ms))
        queue = await self._choose(message, outgoing.topic, place)
        return await _traced(parts, outgoing, parts.ordered.send(queue, outgoing, timeout_ms))

    def send_async(
        self,
        message: Message,
        callback: SendCallback | None = None,
        *,
        sharding_key: str | None = None,
        selector: MessageQueueSelector | None = None,
        arg: Any = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> "asyncio.Task[SendResult]":
        """Begin to send, without waiting. The task has the result of `send`; `callback` gets it too.

        A message that may go to any queue is tried again (`retry_times_when_send_async_failed`) after a network
        failure, but not after a broker refused it. Order is kept among all kinds of sends. With a callback the task
        need not be awaited. Only the caller limits the number of sends in flight.
        The error for a callback is an Exception, or another BaseException that your code, such as a selector, raised.
        """
        parts = self._started()
        place = _Place(sharding_key, selector, arg, queue)
        sending = self._send_as_task(parts, message, place, timeout_ms)
        self._starting += 1
        task = parts.instance.runtime.create_task(sending, name=f"send to {getattr(message, 'topic', None)}")
        asyncio.get_running_loop().call_soon(
            self._begun
        )  # runs after the first step of the task, in which it takes its ticket
        if callback is not None:
            task.add_done_callback(partial(self._call_back, callback))
        return task

    def _begun(self) -> None:
        self._starting -= 1

    async def _send_as_task(
        self, parts: ProducerParts, message: Message, place: _Place, timeout_ms: int | None
    ) -> SendResult:
        outgoing = parts.requests.outgoing(message, place.sharding_key)._replace(mode=CommunicationMode.ASYNC)
        place = place._replace(sharding_key=outgoing.sharding_key)
        result = await self._send(parts, message, outgoing, place, self._timeout_ms(timeout_ms))
        return result._replace(queue=self._tenant.bare_queue(result.queue))

    def _call_back(self, callback: SendCallback, task: "asyncio.Task[SendResult]") -> None:
        error = ClientError("the send was cancelled") if task.cancelled() else task.exception()
        try:
            callback(None if error is not None else task.result(), error)
        except BaseException as failure:
            log_or_raise(self._log, "send_callback_failed", failure)

    async def _after_earlier_calls(self) -> None:
        """Wait one round of the event loop: by then the tasks of earlier calls have begun."""
        self._starting += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._starting -= 1

    async def send_batch(
        self, messages: Sequence[Message], *, sharding_key: str | None = None, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic in one request to one queue, where they get consecutive offsets.

        Without a key or a queue given here, all messages must have the same key, or none.

        Returns:
            `queue_offset` is that of the first message; `msg_id` has all ids, joined by commas.

        Raises:
            As `send`.
        """
        parts = self._started()
        if self._starting:
            await self._after_earlier_calls()
        if sharding_key is None and queue is None:
            sharding_key = common_sharding_key(messages)
        outgoing = parts.requests.outgoing_batch(messages, sharding_key)
        place = _Place(sharding_key, queue=queue)
        result = await self._send(parts, messages[0], outgoing, place, self.config.send_timeout_ms)
        return result._replace(queue=self._tenant.bare_queue(result.queue))

    async def send_one_way(
        self, message: Message, *, sharding_key: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Send without an answer: the message may be lost without notice."""
        parts = self._started()
        if self._starting:
            await self._after_earlier_calls()
        outgoing = parts.requests.outgoing(message, sharding_key)._replace(mode=CommunicationMode.ONEWAY)
        key = outgoing.sharding_key
        if key is None and queue is None:
            chosen = parts.anywhere.take_turns(await parts.queues.find(outgoing.topic))
        else:
            chosen = await self._choose(message, outgoing.topic, _Place(key, queue=queue))
        await parts.ordered.send_one_way(chosen, outgoing)

    async def request(
        self,
        message: Message,
        *,
        sharding_key: str | None = None,
        selector: MessageQueueSelector | None = None,
        arg: Any = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> MessageExt:
        """Send a message and wait for the reply that its consumer makes with `reply_message`.

        Raises:
            RequestTimeoutError: the message was sent, and no reply came in time.
            Others: as `send`.
        """
        parts = self._started()
        timeout_ms = self._timeout_ms(timeout_ms)
        if error := wrong_type(message, sharding_key):
            raise error
        runtime = parts.instance.runtime
        deadline_ms = runtime.now_ms() + timeout_ms
        correlation_id, answer = parts.replies.expect()
        request = RequestMessage.of(message, correlation_id, parts.instance.client_id, timeout_ms)
        try:
            topics = (self._tenant.wrap(message.topic), self.config.create_topic_key)
            await parts.replies.reachable(topics, timeout_ms)
            remaining_ms = max(deadline_ms - runtime.now_ms(), 1)
            await self.send_async(
                request, sharding_key=sharding_key, selector=selector, arg=arg, queue=queue, timeout_ms=remaining_ms
            )
            return await parts.replies.answer(answer, message.topic, deadline_ms - runtime.now_ms(), timeout_ms)
        finally:
            parts.replies.forget(correlation_id)

    async def recall(self, handle: str) -> str:
        """Recall a message that waits for its time: consumers will not get it. Returns its id.

        As in RocketMQ, it is no error if the broker does not have the message.

        Args:
            handle: `recall_handle` of the result of its send.

        Raises:
            RequestRefused: it is too late, or the broker allows no recalls, as Apache's by default.
            NoRouteError: the topic has no queue.
            LocalProtocolError: this is no handle.
        """
        parts, named = self._started(), RecallHandle.decode(handle)
        # Asked for the address of the broker.
        await parts.queues.find(named.topic)
        code, header = RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(named.topic, handle, self.group)
        reply = await parts.instance.call(named.broker_name, code, header)
        parts.instance.check_reply(reply, named.broker_name, code)
        return reply.decode_header(RecallMessageResponseHeader).msg_id

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic, sorted. Raises NoRouteError when it has none."""
        found = await self._started().queues.find(self._tenant.wrap(topic))
        return [self._tenant.bare_queue(queue) for queue in found]

    async def _choose(self, message: Message, topic: str, place: _Place) -> MessageQueue:
        """Return the queue of a message. The route is needed even for a given queue: it has the broker's address."""
        tenant, queues = self._tenant, await self._started().queues.find_in_turn(topic)
        key, selector, arg, queue = place
        if queue is None and selector is None:
            return select_by_hash(queues, message, key)
        chosen: Any = queue
        if chosen is None and selector is not None:
            shown = [tenant.bare_queue(each) for each in queues] if tenant else queues
            chosen = selector(shown, message, key if arg is None else arg)
        if isinstance(chosen, MessageQueue):
            real = tenant.wrap_queue(chosen)
            if real.topic == topic:
                return real
        raise LocalProtocolError(f"a message of topic {message.topic!r} cannot go to {chosen!r:.200}")

    def _timeout_ms(self, given_ms: int | None) -> int:
        """Raises LocalProtocolError."""
        check_timeout(given_ms)
        return given_ms or self.config.send_timeout_ms

    def _started(self) -> ProducerParts:
        if self._parts is None:
            raise self.wrong_state()
        return self._parts
