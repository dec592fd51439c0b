"""Acknowledge, change the invisible time, give up: what clients say of a delivery."""

from lockstep.broker.core.ack import Delivery, ack, change_invisible
from lockstep.broker.core.refused import Refused
from lockstep.broker.core.send_back import send_back
from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.fronts.grpc.failures import PROXY, Failure
from lockstep.broker.fronts.grpc.parts import Parts, answer_when_kept
from lockstep.broker.fronts.grpc.receiving import DeadLetter
from lockstep.broker.fronts.grpc.translate import duration_ms
from lockstep.broker.fronts.grpc.validation import INVISIBLE_MS_MIN, check_group, check_invisible, check_topic
from lockstep.broker.messages.pop.port import Answered
from lockstep.protocol.errors import BodyError
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.receipts import ORDERED, Receipt

__all__ = ["ack_message", "change_invisible_duration", "forward_to_dead_letters"]

_ENTRIES_MAX = 2048
_STALE = "another delivery of the message has begun, so this one has ended"


def ack_message(parts: Parts, call: Call, request: pb.AckMessageRequest, now_ms: int) -> pb.AckMessageResponse:
    """Each entry by itself; the whole has their code if all have the same one."""
    group, topic = check_group(request.group), check_topic(request.topic)
    if not request.entries:
        raise Failure(pb.INTERNAL_SERVER_ERROR, "ack message result is empty")
    if len(request.entries) > _ENTRIES_MAX:
        raise Failure(pb.BAD_REQUEST, f"a request may acknowledge at most {_ENTRIES_MAX} messages")
    answer = pb.AckMessageResponse()
    for entry in request.entries:
        result = answer.entries.add()
        result.message_id, result.receipt_handle = entry.message_id, entry.receipt_handle
        result.status.code, result.status.message = pb.OK, "OK"
        try:
            _ack(parts, call, group, topic, entry.receipt_handle, now_ms)
        except Failure as why:
            result.status.code, result.status.message = why.code, why.text
    codes = {entry.status.code for entry in answer.entries}
    answer.status.code = codes.pop() if len(codes) == 1 else pb.MULTIPLE_RESULTS
    answer.status.message = pb.Code.Name(answer.status.code)
    return answer


def _ack(parts: Parts, call: Call, group: str, topic: str, handle: str, now_ms: int) -> None:
    delivery = _delivery(parts, group, topic, handle, now_ms)
    try:
        answered = ack(parts.broker, call.peer, delivery, now_ms)
    except Refused as why:
        raise Failure(pb.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal") from why
    parts.renewals.end(handle)
    if answered is Answered.STALE:
        raise Failure(pb.INVALID_RECEIPT_HANDLE, _STALE)


def change_invisible_duration(
    parts: Parts, call: Call, request: pb.ChangeInvisibleDurationRequest, now_ms: int
) -> None:
    """Answered when it is as safe as the settings ask for: a restart would deliver the message earlier."""
    group, topic = check_group(request.group), check_topic(request.topic)
    invisible_ms = duration_ms(request.invisible_duration)
    check_invisible(invisible_ms, 0)
    delivery = _delivery(parts, group, topic, request.receipt_handle, now_ms)
    try:
        answered, changed = change_invisible(parts.broker, call.peer, delivery, invisible_ms, now_ms)
    except Refused as why:
        raise Failure(pb.INTERNAL_SERVER_ERROR, "changeInvisibleDuration failed: status is abnormal") from why
    # From now on the client says how long.
    parts.renewals.end(request.receipt_handle)
    if answered is Answered.STALE:
        raise Failure(pb.INVALID_RECEIPT_HANDLE, _STALE)
    rest = request.receipt_handle.split(" ")[8:]
    answer = pb.ChangeInvisibleDurationResponse(receipt_handle=" ".join((changed.encode(), *rest)))
    answer_when_kept(parts, call, answer, pb.INTERNAL_SERVER_ERROR)


def forward_to_dead_letters(
    parts: Parts, call: Call, request: pb.ForwardMessageToDeadLetterQueueRequest, now_ms: int
) -> None:
    """The message becomes a dead letter of its group, and this delivery is over.

    RocketMQ also takes a handle that has expired: then a copy is among the dead letters, and the message comes again.
    """
    group, topic = check_group(request.group), check_topic(request.topic)
    delivery = _delivery(parts, group, topic, request.receipt_handle, now_ms)
    place = (delivery.topic_of_queue, delivery.receipt.queue_id, delivery.receipt.queue_offset)
    found = parts.broker.messages.store.entries(*place, 1)
    if not found:
        raise Failure(pb.INTERNAL_SERVER_ERROR, "forward failed: the message does not exist")
    if not _is_judged(parts, delivery.receipt) or _is_held(parts, call, delivery, now_ms):
        # First the copy, then the end of the delivery: the message is never without both.
        send_back(parts.broker, call.peer, DeadLetter(found[0].commit_log_offset, group), now_ms)
    _ack(parts, call, group, topic, request.receipt_handle, now_ms)
    answer_when_kept(parts, call, pb.ForwardMessageToDeadLetterQueueResponse(), pb.INTERNAL_SERVER_ERROR)


def _is_held(parts: Parts, call: Call, delivery: Delivery, now_ms: int) -> bool:
    """Whether the message is the client's, and not consumed: else others would consume what is a dead letter, too.

    Raises Failure when another delivery has begun.
    """
    answered, _ = change_invisible(parts.broker, call.peer, delivery, INVISIBLE_MS_MIN, now_ms)
    if answered is Answered.STALE:
        raise Failure(pb.INVALID_RECEIPT_HANDLE, _STALE)
    return answered is Answered.DONE


def _is_judged(parts: Parts, receipt: Receipt) -> bool:
    """With fences the queue knows whether another delivery has begun."""
    return receipt.revive_queue_id == ORDERED and parts.broker.config.lock_mode == "fenced"


def _delivery(parts: Parts, group: str, topic: str, handle: str, now_ms: int) -> Delivery:
    """What a handle names; of one that is renewed, as it is now. Raises Failure."""
    renewal = parts.renewals.find(handle)
    if renewal is not None and renewal.delivery[:2] == (group, topic):
        return renewal.delivery
    try:
        receipt = Receipt.parse(handle)
    except BodyError as why:
        raise Failure(pb.INVALID_RECEIPT_HANDLE, str(why)) from why
    # Until another delivery begins an answer counts. If the clock refused this one, a later message of its key that was
    # renewed would be consumed, and this one come behind it.
    if not _is_judged(parts, receipt) and receipt.pop_ms + receipt.invisible_ms < now_ms:
        raise Failure(pb.INVALID_RECEIPT_HANDLE, f"{PROXY}receipt handle is expired")
    if receipt.broker_name != parts.broker.config.broker_name:
        raise Failure(pb.INVALID_RECEIPT_HANDLE, f"{PROXY}cannot find broker {receipt.broker_name[:255]}")
    return Delivery(group, topic, receipt)
