"""Query: what the store has of messages and queues."""

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.protocol.messages.ids import decode_offset_message_id

__all__ = ["message_by_id", "message_by_offset"]


def message_by_offset(broker: Broker, commit_log_offset: int) -> bytes:
    """A message in its stored layout. Raises Refused when the store has none there."""
    message = broker.messages.store.message_at(commit_log_offset)
    if message is None:
        remark = f"no message begins at commit log offset {commit_log_offset}; it may have been dropped"
        raise Refused(Reason.INVALID, remark)
    return message


def message_by_id(broker: Broker, message_id: str | None) -> bytes:
    """As `message_by_offset`, for an offset message id. Raises Refused also for a text that is no such id."""
    try:
        offset = decode_offset_message_id(message_id or "").commit_log_offset
    except ValueError as error:
        raise Refused(Reason.INVALID, f"{message_id} is no message id: {error}") from None
    return message_by_offset(broker, offset)
