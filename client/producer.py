"""Producer: sends messages; those with a sharding key, a selector or a queue of their own stay in call order."""

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import ClientError, NoRouteError, SendError, SendOutcome
from lockstep.client.instance import MQClientInstance, name_server_addresses
from lockstep.client.selector import MessageQueueSelector, select_by_hash
from lockstep.client.send_ordered import OrderedSender
from lockstep.client.send_request import Outgoing, SendRequests, SendResult, read_send_reply
from lockstep.client.trace import TraceWriter
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.ids import UniqueKeyMaker, pack_host
from lockstep.protocol.model import Message, MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC, check_group
from lockstep.remoting.errors import ConnectFailed, RemotingError
from lockstep.remoting.logs import EventLog, StdlibLog
from lockstep.remoting.runtime import AsyncioRuntime, Runtime

__all__ = ["Producer"]

# wire.md 12.11: the broker's answers after which another attempt makes sense; SYSTEM_BUSY is not among them.
_RETRIED_CODES = frozenset({
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
})  # fmt: skip


class _Asking:
    """Sends of one topic that wait for its route. The lock is fair: it lets them go on in the order they came."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.queues: list[MessageQueue] | None = None
        self.failure: str | None = None


class Producer:
    """`async with Producer("group", name_server="127.0.0.1:9876") as producer: await producer.send(message)`

    `name_server` is "host:port[;host:port]" or, when absent, the environment's NAMESRV_ADDR. `trace` names a file
    that gets a JSON line for every message sent or failed.
    """

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        config: ProducerConfig | None = None,
        trace: str | None = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.config = config or ProducerConfig()
        self._name_servers = name_server_addresses(name_server)
        self._trace_path = trace
        self._runtime = runtime
        self._log = log or StdlibLog("lockstep.client")
        self._queues: dict[str, list[MessageQueue]] = {}
        self._asking: dict[str, _Asking] = {}
        self._next_queue = 0
        self._trace: TraceWriter | None = None
        self._instance: MQClientInstance | None = None

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._instance is not None:
            raise ClientError("this producer was started before; make a new one")
        runtime = self._runtime or AsyncioRuntime()
        instance = MQClientInstance(runtime, self._name_servers, self.config, self._log, producer_group=self.group)
        instance.routes.on_changed.append(self._forget_queues)
        instance.start()
        identity = instance.identity
        keys = UniqueKeyMaker(pack_host(identity.host), identity.pid, identity.serial)
        self._requests = SendRequests(self.group, self.config, instance.client_id, keys, runtime)
        if self._trace_path is not None:
            self._trace = TraceWriter(runtime, self._trace_path, instance.client_id, self.group)
        self._ordered = OrderedSender(instance, self._requests, self.config, self._trace)
        self._next_queue = runtime.rng.randrange(1 << 16)
        self._instance = instance

    async def shutdown(self) -> None:
        if self._instance is not None:
            await self._instance.shutdown()
        if self._trace is not None:
            self._trace.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    @property
    def client_id(self) -> str:
        return self._started().client_id

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

        With a sharding key (here or on the message), a selector with its `arg`, or a queue, the message goes to
        that queue in call order, however many sends are in flight, and is tried once. Without, queues take turns
        and other brokers are tried (`retry_times`).

        Raises SendError (`outcome` says whether the message may be stored), NoRouteError, LocalProtocolError for a
        message that must not be sent.
        """
        key = sharding_key if sharding_key is not None else message.sharding_key
        outgoing = self._requests.outgoing(message, key)
        timeout_ms = timeout_ms or self.config.send_timeout_ms
        if selector is None and queue is None:
            if key is None:
                return await self._send_anywhere(outgoing, timeout_ms)
            queues = self._queues.get(message.topic)
            if queues is not None:  # the common case, without a coroutine of its own
                return await self._ordered.send(select_by_hash(queues, message, key), outgoing, timeout_ms)
        chosen = await self._choose(message, key, selector, arg, queue)
        return await self._ordered.send(chosen, outgoing, timeout_ms)

    async def send_batch(
        self, messages: Sequence[Message], *, sharding_key: str | None = None, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic as one request to one queue, where they get consecutive offsets.

        The result's `queue_offset` is the first one, its `msg_id` all of them with commas between. Raises as `send`.
        """
        outgoing = self._requests.outgoing_batch(messages, sharding_key)
        if sharding_key is None and queue is None:
            return await self._send_anywhere(outgoing, self.config.send_timeout_ms)
        chosen = await self._choose(messages[0], sharding_key, None, None, queue)
        return await self._ordered.send(chosen, outgoing, self.config.send_timeout_ms)

    async def send_one_way(
        self, message: Message, *, sharding_key: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Send without waiting for an answer: the message may be lost, and nobody will know."""
        key = sharding_key if sharding_key is not None else message.sharding_key
        outgoing = self._requests.outgoing(message, key)
        if key is None and queue is None:
            chosen = self._take_turns(await self.queues(message.topic), avoid=None)
        else:
            chosen = await self._choose(message, key, None, None, queue)
        await self._ordered.send_one_way(chosen, outgoing)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic, sorted. Raises NoRouteError for a topic nobody knows.

        A topic that does not exist yet is asked for where it would be made: on the brokers that carry TBW102
        (wire.md 10.4).
        """
        queues = self._queues.get(topic)
        if queues is None:
            queues = await self._find_queues(topic)
            if topic not in self._asking:
                self._queues[topic] = queues
        return queues

    async def _queues_in_turn(self, topic: str) -> list[MessageQueue]:
        """`queues` for sends that must keep their order: one asks, and who calls meanwhile goes on in call order.

        Only when the last of them has gone on does `_queues` know the topic, and later sends need not wait.
        """
        asking = self._asking.setdefault(topic, _Asking())
        asking.waiting += 1
        try:
            async with asking.lock:
                if asking.failure is not None:
                    raise NoRouteError(asking.failure)
                if asking.queues is None:
                    asking.queues = await self._find_queues(topic)
                return asking.queues
        except NoRouteError as error:
            asking.failure = str(error)
            raise
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                del self._asking[topic]
                if asking.queues is not None:
                    self._queues[topic] = asking.queues

    async def _find_queues(self, topic: str) -> list[MessageQueue]:
        routes = self._started().routes
        route = await routes.get(topic)
        if route is not None:
            queues = route.writable_queues(topic)
        else:
            default = await routes.get(DEFAULT_TOPIC)
            limit = self.config.default_topic_queue_nums
            queues = [q for q in default.writable_queues(topic) if q.queue_id < limit] if default else []
        if not queues:
            raise NoRouteError(f"topic {topic!r} does not exist, or has no writable queue, and is not made by sending")
        return queues

    async def _choose(
        self,
        message: Message,
        key: str | None,
        selector: MessageQueueSelector | None,
        arg: Any,
        queue: MessageQueue | None,
    ) -> MessageQueue:
        """The route is asked for even when the queue is given: it says where that queue's broker is."""
        queues = self._queues.get(message.topic) or await self._queues_in_turn(message.topic)
        if queue is not None:
            return queue
        if selector is None:
            return select_by_hash(queues, message, key)
        return selector(queues, message, key if arg is None else arg)

    # Sends that may go anywhere ------------------------------------------------------------------------------

    async def _send_anywhere(self, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        instance = self._started()
        deadline_ms = instance.runtime.now_ms() + timeout_ms
        failed_broker: str | None = None
        last_error: SendError | None = None
        for _ in range(1 + self.config.retry_times):
            remaining_ms = deadline_ms - instance.runtime.now_ms()
            if remaining_ms <= 0:
                break
            queue = self._take_turns(await self.queues(outgoing.topic), avoid=failed_broker)
            try:
                result = await self._attempt(instance, queue, outgoing, remaining_ms)
            except SendError as error:
                last_error, failed_broker = error, queue.broker_name
                if error.outcome is SendOutcome.REFUSED:
                    if error.code not in _RETRIED_CODES:
                        break
                    if error.code == ResponseCode.TOPIC_NOT_EXIST:
                        self._queues.pop(outgoing.topic, None)
            else:
                if self._trace is not None:
                    self._trace.sent(result, outgoing)
                return result
        if last_error is None:
            last_error = SendError(f"no attempt within {timeout_ms} ms", SendOutcome.NOT_SENT, msg_id=outgoing.msg_id)
        if self._trace is not None:
            self._trace.send_failed(outgoing, last_error.outcome)
        raise last_error

    def _forget_queues(self, topic: str) -> None:
        self._queues.pop(topic, None)
        if topic in self._asking:
            self._asking[topic].queues = None

    async def _attempt(
        self, instance: MQClientInstance, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int
    ) -> SendResult:
        try:
            endpoint = await instance.dialer.endpoint(instance.address_of(queue.broker_name))
            await endpoint.writable()
            future = endpoint.request_nowait(self._requests.command(queue, outgoing), timeout_ms)
        except (ConnectFailed, NoRouteError) as error:
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        try:
            return read_send_reply(await future, queue, outgoing)
        except RemotingError as error:
            raise SendError(str(error), SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None

    def _take_turns(self, queues: Sequence[MessageQueue], avoid: str | None) -> MessageQueue:
        """The next queue, of another broker than the one that just failed where there is one (wire.md 12.11)."""
        for _ in queues:
            self._next_queue += 1
            queue = queues[self._next_queue % len(queues)]
            if queue.broker_name != avoid:
                return queue
        self._next_queue += 1
        return queues[self._next_queue % len(queues)]

    def _started(self) -> MQClientInstance:
        if self._instance is None:
            raise ClientError("this producer is not started; use `async with` or await start()")
        return self._instance
