"""Query: single messages, by key, by offset and by id."""

from collections.abc import Generator
from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.protocol.messages.ids import decode_offset_message_id
from lockstep.store.base import KeyQuery, QueryResult

__all__ = ["message_by_id", "message_by_offset", "messages_by_key"]

_UNIQUE_KEY_MAX_NUM: Final = 32  # RocketMQ's defaultQueryMaxNum
_QUERY_MAX_NUM: Final = 64  # RocketMQ's maxMsgsNumBatch


def messages_by_key(broker: Broker, query: KeyQuery, *, unique: bool) -> Generator[None, None, QueryResult]:
    """The newest messages with a key, in steps; RocketMQ bounds their number.

    Args:
        unique: The key is that of one message, UNIQ_KEY. A repeated send may have stored it twice.
    """
    max_num = _UNIQUE_KEY_MAX_NUM if unique else min(query.max_num, _QUERY_MAX_NUM)
    return broker.messages.store.query(query._replace(max_num=max_num))


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
