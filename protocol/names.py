"""Names of topics and groups: legal names, reserved names, and names of retry topics (wire.md 4.7, 8.4)."""

import re
from functools import lru_cache
from typing import Final

from lockstep.protocol.codes import TOPIC_LENGTH_MAX
from lockstep.protocol.errors import LocalProtocolError, short_text

__all__ = [
    "DEAD_LETTER_PREFIX",
    "DEFAULT_CLUSTER",
    "DEFAULT_TOPIC",
    "GROUP_LENGTH_MAX",
    "HALF_TOPIC",
    "OFFSET_MOVED_EVENT",
    "OP_HALF_TOPIC",
    "POP_JOURNAL_TOPIC",
    "RESERVED_TOPICS",
    "RETRY_PREFIX",
    "REVIVE_LOG_PREFIX",
    "SCHEDULE_TOPIC",
    "SYSTEM_TOPICS",
    "TIMER_TOPIC",
    "TRACE_TOPIC",
    "TRANSACTION_GIVEN_UP_TOPIC",
    "check_group",
    "check_send_topic",
    "check_topic",
    "dead_letter_topic",
    "is_journal",
    "is_retry_topic",
    "is_system_topic",
    "pop_retry_topic",
    "popped_topic",
    "reply_topic",
    "retry_topic",
]

DEFAULT_CLUSTER: Final = "DefaultCluster"
DEFAULT_TOPIC: Final = "TBW102"  # its permissions allow a send to create a topic
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"  # where delayed messages wait
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"  # half messages wait here for commit or rollback
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # marks the half messages that were committed or rolled back
POP_JOURNAL_TOPIC: Final = "rmq_sys_LOCKSTEP_POPS"  # deliveries of fenced groups in order; no topic of the table
TIMER_TOPIC: Final = "rmq_sys_LOCKSTEP_TIMERS"  # messages for a time, and marks of recalls; no topic of the table
TRANSACTION_GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP_LENGTH_MAX: Final = 255

REVIVE_LOG_PREFIX: Final = "rmq_sys_REVIVE_LOG_"  # checkpoints of pops without order; then the cluster's name
RESERVED_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANSACTION_GIVEN_UP_TOPIC,
        "SELF_TEST_TOPIC",
        OFFSET_MOVED_EVENT,
    }
)
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"  # clients send message traces to it
SYSTEM_TOPICS: Final = RESERVED_TOPICS | {DEFAULT_TOPIC, "BenchmarkTest", TRACE_TOPIC}
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic(topic: str, what: str = "topic") -> None:
    """Check a topic name, or what must be as one. Raises LocalProtocolError with the allowed names.

    Args:
        what: how an error calls it.
    """
    _check_text(topic, what)
    if len(topic) > TOPIC_LENGTH_MAX:
        raise LocalProtocolError(
            f"{what} {short_text(topic)} has {len(topic)} characters; at most {TOPIC_LENGTH_MAX} are allowed"
        )
    if not _LEGAL.fullmatch(topic):
        raise LocalProtocolError(f"{what} {topic!r} may hold only the characters % | a-z A-Z 0-9 _ -")


def check_send_topic(topic: str) -> None:
    """Check the name of a topic to send to. Raises LocalProtocolError."""
    _check_text(topic, "topic")
    if topic in RESERVED_TOPICS:
        raise LocalProtocolError(f"topic {topic!r} is reserved by RocketMQ: messages cannot be sent to it")
    check_topic(topic)


def _check_text(name: object, what: str) -> None:
    if not isinstance(name, str):
        shown = "None" if name is None else f"{type(name).__name__} {short_text(name)}"
        raise LocalProtocolError(f"a {what} must be a str, not {shown}")
    if not name:
        raise LocalProtocolError(f"a {what} name must not be empty")


# A cache, because brokers check the group of each commit.
@lru_cache(1024)
def check_group(group: str) -> None:
    """Check a group name. Raises LocalProtocolError with the allowed names."""
    _check_text(group, "group")
    if len(group) > GROUP_LENGTH_MAX:
        raise LocalProtocolError(
            f"group {short_text(group)} has {len(group)} characters; at most {GROUP_LENGTH_MAX} are allowed"
        )
    if not _LEGAL.fullmatch(group):
        raise LocalProtocolError(f"group {group!r} may hold only the characters % | a-z A-Z 0-9 _ -")
    if group in ("DEFAULT_CONSUMER", "DEFAULT_PRODUCER"):
        raise LocalProtocolError(f"group {group!r} is RocketMQ's placeholder; give your group a name of its own")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def pop_retry_topic(group: str, topic: str, version: int = 1) -> str:
    """Where messages of a topic wait that a group without order popped and did not acknowledge (wire.md 18.5).

    Args:
        version: 1, or 2: of brokers with enableRetryTopicV2.
    """
    return f"{RETRY_PREFIX}{group}{'_' if version == 1 else '+'}{topic}"


def popped_topic(group: str, topic: str) -> str:
    """The topic whose messages wait in a `pop_retry_topic` of version 1. Other topics are returned unchanged."""
    return topic.removeprefix(pop_retry_topic(group, ""))


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def is_journal(topic: str) -> bool:
    """Whether the broker keeps there what waits. It is in no list of topics, and nobody may send to it."""
    return topic in (POP_JOURNAL_TOPIC, TIMER_TOPIC) or topic.startswith(REVIVE_LOG_PREFIX)


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def reply_topic(cluster: str) -> str:
    """The topic of a cluster for the replies to request-reply messages."""
    return f"{cluster}_REPLY_TOPIC"


def is_system_topic(topic: str) -> bool:
    """Whether a broker creates the topic for itself. Retry and dead-letter topics do not count (wire.md 8.4).

    Broker names, cluster names and reply topics are system topics too, but this function does not know them.
    """
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")
