"""Producer: sends messages; those with a sharding key, a selector or a queue of their own stay in call order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import ClientError
from lockstep.client.instance import MQClientInstance, name_server_addresses
from lockstep.client.lifecycle import Lifecycle
from lockstep.client.publish_queues import PublishQueues
from lockstep.client.selector import MessageQueueSelector, select_by_hash
from lockstep.client.send_anywhere import AnywhereSender
from lockstep.client.send_ordered import OrderedSender
from lockstep.client.send_request import SendRequests, SendResult, common_sharding_key
from lockstep.client.trace import TraceWriter
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.ids import UniqueKeyMaker, pack_host
from lockstep.protocol.model import Message, MessageQueue
from lockstep.protocol.names import check_group
from lockstep.remoting.logs import EventLog, StdlibLog
from lockstep.remoting.runtime import AsyncioRuntime, Runtime

__all__ = ["Producer"]


class _Parts(NamedTuple):
    """What a started producer is made of."""

    instance: MQClientInstance
    requests: SendRequests
    queues: PublishQueues
    ordered: OrderedSender
    anywhere: AnywhereSender
    trace: TraceWriter | None


class Producer(Lifecycle):
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
        self._parts: _Parts | None = None

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._parts is not None:
            raise ClientError("this producer was started before; make a new one")
        config, runtime = self.config, self._runtime or AsyncioRuntime()
        instance = MQClientInstance(runtime, self._name_servers, config, self._log, producer_group=self.group)
        identity = instance.identity
        keys = UniqueKeyMaker(pack_host(identity.host), identity.pid, identity.serial)
        requests = SendRequests(self.group, config, instance.client_id, keys, runtime)
        queues = PublishQueues(instance.routes, config.default_topic_queue_nums)
        trace = TraceWriter(runtime, self._trace_path, instance.client_id, self.group) if self._trace_path else None
        self._parts = _Parts(
            instance,
            requests,
            queues,
            OrderedSender(instance, requests, config, trace),
            AnywhereSender(instance, requests, config, queues, trace),
            trace,
        )
        instance.start()

    async def shutdown(self) -> None:
        if self._parts is not None:
            await self._parts.instance.shutdown()
            if self._parts.trace is not None:
                self._parts.trace.close()

    @property
    def client_id(self) -> str:
        return self._started().instance.client_id

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
        parts = self._parts or self._started()
        key = sharding_key if sharding_key is not None else message.sharding_key
        outgoing = parts.requests.outgoing(message, key)
        timeout_ms = timeout_ms or self.config.send_timeout_ms
        if selector is None and queue is None:
            if key is None:
                return await parts.anywhere.send(outgoing, timeout_ms)
            queues = parts.queues.known(message.topic)
            if queues is not None:  # the common case, without a coroutine of its own
                return await parts.ordered.send(select_by_hash(queues, message, key), outgoing, timeout_ms)
        chosen = await self._choose(message, key, selector, arg, queue)
        return await parts.ordered.send(chosen, outgoing, timeout_ms)

    async def send_batch(
        self, messages: Sequence[Message], *, sharding_key: str | None = None, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic as one request to one queue, where they get consecutive offsets.

        Without a key or a queue given here, messages with a key must all have the same one.

        The result's `queue_offset` is the first one, its `msg_id` all of them with commas between. Raises as `send`.
        """
        parts = self._started()
        if sharding_key is None and queue is None:
            sharding_key = common_sharding_key(messages)
        outgoing = parts.requests.outgoing_batch(messages, sharding_key)
        if sharding_key is None and queue is None:
            return await parts.anywhere.send(outgoing, self.config.send_timeout_ms)
        chosen = await self._choose(messages[0], sharding_key, None, None, queue)
        return await parts.ordered.send(chosen, outgoing, self.config.send_timeout_ms)

    async def send_one_way(
        self, message: Message, *, sharding_key: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Send without waiting for an answer: the message may be lost, and nobody will know."""
        parts = self._started()
        key = sharding_key if sharding_key is not None else message.sharding_key
        outgoing = parts.requests.outgoing(message, key)
        if key is None and queue is None:
            chosen = parts.anywhere.take_turns(await parts.queues.find(message.topic))
        else:
            chosen = await self._choose(message, key, None, None, queue)
        await parts.ordered.send_one_way(chosen, outgoing)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic, sorted. Raises NoRouteError for a topic nobody knows."""
        return await self._started().queues.find(topic)

    async def _choose(
        self,
        message: Message,
        key: str | None,
        selector: MessageQueueSelector | None,
        arg: Any,
        queue: MessageQueue | None,
    ) -> MessageQueue:
        """The route is asked for even when the queue is given: it says where that queue's broker is."""
        queues = await self._started().queues.find_in_turn(message.topic)
        if queue is None and selector is None:
            return select_by_hash(queues, message, key)
        chosen: Any = queue
        if chosen is None and selector is not None:
            chosen = selector(queues, message, key if arg is None else arg)
        if not isinstance(chosen, MessageQueue) or chosen.topic != message.topic:
            raise LocalProtocolError(f"a message of topic {message.topic!r} cannot go to {chosen!r:.200}")
        return chosen

    def _started(self) -> _Parts:
        if self._parts is None:
            raise ClientError("this producer is not started; use `async with` or await start()")
        return self._parts
