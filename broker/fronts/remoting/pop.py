"""POP over remoting: pop, acknowledge, change the invisible time, peek, wait for messages (docs/wire.md 18)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from typing import Any, Final, NamedTuple

from lockstep.broker.connection import Connection
from lockstep.broker.core.ack import Delivery, ack, ack_all, change_invisible
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pop import POP_COUNT_MAX, Pop, Popped, check_pop, client_name, may_give, peek, pop
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.core.wanted import expressed
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.refusal import code_of
from lockstep.broker.messages.filters import Wanted
from lockstep.broker.messages.pop.held import HeldCall
from lockstep.broker.messages.pop.port import Answered, FifoQueue
from lockstep.broker.request_body import read_body
from lockstep.protocol.bodies.pop import BatchAckBody, DeliveryRow, DeliveryTableBody
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.codes import PopResponseCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.pop import (
    AckRequestHeader,
    ChangeInvisibleRequestHeader,
    ChangeInvisibleResponseHeader,
    ListDeliveriesRequestHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopRequestHeader,
    PopResponseHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.receipts import Receipt, encode_counts, encode_offsets, encode_starts
from lockstep.store import StoreFull

__all__ = [
    "ack_batch",
    "ack_message",
    "change_invisible_time",
    "list_deliveries",
    "notification",
    "peek_message",
    "polling_info",
    "pop_message",
    "pop_rollback",
]

_FOUND: Final = "FOUND"
_NOTHING: Final = "NO_MESSAGE_IN_QUEUE"
_EVERYTHING: Final = "*"
_FROM_END: Final = 1
# Longer times are cut: sums with the clock stay within 64 bits. None is negative.
_INVISIBLE_MS_MAX: Final = 366 * 24 * 60 * 60 * 1000
# A connection on which nothing is said for 120 s is closed.
_POLL_MS_MAX: Final = 60_000
# Of a batch: a few milliseconds of work.
_ACKS_MAX: Final = 2048
# On top of its wait time; RocketMQ allows as much.
_LATE_MS: Final = 500
_TOPIC_KINDS: Final = ("0", "1", "2")
_NOT_POPPED: Final = PopResponseHeader(0, 0, 0, 0)
# RocketMQ's remark where it sets none.
_NO_REMARK: Final = "not set any response code"


_Handler = Callable[[Broker, Connection, RemotingCommand, int], Answer | None]


def _with_fields(header: tuple[Any, ...]) -> Callable[[_Handler], _Handler]:
    """Refusals have the fields of an answer, too: RocketMQ has made its header by then."""

    def around(handler: _Handler) -> _Handler:
        @wraps(handler)
        def handle(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer | None:
            try:
                return handler(broker, connection, command, now_ms)
            except Refused as why:
                return command.reply(code_of(why), header, remark=str(why))

        return handle

    return around


@_with_fields(_NOT_POPPED)
def pop_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer | None:
    """Answer with messages, or hold the call until there are some or its wait time is over."""
    header = command.decode_header(PopRequestHeader)
    deadline_ms = _deadline(header.born_time, header.poll_time, now_ms)
    if deadline_ms is None:
        remark = f"the broker[{broker.config.advertised_host}] pop message is timeout too much"
        return command.reply(PopResponseCode.POLLING_TIMEOUT, _NOT_POPPED, remark=remark)
    check_pop(broker, connection, header, header.max_msg_nums, now_ms)
    asked = Pop(
        client_name(broker, connection, header.consumer_group),
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.max_msg_nums,
        _invisible(header.invisible_time),
        header.order or False,
        header.init_mode == _FROM_END,
        header.attempt_id,
        _wanted(broker, header),
    )
    popped = pop(broker, connection, asked, now_ms)
    if popped.spans or header.poll_time <= 0 or command.is_one_way:
        return After(_popped(broker, command, asked, popped), What.LOG)
    _forget_fields(command)
    call = _PopCall(broker, connection, command, asked, now_ms)
    wants = (asked.wanted, asked.count_max > 0, asked.in_order)
    place = (asked.topic, asked.consumer_group, asked.queue_id)
    held = HeldCall(connection, *place, deadline_ms, wants, call.answer, call.end)
    if broker.messages.pops.held.park(held, now_ms):
        return None
    broker.limits.met(*broker.messages.pops.held.room.no_room, now_ms, connection.address)
    return _reply(command, asked, popped, PopResponseCode.POLLING_FULL, _NOTHING)


class _PopCall(NamedTuple):
    """A pop that waits. `came_ms`: since then."""

    broker: Broker
    connection: Connection
    command: RemotingCommand
    asked: Pop
    came_ms: int

    def answer(self, now_ms: int, is_over: bool) -> bool:
        try:
            # The topic, or the right to read it, may have gone since.
            check_pop(self.broker, self.connection, self.asked, self.asked.count_max, now_ms)
            popped = pop(self.broker, self.connection, self.asked, now_ms)
        except (Refused, StoreFull) as why:
            self.connection.reply(self.command.reply(code_of(why), _NOT_POPPED, remark=str(why)))
            return True
        if popped.spans or is_over:
            # Both times are rounded down.
            waited_ms = max(0, now_ms - self.came_ms - 1)
            reply = _popped(self.broker, self.command, self.asked, popped, waited_ms)
            self.broker.when_synced(partial(self._leave, reply))
            return True
        return False

    def end(self, now_ms: int) -> None:
        nothing = Popped(now_ms, 0, 0, [], b"")
        self.connection.reply(_popped(self.broker, self.command, self.asked, nothing))

    def _leave(self, reply: RemotingCommand, reason: str) -> None:
        """`reason`: why the delivery is not on the disk; "": it is."""
        if reason and reply.code == ResponseCode.SUCCESS:
            reply = self.command.reply(ResponseCode.SYSTEM_ERROR, _NOT_POPPED, remark=reason)
        self.connection.reply(reply)


def _popped(
    broker: Broker, command: RemotingCommand, asked: Pop, popped: Popped, waited_ms: int = 0
) -> RemotingCommand:
    if popped.spans:
        fenced_ms = waited_ms if asked.in_order and broker.messages.pops.fenced else None
        return _reply(command, asked, popped, ResponseCode.SUCCESS, _FOUND, fenced_ms)
    return _reply(command, asked, popped, PopResponseCode.POLLING_TIMEOUT, _NOTHING)


def _reply(
    command: RemotingCommand, asked: Pop, popped: Popped, code: int, remark: str, waited_ms: int | None = None
) -> RemotingCommand:
    spans = popped.spans
    header = PopResponseHeader(
        popped.pop_ms,
        asked.invisible_ms,
        popped.revive_queue_id,
        popped.rest,
        encode_starts(spans),
        encode_offsets(spans),
        encode_counts(spans) if asked.in_order else None,
        waited_ms,
    )
    return command.reply(code, header, popped.body, remark=remark)


def _wanted(broker: Broker, header: PopRequestHeader | NotificationRequestHeader) -> Wanted:
    try:
        return expressed(broker, header.topic, header.exp_type if header.exp else None, header.exp or _EVERYTHING)
    except Refused as why:
        if why.reason is Reason.INVALID_FILTER:
            raise Refused(why.reason, "parse the consumer's subscription failed") from why
        raise


def _deadline(born_ms: int, poll_ms: int, now_ms: int) -> int | None:
    """When a call has waited for long enough, in epoch ms. None: it was under way for longer than it wants to wait.

    The client's clock may differ: a call that seems to come from the future waits from now on.
    """
    if born_ms > 0 and born_ms + max(0, poll_ms) + _LATE_MS < now_ms:
        return None
    started_ms = min(born_ms, now_ms) if born_ms > 0 else now_ms
    return max(now_ms, started_ms + min(poll_ms, _POLL_MS_MAX))


def _invisible(asked_ms: int) -> int:
    return min(max(0, asked_ms), _INVISIBLE_MS_MAX)


# Looking -----------------------------------------------------------------------------------------------------------


@_with_fields(_NOT_POPPED)
def peek_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The next messages; nothing is delivered."""
    header = command.decode_header(PeekRequestHeader)
    check_pop(broker, connection, header, 0, now_ms)
    body, rest = peek(broker, header, min(header.max_msg_nums, POP_COUNT_MAX))
    found, code = (_FOUND, ResponseCode.SUCCESS) if body else (_NOTHING, ResponseCode.PULL_NOT_FOUND)
    return command.reply(code, PopResponseHeader(0, 0, 0, rest), body, remark=found)


