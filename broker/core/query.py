"""Query: what the store has of messages and queues."""

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused

__all__ = ["message_by_offset"]


def message_by_offset(broker: Broker, commit_log_offset: int) -> bytes:
    """A message in its stored layout. Raises Refused when the store has none there."""
    message = broker.messages.store.message_at(commit_log_offset)
    if message is None:
        remark = f"no message begins at commit log offset {commit_log_offset}; it may have been dropped"
        raise Refused(Reason.INVALID, remark)
    return message
