"""Messages as a consumer gets them, made through the stored layout."""

from collections.abc import Mapping
from types import MappingProxyType

from lockstep.protocol.messages.message import MessageExt, Record, decode_messages, encode_stored_message
from lockstep.protocol.messages.properties import encode_properties

__all__ = ["Panic", "message_at", "messages_at", "stored_bytes"]


class Panic(BaseException):
    """No Exception, as a panic in a library that is written in Rust."""


def stored_bytes(
    offset: int,
    body: bytes | None = None,
    *,
    topic: str = "T",
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    store_timestamp: int = 2,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """One record of the commit log; a body that is not given names the offset."""
    record = Record(
        topic=topic,
        queue_id=0,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=bytes(4),
        born_port=1,
        store_timestamp=store_timestamp,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=0,
        body=b"%d" % offset if body is None else body,
        properties=encode_properties(properties).encode(),
        tags_code=0,
    )
    return encode_stored_message(record, topic.encode(), offset, offset * 1000, bytes((10, 0, 0, 1)), 10911)


def message_at(offset: int, body: bytes | None = None, **properties: str) -> MessageExt:
    (message,) = decode_messages(stored_bytes(offset, body, properties=properties), "broker-a")
    return message


def messages_at(*offsets: int) -> list[MessageExt]:
    return [message_at(offset) for offset in offsets]
