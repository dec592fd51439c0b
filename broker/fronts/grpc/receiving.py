"""Receive: messages are delivered for a time, or the call waits for some."""

from functools import partial
from typing import Final, NamedTuple

from lockstep.broker.core.ack import Delivery, ack, change_invisible
from lockstep.broker.core.pop import ANY_QUEUE, POP_COUNT_MAX, Pop, Popped, check_pop, pop, queue_count
from lockstep.broker.core.refused import Refused
from lockstep.broker.core.send_back import send_back
from lockstep.broker.core.wanted import expressed
from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.fronts.grpc.failures import PROXY, Failure, as_failure, no_route
from lockstep.broker.fronts.grpc.parts import CLIENT_ID, Parts, session_of
from lockstep.broker.fronts.grpc.renewals import FIRST_INVISIBLE_MS, Renewal
from lockstep.broker.fronts.grpc.routes import is_in_order
from lockstep.broker.fronts.grpc.sessions import Session
from lockstep.broker.fronts.grpc.translate import Delivered, duration_ms, set_timestamp, to_message
from lockstep.broker.fronts.grpc.validation import check_group, check_invisible, check_topic
from lockstep.broker.messages.filters import Wanted
from lockstep.broker.messages.pop.held import HeldCall
from lockstep.broker.messages.pop.port import Order
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.receipts import ORDERED, Receipt, TopicKind
from lockstep.store import StoreFull

__all__ = ["DeadLetter", "receive_message"]

_POLL_MS_MIN: Final = 5000
_POLL_MS_MAX: Final = 20_000
# So much earlier than its client gives up, a call is answered.
_RESERVE_MS: Final = 100
_FOREVER_MS: Final = 3_600_000
_ATTEMPT_ID_CHARACTERS_MAX: Final = 255
_EVERYTHING: Final = "*"
# Of one answer: 30 ms to unpack and to sum up. The bodies after it come as they are stored, as from RocketMQ's proxy.
_UNZIPPED_BYTES_MAX: Final = 4 * 1024 * 1024


class DeadLetter(NamedTuple):
    """A message that its group gives up. See `Failed`."""

    offset: int
    group: str
    delay_level: int = -1
    lock_epoch: int | None = None
    lock_client_id: str | None = None
    lock_topic: str | None = None
    lock_queue_id: int | None = None


def receive_message(parts: Parts, call: Call, request: pb.ReceiveMessageRequest, now_ms: int) -> None:
    """Answer with messages, or wait for some as long as the client wants."""
    try:
        _receive(parts, call, request, now_ms)
    except Failure as why:
        # As RocketMQ's proxy ends every receive.
        why.rest = (_timestamp(now_ms),)
        raise


def _timestamp(delivered_ms: int) -> bytes:
    answer = pb.ReceiveMessageResponse()
    set_timestamp(answer.delivery_timestamp, delivered_ms)
    return bytes(answer.SerializeToString())


def _receive(parts: Parts, call: Call, request: pb.ReceiveMessageRequest, now_ms: int) -> None:
    """A simple consumer needs no settings before: RocketMQ's Python client sends both at once."""
    group, topic = check_group(request.group), check_topic(request.message_queue.topic)
    session = session_of(parts, call) if request.auto_renew else parts.sessions.find(call.metadata[CLIENT_ID])
    invisible_ms = FIRST_INVISIBLE_MS
    if not request.auto_renew:
        invisible_ms = duration_ms(request.invisible_duration)
        check_invisible(invisible_ms)
    if request.batch_size < 0:
        raise Failure(pb.BAD_REQUEST, f"the batch size is {request.batch_size}, below 0")
    poll_ms = _poll_ms(call, session, request, now_ms)
    if parts.broker.catalog.topics.get(topic) is None:
        raise no_route(topic)
    in_order = is_in_order(parts.broker, group)
    # RocketMQ ignores the queue, so that the calls of a push consumer, one a queue, compete for all queues. An id of 0
    # may be none; who has the queue from an assignment has its broker too.
    is_named = request.auto_renew and request.message_queue.HasField("broker")
    is_named = is_named and in_order and parts.broker.config.lock_mode == "fenced"
    asked = Pop(
        call.metadata[CLIENT_ID],
        group,
        topic,
        max(request.message_queue.id, ANY_QUEUE) if is_named else ANY_QUEUE,
        min(request.batch_size, POP_COUNT_MAX),
        invisible_ms,
        in_order,
        False,
        request.attempt_id[:_ATTEMPT_ID_CHARACTERS_MAX] or None,
        _wanted(parts, topic, request.filter_expression),
    )
    renewed_for = session if request.auto_renew else None
    receiving = _Receiving(parts, call, asked, session, renewed_for, request.message_queue.id)
    receiving.end_first(now_ms)
    if receiving.answer(now_ms, False):
        return
    held = parts.broker.messages.pops.held
    wants = (asked.wanted, asked.count_max > 0, asked.in_order)
    ends_ms = now_ms + poll_ms
    answers = (receiving.answer, receiving.end_empty, receiving.is_gone)
    waits = HeldCall(call.peer, topic, group, asked.queue_id, ends_ms, wants, *answers)
    if held.park(waits, now_ms):
        receiving.parked()
        return
    parts.broker.limits.met(*held.room.no_room, now_ms, call.peer.address)
    raise Failure(pb.TOO_MANY_REQUESTS, "too many calls wait for messages")


