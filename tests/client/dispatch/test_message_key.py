"""A consumer's `key`: what is kept in order with `ordering="key"`."""

import logging
from typing import Any

import pytest

from lockstep.client import MessageExt, PushConsumer
from lockstep.client.consumer.cache.key_queues import KeyQueues, key_function
from lockstep.client.errors import ConsumerError
from lockstep.remoting.logs import StdlibLog
from tests.client.messages import Panic, message_at

LOG = StdlibLog("tests.key")


def from_body(message: MessageExt) -> Any:
    if message.body == b"panic":
        raise Panic
    return {b"none": None, b"number": 7}.get(message.body, message.body.decode())


@pytest.mark.parametrize(
    ("key", "expected"),
    [(None, "N1"), ("KEYS", "k1 k2"), ("own", "x"), ("absent", None), (from_body, "text")],
    ids=["the sharding key", "KEYS", "a property", "an absent one", "a function"],
)
def test_what_a_key_may_be(key: Any, expected: str | None) -> None:
    """The sharding key, any property, KEYS with all its words, or what a function makes of the message."""
    message = message_at(0, b"text", __SHARDINGKEY="N1", KEYS="k1 k2", own="x")
    assert key_function(key, LOG)(message) == expected


@pytest.mark.parametrize("body", [b"number", b"\xff", b"panic"])
def test_a_function_that_fails_stops_no_queue(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Its message has no key then; an error says where it stands and what was raised, with the traceback."""
    message = message_at(5, body, __SHARDINGKEY="N1")
    with caplog.at_level(logging.ERROR):
        assert key_function(from_body, LOG)(message) is None
    (record,) = caplog.records
    assert "key_function_failed" in record.getMessage()
    assert "queue=T@broker-a:0 offset=5" in record.getMessage()
    assert record.exc_info


def test_key_queues_are_by_the_key() -> None:
    """Messages of different sharding keys share a key queue where the key is the same."""
    key_queues = KeyQueues(100, key_function("KEYS", LOG))
    properties = [{"KEYS": "a", "__SHARDINGKEY": "1"}, {"KEYS": "b"}, {"KEYS": "a", "__SHARDINGKEY": "2"}, {}]
    started = key_queues.put([message_at(offset, None, **own) for offset, own in enumerate(properties)])
    found = {key_queue.key: [message.queue_offset for message in key_queue.waiting] for key_queue in started}
    assert found == {"a": [0, 2], "b": [1], None: [3]}


@pytest.mark.parametrize("key", ["", 7, ["KEYS"]])
def test_what_no_key_can_be(key: Any) -> None:
    with pytest.raises(ConsumerError, match="a function of a message or a property's name, not"):
        PushConsumer("g", name_server="127.0.0.1:9876", ordering="key", key=key)


def test_a_key_needs_order_by_key() -> None:
    """In another order it would be passed over in silence."""
    with pytest.raises(ConsumerError, match="key is for ordering='key', not 'queue'"):
        PushConsumer("g", name_server="127.0.0.1:9876", key="KEYS")
