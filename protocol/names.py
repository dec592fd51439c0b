"""Names of topics and groups: which are legal, which are reserved, how retry topics are called (wire.md 4.7, 8.4)."""

import re
from typing import Final

from lockstep.protocol.codes import TOPIC_LENGTH_MAX
from lockstep.protocol.errors import LocalProtocolError

__all__ = [
    "DEAD_LETTER_PREFIX",
    "DEFAULT_CLUSTER",
    "DEFAULT_TOPIC",
    "GROUP_LENGTH_MAX",
    "RESERVED_TOPICS",
    "RETRY_PREFIX",
    "check_group",
    "check_topic",
    "dead_letter_topic",
    "is_retry_topic",
    "is_system_topic",
    "retry_topic",
]

DEFAULT_CLUSTER: Final = "DefaultCluster"
DEFAULT_TOPIC: Final = "TBW102"  # carries the permission to make topics by sending to them
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
GROUP_LENGTH_MAX: Final = 255

RESERVED_TOPICS: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(topic: str) -> None:
    """Raises LocalProtocolError that says what a topic name may be."""
    if not topic:
        raise LocalProtocolError("a topic name must not be empty")
    if len(topic) > TOPIC_LENGTH_MAX:
        raise LocalProtocolError(f"topic {topic!r} has {len(topic)} characters; at most {TOPIC_LENGTH_MAX} are allowed")
    if not _LEGAL.fullmatch(topic):
        raise LocalProtocolError(f"topic {topic!r} may hold only the characters % | a-z A-Z 0-9 _ -")


def check_group(group: str) -> None:
    """Raises LocalProtocolError that says what a group name may be."""
    if not group:
        raise LocalProtocolError("a group name must not be empty")
    if len(group) > GROUP_LENGTH_MAX:
        raise LocalProtocolError(f"group {group!r} has {len(group)} characters; at most {GROUP_LENGTH_MAX} are allowed")
    if not _LEGAL.fullmatch(group):
        raise LocalProtocolError(f"group {group!r} may hold only the characters % | a-z A-Z 0-9 _ -")
    if group in ("DEFAULT_CONSUMER", "DEFAULT_PRODUCER"):
        raise LocalProtocolError(f"group {group!r} is RocketMQ's placeholder; give your group a name of its own")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Made by a broker for itself, not by a user; retry and dead-letter topics are not among them."""
    return topic in RESERVED_TOPICS or topic in (DEFAULT_TOPIC, "BenchmarkTest")