def _poll_ms(call: Call, session: Session | None, request: pb.ReceiveMessageRequest, now_ms: int) -> int:
    """How long the call waits: as long as the client says, or as its deadline allows. Raises Failure."""
    left_ms = _FOREVER_MS if call.deadline_ms is None else call.deadline_ms - now_ms
    if request.HasField("long_polling_timeout"):
        poll_ms = duration_ms(request.long_polling_timeout)
    else:
        poll_ms = left_ms - (0 if session is None else session.request_timeout_ms // 2)
    poll_ms = min(max(poll_ms, _POLL_MS_MIN), _POLL_MS_MAX)
    if poll_ms > left_ms:
        if left_ms < _POLL_MS_MIN:
            text = "The deadline time remaining is not enough for polling, please check network condition"
            raise Failure(pb.ILLEGAL_POLLING_TIME, text)
        poll_ms = left_ms
    return poll_ms - _RESERVE_MS


def _wanted(parts: Parts, topic: str, expression: pb.FilterExpression) -> Wanted:
    kind, text = ("SQL92", expression.expression) if expression.type == pb.SQL else (None, expression.expression)
    try:
        return expressed(parts.broker, topic, kind, text if text.strip() else _EVERYTHING)
    except Refused as why:
        if kind is None:
            raise Failure(pb.ILLEGAL_FILTER_EXPRESSION, "subString split error") from why
        raise Failure(pb.INTERNAL_SERVER_ERROR, f"{PROXY}parse the consumer's subscription failed") from why


class _Receiving(NamedTuple):
    """A call that wants messages.

    Args:
        session: The client; None: it has sent no settings.
        renewed_for: The client for whom they stay invisible; None: it says how long.
        queue_id: That the client names, whatever the mode makes of it.
    """

    parts: Parts
    call: Call
    asked: Pop
    session: Session | None
    renewed_for: Session | None
    queue_id: int

    @property
    def _what(self) -> tuple[str, str, int, str | Call]:
        return self.asked.topic, self.asked.consumer_group, self.queue_id, self.asked.attempt_id or self.call

    def end_first(self, now_ms: int) -> None:
        """End the call that this one repeats: its connection may be half open, and what it took would be renewed."""
        first = None if self.renewed_for is None else self.renewed_for.parked.get(self._what)
        if first is not None:
            self._replace(call=first).end_empty(now_ms)
            self._forgotten(now_ms)

    def parked(self) -> None:
        """The table holds it."""
        if self.session is not None:
            self.session.parked[self._what] = self.call
        self.call.on_gone = self._forgotten

    def _forgotten(self, _now_ms: int) -> None:
        """The table forgets it when it tries the group's calls: now, so that nobody fills it with ended calls."""
        self._leave()
        self.parts.broker.messages.pops.held.on_free(self.asked.topic, self.asked.consumer_group)

    def _leave(self) -> None:
        one = self.session
        if one is not None and one.parked.get(self._what) is self.call:
            del one.parked[self._what]

    def is_gone(self) -> bool:
        """Whether the call ended, or its client said that it ends: nobody would acknowledge what it gets."""
        one = self.session
        return not self.call.is_open or (one is not None and self.parts.sessions.find(one.client_id) is not one)

    def answer(self, now_ms: int, is_over: bool) -> bool:
        """Try to answer; with `is_over` for the last time. Returns whether it is answered."""
        try:
            check_pop(self.parts.broker, self.call.peer, self.asked, self.asked.count_max, now_ms)
            popped = pop(self.parts.broker, self.call.peer, self.asked, now_ms)
        except (Refused, StoreFull) as why:
            self.end(as_failure(why).code, str(why))
            return True
        if popped.spans:
            if self.renewed_for is not None and self.asked.in_order:
                self._end_attempt(popped.pop_ms)
            self.parts.broker.when_synced(lambda reason: self._give_safe(popped, now_ms, reason))
        elif is_over:
            self.end_empty(now_ms)
        return bool(popped.spans) or is_over

    def _give_safe(self, popped: Popped, now_ms: int, reason: str) -> None:
        """`reason`: why the delivery is not on the disk; "": it is."""
        if reason:
            self.end(pb.INTERNAL_SERVER_ERROR, reason)
        else:
            self._give(popped, now_ms)

    def _give(self, popped: Popped, now_ms: int) -> None:
        received = _with_receipts(self.parts, self.asked, popped)
        if self.is_gone():
            # It ended while the delivery went to the disk.
            self._give_back([receipt for _, receipt, _ in received], now_ms)
            self.end_empty(now_ms)
            return
        # No sender may send a longer body.
        delivered = Delivered(self.asked.topic, _UNZIPPED_BYTES_MAX, self.parts.broker.config.max_message_bytes)
        given = [
            (message, receipt)
            for stored, receipt, before in received
            if (message := self._message(stored, receipt, before + 1, delivered, now_ms)) is not None
        ]
        if not given:
            self.end(pb.MESSAGE_NOT_FOUND, "no match message", now_ms)
            return
        self.call.on_unsent = partial(self._unsent, given)
        self._say(pb.OK, "OK")
        for message, _ in given:
            self.call.send(pb.ReceiveMessageResponse(message=message).SerializeToString())
        self._finish(popped.pop_ms)

    def _end_attempt(self, pop_ms: int) -> None:
        """What this call gave before, and gives no more, would be renewed for nobody."""
        order = Order(self.asked.client, self.asked.attempt_id, 0, pop_ms, 0)
        topic, group = self.asked.topic, self.asked.consumer_group
        pops, count = self.parts.broker.messages.pops, queue_count(self.parts.broker, topic)
        busy = pops.fifo.busy_queues(topic, group)
        ended = [queue.end_attempt(order) for queue_id, queue in busy if queue_id < count]
        if any(ended):
            pops.held.on_free(topic, group)

    def _unsent(self, given: list[tuple[pb.Message, Receipt]], count: int, now_ms: int) -> None:
        """The client ended the call before all of the answer was written: it never gets the last messages.

        They would be renewed for as long as it lives.
        """
        # The last part of the answer is the time.
        unsent = given[max(len(given) + 1 - count, 0) :]
        for message, _ in unsent:
            self.parts.renewals.end(message.system_properties.receipt_handle)
        self._give_back([receipt for _, receipt in unsent], now_ms)

    def _give_back(self, receipts: list[Receipt], now_ms: int) -> None:
        """Others get the messages at once."""
        for receipt in receipts:
            delivery = Delivery(self.asked.consumer_group, self.asked.topic, receipt)
            try:
                change_invisible(self.parts.broker, self.call.peer, delivery, 0, now_ms)
            except (Refused, StoreFull) as why:
                # They come when their time is over.
                self.parts.broker.log.info("renewal_failed", client_id=self.asked.client, reason=str(why))

    def _message(
        self, stored: MessageExt, receipt: Receipt, attempt: int, delivered: Delivered, now_ms: int
    ) -> pb.Message | None:
        """A delivered message; None when it is a dead letter, because it was delivered often enough."""
        broker, name = self.parts.broker, self.asked.consumer_group
        group, delivery = broker.catalog.groups.get(name), Delivery(name, self.asked.topic, receipt)
        if receipt.revive_queue_id == ORDERED and group is not None and attempt > group.retry_max_times + 1:
            try:
                # First the copy, then the end of the delivery: the message is never without both.
                send_back(broker, self.call.peer, DeadLetter(stored.commit_log_offset, name), now_ms)
                ack(broker, self.call.peer, delivery, now_ms)
            except (Refused, StoreFull) as why:
                # It comes again after its time; the other messages are given now.
                broker.log.warning("dead_letter_failed", group=name, topic=self.asked.topic, reason=str(why))
            return None
        handle = f"{receipt.encode()} {stored.commit_log_offset}"
        if self.renewed_for is not None:
            self.parts.renewals.add(handle, Renewal(self.renewed_for, delivery, receipt.pop_ms))
        # A dead letter that is read was delivered before.
        return to_message(stored, delivered, handle, max(attempt, stored.reconsume_times + 1))

    def end_empty(self, now_ms: int) -> None:
        self.end(pb.MESSAGE_NOT_FOUND, "no new message", now_ms)

    def end(self, code: pb.Code, text: str, now_ms: int | None = None) -> None:
        self._say(code, text)
        self._finish(now_ms)

    def _say(self, code: pb.Code, text: str) -> None:
        """The status comes first: clients read it so."""
        answer = pb.ReceiveMessageResponse()
        self.call.code = answer.status.code = code
        answer.status.message = text
        self.call.send(answer.SerializeToString())

    def _finish(self, delivered_ms: int | None) -> None:
        if delivered_ms is not None:
            self.call.send(_timestamp(delivered_ms))
        self._leave()
        self.call.finish()


def _with_receipts(parts: Parts, asked: Pop, popped: Popped) -> list[tuple[MessageExt, Receipt, int]]:
    """Each message, what names its delivery, and how often it was delivered before."""
    name = parts.broker.config.broker_name
    receipts = [
        (
            Receipt(
                span.start_offset,
                popped.pop_ms,
                asked.invisible_ms,
                popped.revive_queue_id,
                span.topic_kind,
                name,
                span.queue_id,
                offset,
            ),
            span.times_before.get(offset, 0),
        )
        for span in popped.spans
        for offset in span.offsets
    ]
    found = []
    for message, (receipt, before) in zip(decode_messages(popped.body, unzip=False), receipts, strict=True):
        # A message that comes again to a group without order counts its deliveries itself.
        found.append((message, receipt, message.reconsume_times if receipt.topic_kind != TopicKind.TOPIC else before))
    return found
