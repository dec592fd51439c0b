"""Names of topics and groups."""

import pytest

from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import (
    RESERVED_TOPICS,
    check_group,
    check_topic,
    dead_letter_topic,
    is_retry_topic,
    is_system_topic,
    retry_topic,
)
from tests.rows import by_row

ILLEGAL = ["", "a b", "a.b", "a/b", "ä", "a\n", "\n", "a$", "T\0", "a:b", "\uff41", "\u0661"]


@by_row("name", ["T", "a-b_c", "%RETRY%G", "%DLQ%G", "x|y", "0", "T" * 127, "TBW102"])
def test_legal_names(name: str) -> None:
    """Letters, digits and % | _ - up to 127 characters."""
    check_topic(name)
    check_group(name)


@by_row("name", ILLEGAL)
def test_illegal_characters(name: str) -> None:
    """Anything else, line ends and digits of other scripts included, is refused with a line that says what may be."""
    for check in (check_topic, check_group):
        with pytest.raises(LocalProtocolError, match=r"may hold only|must not be empty"):
            check(name)


def test_lengths() -> None:
    """A topic has at most 127 characters, a group 255."""
    with pytest.raises(LocalProtocolError, match="at most 127"):
        check_topic("T" * 128)
    check_group("G" * 255)
    with pytest.raises(LocalProtocolError, match="at most 255"):
        check_group("G" * 256)


@pytest.mark.parametrize("group", ["DEFAULT_CONSUMER", "DEFAULT_PRODUCER"])
def test_placeholder_groups(group: str) -> None:
    """RocketMQ's placeholders are nobody's group."""
    with pytest.raises(LocalProtocolError, match="placeholder"):
        check_group(group)


def test_retry_and_dead_letter_topics() -> None:
    """Their names come from the group's, and only retry topics are retry topics."""
    assert retry_topic("G") == "%RETRY%G"
    assert dead_letter_topic("G") == "%DLQ%G"
    assert [is_retry_topic(topic) for topic in ("%RETRY%G", "%DLQ%G", "T", "x%RETRY%G")] == [True, False, False, False]


def test_system_topics() -> None:
    """The broker's own topics, and none that belongs to a group or a user."""
    assert all(is_system_topic(topic) for topic in [*RESERVED_TOPICS, "TBW102", "BenchmarkTest"])
    assert not any(is_system_topic(topic) for topic in ("T", "%RETRY%G", "%DLQ%G"))
