"""Attributes of topics: how a request of RocketMQ 5 changes them, and what it is told when it cannot."""

import pytest

from lockstep.protocol.bodies.attributes import altered, parse_changes
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.errors import LocalProtocolError
from tests.rows import by_row

FIFO = (("message.type", "FIFO"),)


@by_row(
    "now, text, after",
    [
        (None, "", ()),
        (None, "+message.type=FIFO", FIFO),
        (FIFO, "", FIFO),
        (FIFO, "+message.type=DELAY", (("message.type", "DELAY"),)),
        (FIFO, "-message.type", ()),
    ],
)
def test_attributes_change(now: tuple[tuple[str, str], ...] | None, text: str, after: object) -> None:
    """What a request does not name stays."""
    assert altered(now or (), parse_changes(text), is_new=now is None) == after


@by_row(
    "now, text, remark",
    [
        (None, "message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        (FIFO, "message.type", "delete attribute format is wrong: message.type"),
        (FIFO, "+message.type=FIFO,+message.type=DELAY", "key duplication: +message.type"),
        (None, "-message.type", "only add attribute is supported while creating topic. key: message.type"),
        ((), "-message.type", "attempt to delete a nonexistent key: message.type"),
        (None, "+queue.type=BatchCQ", "unsupported key: queue.type"),
        (None, "+message.type=LITE", "value is not in set: [UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION]"),
    ],
)
def test_a_change_that_cannot_be(now: tuple[tuple[str, str], ...] | None, text: str, remark: str) -> None:
    """RocketMQ's remark."""
    with pytest.raises(LocalProtocolError) as refused:
        altered(now or (), parse_changes(text), is_new=now is None)
    assert str(refused.value) == remark


def test_a_topic_without_a_type_is_normal() -> None:
    assert (TopicConfig("T").message_type, TopicConfig("T", attributes=FIFO).message_type) == ("NORMAL", "FIFO")