@_with_fields(NotificationResponseHeader(False))
def notification(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Answer when a pop may find something, or when the wait time is over."""
    header = command.decode_header(NotificationRequestHeader)
    check_pop(broker, connection, header, 0, now_ms)
    deadline_ms = _deadline(header.born_time, header.poll_time, now_ms)
    call = _NotificationCall(broker, connection, command, header)
    broker.messages.pops.in_use = True
    if deadline_ms is None or may_give(broker, header, now_ms, in_order=header.order or False):
        return call.reply(has_message=deadline_ms is not None)
    if header.poll_time <= 0 or command.is_one_way:
        return call.reply(has_message=False)
    _forget_fields(command)
    place = (header.topic, header.consumer_group, header.queue_id)
    held = HeldCall(connection, *place, deadline_ms, None, call.answer, call.end)
    if broker.messages.pops.held.park(held, now_ms):
        return None
    broker.limits.met(*broker.messages.pops.held.room.no_room, now_ms, connection.address)
    return command.reply(ResponseCode.SUCCESS, NotificationResponseHeader(False, True), remark=_NO_REMARK)


class _NotificationCall(NamedTuple):
    """A notification that waits."""

    broker: Broker
    connection: Connection
    command: RemotingCommand
    header: NotificationRequestHeader

    def answer(self, now_ms: int, is_over: bool) -> bool:
        found = may_give(self.broker, self.header, now_ms, in_order=self.header.order or False)
        if found or is_over:
            self.connection.reply(self.reply(has_message=found))
        return found or is_over

    def end(self, _now_ms: int) -> None:
        self.connection.reply(self.reply(has_message=False))

    def reply(self, *, has_message: bool) -> RemotingCommand:
        return self.command.reply(ResponseCode.SUCCESS, NotificationResponseHeader(has_message), remark=_NO_REMARK)


@_with_fields(PollingInfoResponseHeader(0))
def polling_info(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """How many calls wait for messages of a queue."""
    header = command.decode_header(PollingInfoRequestHeader)
    check_pop(broker, connection, header, 0, now_ms)
    count = broker.messages.pops.held.count_of(header.topic, header.consumer_group, header.queue_id)
    return command.reply(ResponseCode.SUCCESS, PollingInfoResponseHeader(count), remark=_NO_REMARK)


def pop_rollback(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """As 5.5.0: it answers, and does nothing, whatever the request has."""
    return command.reply(ResponseCode.SUCCESS, remark=_NO_REMARK)


def _forget_fields(command: RemotingCommand) -> None:
    # A peer chooses the length of these fields, and thousands of calls may wait.
    command.body, command.ext_fields, command.positional = b"", None, None


# Acknowledgements --------------------------------------------------------------------------------------------------


def ack_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """A message is consumed. A late acknowledgement is answered with success, too; in fenced mode it is refused."""
    header = command.decode_header(AckRequestHeader)
    receipt = _receipt(header)
    return _answered(command, ack(broker, connection, Delivery(header.consumer_group, header.topic, receipt), now_ms))


def ack_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Acknowledgements of several deliveries; each as by itself. Those that are refused are ignored, as in RocketMQ."""
    acks = read_body(BatchAckBody, command).acks if command.body else ()
    if not acks:
        return command.reply(ResponseCode.NO_MESSAGE)
    count = sum(len(batch.places) for batch in acks)
    if count > _ACKS_MAX:
        raise Refused(Reason.INVALID, f"{count} acknowledgements are too many for one request: at most {_ACKS_MAX}")
    refused = list[Refused]()
    for batch in acks:
        kind = int(batch.topic_kind) if batch.topic_kind in _TOPIC_KINDS else 0
        receipt = Receipt(
            batch.start_offset,
            batch.pop_ms,
            batch.invisible_ms,
            batch.revive_queue_id,
            kind,
            broker.config.broker_name,
            batch.queue_id,
            0,
        )
        delivery = Delivery(batch.consumer_group, batch.topic, receipt)
        offsets = [batch.start_offset + place for place in batch.places]
        try:
            answers = ack_all(broker, connection, delivery, offsets, now_ms)
            refused += [answered for answered in answers if isinstance(answered, Refused)]
        except Refused as why:
            refused.append(why)
    if refused:
        broker.log.info("batch_ack_refused", peer=connection.address, count=len(refused), reason=str(refused[0]))
    return command.reply(ResponseCode.SUCCESS)


@_with_fields(ChangeInvisibleResponseHeader(0, 0, 0))
def change_invisible_time(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer:
    header = command.decode_header(ChangeInvisibleRequestHeader)
    receipt = _receipt(header)
    delivery = Delivery(header.consumer_group, header.topic, receipt)
    try:
        answered, changed = change_invisible(broker, connection, delivery, _invisible(header.invisible_time), now_ms)
    except Refused as why:
        if why.reason is Reason.NO_MESSAGE:
            raise Refused(why.reason, _NO_REMARK) from why
        raise
    if answered is Answered.STALE:
        return _answered(command, answered)
    response = ChangeInvisibleResponseHeader(changed.pop_ms, changed.invisible_ms, changed.revive_queue_id)
    reply = command.reply(ResponseCode.SUCCESS, response, remark=_NO_REMARK)
    return After(reply, What.LOG) if broker.messages.pops.journals else reply


def _receipt(header: AckRequestHeader | ChangeInvisibleRequestHeader) -> Receipt:
    receipt = Receipt.parse(header.extra_info)
    place = (header.queue_id, header.offset)
    # What the receipt says of them does not count, as in RocketMQ.
    return receipt if receipt[-2:] == place else receipt._replace(queue_id=place[0], queue_offset=place[1])


def _answered(command: RemotingCommand, answered: Answered) -> RemotingCommand:
    if answered is Answered.STALE:
        remark = "another delivery of the message has begun, so this one has ended"
        return command.reply(ResponseCode.NO_MESSAGE, remark=remark)
    return command.reply(ResponseCode.SUCCESS)


def list_deliveries(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """What a group in order has and did not acknowledge, by queue and offset."""
    group, pops = command.decode_header(ListDeliveriesRequestHeader).consumer_group, broker.messages.pops
    answers, queues = pops.answers.get(group, Counter()), pops.fifo.of_group(group)
    rest = DeliveryTableBody(
        (),
        answers[Answered.LATE],
        answers[Answered.STALE],
        pops.stale_ms.get(group, 0),
        sum(count for (_, of), count in pops.revived.items() if of == group),
        tuple(dict.fromkeys(topic for topic, _, _ in queues)),
    )

    def body() -> BodySteps:
        return encode_list(rest.rest_to_wire(), "deliveryTable", _rows(broker, queues), command.serialize_type)

    return reply_in_steps(broker, connection, command, body)


def _rows(broker: Broker, queues: Iterable[tuple[str, int, FifoQueue]]) -> Iterator[dict[str, Any]]:
    for topic, queue_id, queue in queues:
        named = MessageQueue(topic, broker.config.broker_name, queue_id)
        for one in queue.under_way():
            yield DeliveryRow(named, *one).to_wire()
