"""Receive: messages are delivered for a time, or the call waits for some."""

from typing import Final, NamedTuple

from lockstep.broker.core.ack import Delivery, ack, change_invisible
from lockstep.broker.core.pop import ANY_QUEUE, POP_COUNT_MAX, Pop, Popped, check_pop, pop
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
_UNZIPPED_BYTES_MAX: Final = 32 * 1024 * 1024


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
    """Answer with messages, or wait for some as long as the client wants.

    A simple consumer needs no settings before: RocketMQ's Python client sends both at once.
    """
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
    asked = Pop(
        call.metadata[CLIENT_ID],
        group,
        topic,
        ANY_QUEUE,
        min(request.batch_size, POP_COUNT_MAX),
        invisible_ms,
        is_in_order(parts.broker, group),
        False,
        request.attempt_id[:_ATTEMPT_ID_CHARACTERS_MAX] or None,
        _wanted(parts, topic, request.filter_expression),
    )
    receiving = _Receiving(parts, call, asked, session if request.auto_renew else None)
    if receiving.answer(now_ms, False):
        return
    held = parts.broker.messages.pops.held
    wants = (asked.wanted, asked.count_max > 0, asked.in_order)
    waits = HeldCall(call.peer, topic, group, ANY_QUEUE, now_ms + poll_ms, wants, receiving.answer, receiving.is_gone)
    if held.park(waits, now_ms):
        if receiving.renewed_for is not None:
            receiving.renewed_for.waits_for.add((topic, group))
        # The table forgets it when it tries the group's calls: now, so that nobody fills it with calls that have ended.
        call.on_gone = lambda _: held.on_free(topic, group)
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
        raise Failure(pb.INTERNAL_SERVER_ERROR, f"{PROXY}parse the consumer's subscription failed") from why


class _Receiving(NamedTuple):
    """A call that wants messages. `renewed_for`: the client for whom they stay invisible; None: it says how long."""

    parts: Parts
    call: Call
    asked: Pop
    renewed_for: Session | None

    def is_gone(self) -> bool:
        """Whether the call ended, or its client said that it ends: nobody would acknowledge what it renews."""
        one = self.renewed_for
        return not self.call.is_open or (one is not None and self.parts.sessions.find(one.client_id) is not one)

    def answer(self, now_ms: int, is_over: bool) -> bool:
        """Try to answer; with `is_over` for the last time. Returns whether it is answered."""
        if self.is_gone():
            # Nobody gets what would be delivered.
            self._end(pb.MESSAGE_NOT_FOUND, "no new message", now_ms)
            return True
        try:
            check_pop(self.parts.broker, self.call.peer, self.asked, self.asked.count_max, now_ms)
            popped = pop(self.parts.broker, self.call.peer, self.asked, now_ms)
        except (Refused, StoreFull) as why:
            self._end(as_failure(why).code, str(why))
            return True
        if popped.spans:
            self.parts.broker.when_synced(lambda reason: self._give_safe(popped, now_ms, reason))
        elif is_over:
            self._end(pb.MESSAGE_NOT_FOUND, "no new message", now_ms)
        return bool(popped.spans) or is_over

    def _give_safe(self, popped: Popped, now_ms: int, reason: str) -> None:
        """`reason`: why the delivery is not on the disk; "": it is."""
        if reason:
            self._end(pb.INTERNAL_SERVER_ERROR, reason)
        else:
            self._give(popped, now_ms)

    def _give(self, popped: Popped, now_ms: int) -> None:
        if self.is_gone():
            # It ended while the delivery went to the disk.
            self._give_back(popped, now_ms)
            return
        # No sender may send a longer body.
        delivered = Delivered(self.asked.topic, _UNZIPPED_BYTES_MAX, self.parts.broker.config.max_message_bytes)
        given = [
            self._message(stored, receipt, before + 1, delivered, now_ms)
            for stored, receipt, before in _with_receipts(self.parts, self.asked, popped)
        ]
        messages = [message for message in given if message is not None]
        if not messages:
            self._end(pb.MESSAGE_NOT_FOUND, "no match message", now_ms)
            return
        self._say(pb.OK, "OK")
        for message in messages:
            self.call.send(pb.ReceiveMessageResponse(message=message).SerializeToString())
        self._finish(popped.pop_ms)

    def _give_back(self, popped: Popped, now_ms: int) -> None:
        """Others get the messages at once."""
        for _, receipt, _ in _with_receipts(self.parts, self.asked, popped):
            delivery = Delivery(self.asked.consumer_group, self.asked.topic, receipt)
            try:
                change_invisible(self.parts.broker, self.call.peer, delivery, 0, now_ms)
            except (Refused, StoreFull) as why:
                # They come when their time is over.
                self.parts.broker.log.info("renewal_failed", client_id=self.asked.client, reason=str(why))
        self._end(pb.MESSAGE_NOT_FOUND, "no new message", now_ms)

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
        return to_message(stored, delivered, handle, attempt)

    def _end(self, code: pb.Code, text: str, now_ms: int | None = None) -> None:
        self._say(code, text)
        self._finish(now_ms)

    def _say(self, code: pb.Code, text: str) -> None:
        """The status comes first: clients read it so."""
        answer = pb.ReceiveMessageResponse()
        answer.status.code, answer.status.message = code, text
        self.call.send(answer.SerializeToString())

    def _finish(self, delivered_ms: int | None) -> None:
        if delivered_ms is not None:
            answer = pb.ReceiveMessageResponse()
            set_timestamp(answer.delivery_timestamp, delivered_ms)
            self.call.send(answer.SerializeToString())
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
