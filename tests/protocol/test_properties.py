"""The property string: what is written, what the parser lets vanish, what a producer must refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.messages.properties import (
    RESERVED_PROPERTIES,
    check_user_properties,
    decode_properties,
    encode_properties,
    find_property,
)
from tests.rows import by_row


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, ""),
        ({"KEYS": "k1 k2"}, "KEYS\x01k1 k2"),
        ({"TAGS": "TagA", "a": "ä中😀"}, "TAGS\x01TagA\x02a\x01ä中😀"),
    ],
)
def test_java_4_9_8_form(properties: dict[str, str], text: str) -> None:
    """Pairs in order with nothing behind the last one, and back again."""
    assert encode_properties(properties) == text
    assert decode_properties(text) == properties


@by_row(
    "text, properties",
    [
        ("a\x01b\x02", {"a": "b"}),
        ("\x02\x02a\x01b\x02\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01\x02b\x01c", {"b": "c"}),
        ("\x01a\x02b\x01c", {"b": "c"}),
        ("a\x02b\x01c", {"b": "c"}),
        ("\x01", {}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        ("TAGS\x01null\x02", {"TAGS": "null"}),
    ],
)
def test_the_parsers_rule(text: str, properties: dict[str, str]) -> None:
    """A trailing 0x02 is no pair, pieces without name or value vanish, the last of equal names wins (wire.md 4.2)."""
    assert decode_properties(text) == properties


def test_user_properties_that_pass() -> None:
    """Any other name with any text that separates nothing, the Go clients' sharding key included."""
    check_user_properties({})
    check_user_properties({"color": "rot", "SHARDING_KEY": "N123", "keys": "lower case is another name"})


@by_row(
    "properties",
    [{name: "x"} for name in sorted(RESERVED_PROPERTIES)]
    + [{"": "x"}, {"a": ""}, {"a\x01": "b"}, {"a": "b\x02"}, {"fine": "x", "a": "\x01"}],
)
def test_user_properties_that_are_refused(properties: dict[str, str]) -> None:
    """RocketMQ's own names, empty ones, and separators within would be misread by the receiver."""
    with pytest.raises(LocalProtocolError, match="property"):
        check_user_properties(properties)


def test_reserved_names_follow_java() -> None:
    """The words that Java's putUserProperty refuses and this package sets itself (wire.md 4.3)."""
    assert {"KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", "RETRY_TOPIC", "CLUSTER", "TTL"} <= RESERVED_PROPERTIES


@given(st.lists(st.sampled_from(("TAGS", "TAGS\x01", "\x02TAGS\x01", "a", "\x01", "\x02", "\x02\x02", "\n", "TAG"))))
def test_one_property_is_found_as_if_all_were_decoded(pieces: list[str]) -> None:
    """The last one that has a value, also in a text that no client writes."""
    text = "".join(pieces)
    for name in ("TAGS", "a", "S", "none"):
        assert find_property(text, name) == decode_properties(text).get(name)
