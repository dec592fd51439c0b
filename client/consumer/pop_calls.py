"""The calls of POP: ask for messages, acknowledge one, change how long nobody else gets it (docs/wire.md 18)."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from lockstep.client.callables import log_or_raise
from lockstep.client.config import ClientConfig
from lockstep.client.consumer.delivery import Delivery
from lockstep.client.consumer.delivery_trace import DeliveryTrace
from lockstep.client.errors import NoRouteError, StaleDeliveryError
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PopResponseCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError, RemoteProtocolError
from lockstep.protocol.headers.pop import (
    AckRequestHeader,
    ChangeInvisibleRequestHeader,
    ChangeInvisibleResponseHeader,
    PopRequestHeader,
    PopResponseHeader,
)
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.pulled import decode_pulled
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import pop_retry_topic
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.protocol.receipts import ORDERED, Receipt, SpanOfQueue, TopicKind, parse_spans
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.settings import SettingError

__all__ = ["ANY_QUEUE", "CALL_ERRORS", "POP_COUNT_MAX", "Delivery", "PopCalls", "PopRequest", "check_headers"]

ANY_QUEUE: Final = -1
POP_COUNT_MAX: Final = 32  # docs/wire.md 18.1
CALL_ERRORS: Final = (NoRouteError, RemotingError, RemoteProtocolError)
_FROM_FIRST, _FROM_END = 0, 1
# From the arrival of the call on: no clock of a client is compared with a broker's.
_BORN_AT_ARRIVAL: Final = 0
_FULL_PAUSE_MS: Final = 500
_MS_NS: Final = 1_000_000
_FENCED_MAX: Final = 256
# So long a member that has left its group waits for the answers of its calls. Lockstep's brokers end these calls;
# RocketMQ's go on with them, so this is for what was on its way.
_LAST_ANSWERS_MS: Final = 200
_Spans = Mapping[tuple[int, int], SpanOfQueue]  # by kind and queue id


class PopRequest(NamedTuple):
    """One call for messages of one broker.

    Args:
        wait_ms: How long the broker may wait for a message.
        queue_id: `ANY_QUEUE`, or one.
    """

    topic: str
    broker_name: str
    subscription: SubscriptionData
    count_max: int
    invisible_ms: int
    wait_ms: int
    queue_id: int = ANY_QUEUE


def check_headers(config: ClientConfig) -> None:
    """Raises SettingError."""
    if config.serialize_type is SerializeType.ROCKETMQ:
        raise SettingError("serialize_type must not be ROCKETMQ: binary headers cannot carry the codes of POP")


class PopCalls:
    """Makes the calls of one member of a group.

    Args:
        from_first: A new group begins at the first message of a queue, not at its end.
        answer_ms: How long an answer may take, besides the time that the broker may wait.
        shown_to: The user's names of topics.
        hooks: Those that filter take out what they do not want.
        trace: None when the consumer writes no trace.

    Attributes:
        is_over: The member stops: what a call brings goes back to its broker.
    """

    def __init__(
        self,
        instance: MQClientInstance,
        group: str,
        *,
        in_order: bool,
        from_first: bool,
        answer_ms: int,
        shown_to: NamesOfTenant,
        hooks: ConsumeHooks,
        trace: DeliveryTrace | None = None,
    ) -> None:
        self._instance = instance
        self._group = group
        self._in_order = in_order
        self._init_mode = _FROM_FIRST if from_first else _FROM_END
        self._answer_ms = answer_ms
        self._shown_to = shown_to
        self._hooks = hooks
        # Attempt ids of calls that may have to be repeated, by topic, broker and queue.
        self._open_ids: dict[tuple[str, str, int], list[str]] = {}
        self.is_over = False
        self._under_way = 0
        self._none_under_way: asyncio.Future[None] | None = None  # while `last_answers` waits
        self.trace = trace
        # Fenced deliveries, by the address of their broker. What ended is removed when there are many.
        self._fenced: dict[str, dict[Delivery, None]] = {}

    async def pop(self, request: PopRequest) -> list[Delivery]:
        """Ask for messages; none when the broker has none for this member within the wait time.

        In order, a call has an attempt id until it brought messages: what a lost answer had comes again at once.

        Raises:
            NoRouteError: No route names a master of the broker.
            RemotingError: The broker refused, or did not answer.
            RemoteProtocolError: Its answer cannot be read.
        """
        self._under_way += 1
        try:
            deliveries = await self._pop(request)
            if not self.is_over:
                return deliveries
            await self.give_back(deliveries)
            return []
        finally:
            self._under_way -= 1
            if self._none_under_way is not None and not self._under_way and not self._none_under_way.done():
                self._none_under_way.set_result(None)

    async def last_answers(self) -> None:
        """Wait until no call is under way, for a short time. The brokers know that the member has left."""
        if self._under_way:
            self._none_under_way = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_ANSWERS_MS / 1000):
                    await self._none_under_way

    async def _pop(self, request: PopRequest) -> list[Delivery]:
        if not self._in_order:
            return await self._wanted(await self._ask(request, None), request.subscription)
        ids = self._open_ids.setdefault((request.topic, request.broker_name, request.queue_id), [])
        attempt_id = ids.pop() if ids else f"{self._instance.runtime.rng.getrandbits(128):032x}"
        try:
            deliveries = await self._ask(request, attempt_id)
            if not deliveries:
                ids.append(attempt_id)
            return await self._wanted(deliveries, request.subscription)
        except BaseException:
            # The broker may have delivered: those messages are given to nobody but a call with the same id.
            ids.append(attempt_id)
            raise

    async def _ask(self, request: PopRequest, attempt_id: str | None) -> list[Delivery]:
        header = PopRequestHeader(
            self._group,
            request.topic,
            request.queue_id,
            request.count_max,
            request.invisible_ms,
            request.wait_ms,
            _BORN_AT_ARRIVAL,
            self._init_mode,
            request.subscription.expression_type,
            request.subscription.sub_string,
            self._in_order,
            attempt_id,
        )
        timeout_ms, sent_ns = request.wait_ms + self._answer_ms, self._instance.runtime.monotonic_ns()
        reply = await self._instance.call(request.broker_name, RequestCode.POP_MESSAGE, header, timeout_ms=timeout_ms)
        if reply.code == PopResponseCode.POLLING_TIMEOUT:
            return []
        if reply.code == PopResponseCode.POLLING_FULL:
            # The broker holds too many calls, and answers at once.
            await asyncio.sleep(min(request.wait_ms, _FULL_PAUSE_MS) / 1000)
            return []
        self._instance.check_reply(reply, request.broker_name, RequestCode.POP_MESSAGE)
        return await self._deliveries(request, reply, sent_ns)

    async def _wanted(self, deliveries: list[Delivery], subscription: SubscriptionData) -> list[Delivery]:
        """Filter the messages: the broker compared hashes of tags. RocketMQ acknowledges what is left out, too."""
        messages = [delivery.message for delivery in deliveries]
        if subscription.tags_set:
            messages = [message for message in messages if message.tags in subscription.tags_set]
        if messages and self._hooks.filtering:
            queue = MessageQueue(subscription.topic, messages[0].broker_name, messages[0].queue_id)
            messages = self._hooks.wanted(messages, queue)
        left = {id(message) for message in messages}
        for delivery in deliveries:
            if id(delivery.message) not in left:
                with suppress(StaleDeliveryError, *CALL_ERRORS):
                    await self.ack(delivery)
        return [delivery for delivery in deliveries if id(delivery.message) in left]

    async def ack(self, delivery: Delivery) -> None:
        """Say that the message is consumed.

        Raises:
            StaleDeliveryError: The broker says that this delivery has ended.
            NoRouteError, RemotingError: As `pop`.
        """
        async with delivery.turn:
            sent_ns = self._instance.runtime.monotonic_ns()
            await self._settle(RequestCode.ACK_MESSAGE, delivery, AckRequestHeader(*self._head(delivery)))
            delivery.is_settled = True
            if self.trace is not None:
                self.trace.answered("acked", delivery, sent_ns)

    async def change_invisible(self, delivery: Delivery, invisible_ms: int) -> None:
        """Nobody else gets the message for so long from now on. Raises as `ack`, and RemoteProtocolError."""
        async with delivery.turn:
            code, receipt = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, delivery.receipt
            header = ChangeInvisibleRequestHeader(*self._head(delivery), invisible_ms)
            sent_ns = self._instance.runtime.monotonic_ns()
            changed = (await self._settle(code, delivery, header)).decode_header(ChangeInvisibleResponseHeader)
            if self.trace is not None:
                self.trace.answered("renewed", delivery, sent_ns, invisible_ms=invisible_ms)
            if delivery.until_ns is not None:
                self._fence([delivery], receipt.broker_name, sent_ns + invisible_ms * _MS_NS)
            in_order = receipt.revive_queue_id == ORDERED
            delivery.receipt = receipt._replace(
                # Without order this begins a delivery of the one message.
                start_offset=receipt.start_offset if in_order else receipt.queue_offset,
                pop_ms=changed.pop_time,
                invisible_ms=changed.invisible_time,
                revive_queue_id=changed.revive_qid,
            )
            delivery.is_settled = invisible_ms == 0

    async def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Others may have these at once."""
        await asyncio.gather(*[self._free(delivery) for delivery in deliveries])

    async def _free(self, delivery: Delivery) -> None:
        try:
            with suppress(StaleDeliveryError, *CALL_ERRORS):
                await self.change_invisible(delivery, 0)
        except BaseException as error:
            # Such as a trace that cannot be written: a shutdown goes on.
            queue = str(MessageQueue(delivery.message.topic, delivery.receipt.broker_name, delivery.receipt.queue_id))
            log_or_raise(self._instance.log, "pop_call_failed", error, call="change_invisible", queue=queue)

    def _head(self, delivery: Delivery) -> tuple[str, str, int, str, int]:
        receipt, topic = delivery.receipt, self._shown_to.wrap(delivery.message.topic)
        # RocketMQ looks into this topic, whatever the receipt says.
        if receipt.topic_kind != TopicKind.TOPIC:
            topic = pop_retry_topic(self._group, topic, version=receipt.topic_kind)
        return self._group, topic, receipt.queue_id, receipt.encode(), receipt.queue_offset

    async def _settle(self, code: int, delivery: Delivery, header: tuple[Any, ...]) -> RemotingCommand:
        broker_name, sent_ns = delivery.receipt.broker_name, self._instance.runtime.monotonic_ns()
        reply = await self._instance.call(broker_name, code, header)
        if reply.code == ResponseCode.NO_MESSAGE:
            if self.trace is not None:
                self.trace.answered("refused", delivery, sent_ns)
            raise StaleDeliveryError(f"message {delivery.message.msg_id} is no longer this client's: {reply.remark}")
        self._instance.check_reply(reply, broker_name, code)
        return reply

    # Answers -------------------------------------------------------------------------------------------------

    async def _deliveries(self, request: PopRequest, reply: RemotingCommand, sent_ns: int) -> list[Delivery]:
        header = reply.decode_header(PopResponseHeader)
        texts = (header.start_offset_info, header.msg_offset_info, header.order_count_info)
        spans = {(span.topic_kind, span.queue_id): span for span in parse_spans(*(text or "" for text in texts))}
        pulled = decode_pulled(reply.body, request.broker_name)
        if pulled.cut is not None and not pulled.messages:
            raise BodyError(pulled.cut)
        # What is behind a damaged record is not acknowledged, so it comes again.
        deliveries = [self._delivery(message, spans, header) for message in await self._instance.unpack_all(pulled)]
        for delivery in deliveries:
            delivery.message.topic = self._shown_to.bare(request.topic)
        if header.waited_ms is not None:
            self._fence(deliveries, request.broker_name, sent_ns + (header.waited_ms + header.invisible_time) * _MS_NS)
        if self.trace is not None:
            self.trace.delivered(deliveries, sent_ns)
        return deliveries

    def _fence(self, deliveries: list[Delivery], broker_name: str, until_ns: int) -> None:
        """The invisible time began no earlier than this client sent the call, and the broker let it wait."""
        known = self._fenced.setdefault(self._instance.address_of(broker_name), {})
        if len(known) > _FENCED_MAX:
            now_ns = self._instance.runtime.monotonic_ns()
            for one in [one for one in known if one.is_settled or one.has_ended(now_ns)]:
                del known[one]
        for delivery in deliveries:
            delivery.until_ns = until_ns
            known[delivery] = None

    def connection_ended(self, address: str) -> None:
        """The broker gives to others what it had delivered over this connection."""
        now_ns = self._instance.runtime.monotonic_ns()
        for delivery in self._fenced.pop(address, ()):
            if not delivery.has_ended(now_ns):
                delivery.until_ns = now_ns

    def _delivery(self, message: MessageExt, spans: _Spans, header: PopResponseHeader) -> Delivery:
        offset = message.queue_offset
        retried = _retried(message, spans)
        if retried is not None:
            return Delivery(message, retried, message.reconsume_times)
        span = spans.get((TopicKind.TOPIC, message.queue_id))
        if span is None or offset not in span.offsets:
            raise BodyError(f"a pop's answer does not name message {offset} of queue {message.queue_id}")
        receipt = Receipt(
            span.start_offset,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            TopicKind.TOPIC,
            message.broker_name,
            message.queue_id,
            offset,
        )
        return Delivery(message, receipt, span.times_before.get(offset, message.reconsume_times))


def _retried(message: MessageExt, spans: _Spans) -> Receipt | None:
    """The receipt that a message of the retry topic has in itself. None: it is of the topic.

    A producer may set the property, too: it counts only if the answer has this message of the retry topic.
    """
    text = message.properties.get(names.POP_CK)
    if text is None:
        return None
    with suppress(BodyError):
        receipt = Receipt.parse(text)
        span = spans.get((receipt.topic_kind, receipt.queue_id))
        place = (receipt.queue_id, receipt.queue_offset)
        if receipt.topic_kind != TopicKind.TOPIC and span is not None and receipt.queue_offset in span.offsets:
            return receipt if place == (message.queue_id, message.queue_offset) else None
    return None
