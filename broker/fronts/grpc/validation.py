"""Checks of what clients send, with the codes and texts of RocketMQ's proxy."""

import re
from typing import Final

from lockstep.broker.fronts.grpc.failures import Failure
from lockstep.protocol.bodies.subscription_group import is_system_group
from lockstep.protocol.codes import TOPIC_LENGTH_MAX
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.messages.properties import RESERVED_PROPERTIES
from lockstep.protocol.names import is_system_topic

__all__ = ["INVISIBLE_MS_MIN", "check_body", "check_group", "check_invisible", "check_message", "check_topic", "named"]

# Those of RocketMQ 4, and what 5 added.
_RESERVED: Final = RESERVED_PROPERTIES | {
    "1ST_POP_TIME", "BORN_TIMESTAMP", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DUP_INFO", "EXTEND_UNIQ_INFO",
    "INNER_MULTI_QUEUE_OFFSET", "ORIGIN_GROUP", "POP_CK", "POP_CK_OFFSET", "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES", "_SYS_MSG_PRIORITY_", "__BORNHOST", "__CRC32#", "__LITE_TOPIC",
}  # fmt: skip
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_LEGAL_SHOWN: Final = "allowing only ^[%|a-zA-Z0-9_-]+$"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Less than for clients of RocketMQ 4, as in its proxy.
_GROUP_LENGTH_MAX: Final = 120
_MESSAGE_GROUP_BYTES_MAX: Final = 64
_PROPERTIES_MAX: Final = 128
_PROPERTIES_BYTES_MAX: Final = 16 * 1024
_SYSTEM_TEXT_BYTES_MAX: Final = 4096  # with all others below the 32,767 that a message may have
_SHOWN_CHARACTERS: Final = 128
INVISIBLE_MS_MIN: Final = 10_000
INVISIBLE_MS_MAX: Final = 12 * 3_600_000


def named(resource: pb.Resource) -> str:
    """The name of a topic or a group, with its namespace in front if it has one."""
    return f"{resource.resource_namespace}%{resource.name}" if resource.resource_namespace else resource.name


def check_topic(resource: pb.Resource) -> str:
    """Returns the topic's name. Raises Failure."""
    topic = named(resource)
    if not topic.strip():
        raise Failure(pb.ILLEGAL_TOPIC, "The specified topic is blank")
    if not _LEGAL.fullmatch(topic):
        shown = topic[:_SHOWN_CHARACTERS]
        raise Failure(pb.ILLEGAL_TOPIC, f"The specified topic[{shown}] contains illegal characters, {_LEGAL_SHOWN}")
    if len(topic) > TOPIC_LENGTH_MAX:
        text = f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}."
        raise Failure(pb.ILLEGAL_TOPIC, text)
    if is_system_topic(topic):
        raise Failure(pb.ILLEGAL_TOPIC, "cannot access system topic")
    return topic


def check_group(resource: pb.Resource) -> str:
    """Returns the consumer group's name. Raises Failure."""
    group = named(resource)
    if not group.strip():
        raise Failure(pb.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if not _LEGAL.fullmatch(group):
        shown = group[:_SHOWN_CHARACTERS]
        text = f"the specified group[{shown}] contains illegal characters, {_LEGAL_SHOWN}"
        raise Failure(pb.ILLEGAL_CONSUMER_GROUP, text)
    if len(group) > _GROUP_LENGTH_MAX:
        shown = group[:_SHOWN_CHARACTERS]
        text = f"the specified group[{shown}] is longer than group max length: {_GROUP_LENGTH_MAX}."
        raise Failure(pb.ILLEGAL_CONSUMER_GROUP, text)
    if is_system_group(group):
        raise Failure(pb.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return group


def check_invisible(invisible_ms: int, min_ms: int = INVISIBLE_MS_MIN) -> None:
    """Raises Failure for an invisible time outside of `min_ms` to 12 h."""
    if invisible_ms < min_ms:
        raise Failure(pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {min_ms}")
    if invisible_ms > INVISIBLE_MS_MAX:
        raise Failure(pb.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {INVISIBLE_MS_MAX}")


def check_body(body: bytes, bytes_max: int, left: int) -> None:
    """Raises Failure for an empty body, or one over the limit: with it, `left` bytes are free for the request."""
    if not body:
        raise Failure(pb.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if left < 0:
        raise Failure(pb.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {bytes_max}")


def check_message(message: pb.Message) -> None:
    """Raises Failure for texts of a message that cannot be."""
    system = message.system_properties
    if not system.message_id.strip():
        raise Failure(pb.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    for what in ("message_id", "born_host", "trace_context"):
        text = getattr(system, what)
        # Control characters separate the properties, among which these are stored.
        if _CONTROL.search(text) or len(text.encode()) > _SYSTEM_TEXT_BYTES_MAX:
            code = pb.ILLEGAL_MESSAGE_ID if what == "message_id" else pb.BAD_REQUEST
            raise Failure(code, f"{what} has a control character, or over {_SYSTEM_TEXT_BYTES_MAX} bytes")
    # An empty one is none.
    if system.tag:
        _check_text(system.tag, pb.ILLEGAL_MESSAGE_TAG, "tag")
        if "|" in system.tag:
            raise Failure(pb.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    # Each has a byte at least.
    if len(system.keys) > _PROPERTIES_BYTES_MAX:
        raise Failure(pb.MESSAGE_PROPERTIES_TOO_LARGE, f"too many keys, max is {_PROPERTIES_BYTES_MAX}")
    for key in system.keys:
        _check_text(key, pb.ILLEGAL_MESSAGE_KEY, "key")
    if system.message_group:
        _check_text(system.message_group, pb.ILLEGAL_MESSAGE_GROUP, "message group")
        if len(system.message_group.encode()) >= _MESSAGE_GROUP_BYTES_MAX:
            text = f"message group exceed the max size {_MESSAGE_GROUP_BYTES_MAX}"
            raise Failure(pb.ILLEGAL_MESSAGE_GROUP, text)
    _check_properties(message)


def _check_text(text: str, code: pb.Code, what: str) -> None:
    if not text.strip():
        raise Failure(code, f"{what} cannot be the char sequence of whitespace")
    if _CONTROL.search(text):
        raise Failure(code, f"{what} cannot contain control character")


def _check_properties(message: pb.Message) -> None:
    properties, system = message.user_properties, message.system_properties
    if len(properties) > _PROPERTIES_MAX:
        text = f"too many user properties, max is {_PROPERTIES_MAX}"
        raise Failure(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        if name in _RESERVED:
            raise Failure(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if _CONTROL.search(name):
            raise Failure(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, "the key of property cannot contain control character")
        if _CONTROL.search(value):
            raise Failure(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, "the value of property cannot contain control character")
        size += len(name.encode()) + len(value.encode())
    if size > _PROPERTIES_BYTES_MAX:
        text = f"the total size of user property is too large, max is {_PROPERTIES_BYTES_MAX}"
        raise Failure(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
