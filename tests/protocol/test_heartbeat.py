"""HeartbeatData: enums by name and by ordinal, absent members, and the subscription's filter."""

from enum import Enum
from typing import Any

import pytest

from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from lockstep.protocol.errors import BodyError
from lockstep.protocol.filter import FilterError
from tests.rows import by_row

CONSUMER: dict[str, Any] = {
    "groupName": "G",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [{"topic": "T"}],
}


@pytest.mark.parametrize(
    ("member", "enum", "field"),
    [
        ("consumeType", ConsumeType, "consume_type"),
        ("messageModel", MessageModel, "message_model"),
        ("consumeFromWhere", ConsumeFromWhere, "consume_from_where"),
    ],
)
def test_enums_by_name_and_by_ordinal(member: str, enum: type[Enum], field: str) -> None:
    """Java sends names, C++ ordinals (wire.md 9.1); both mean the same, and an unknown name means what absence does."""
    for ordinal, constant in enumerate(enum):
        for sent in (constant.name, ordinal):
            assert getattr(ConsumerData.from_wire(CONSUMER | {member: sent}), field) is constant
    wrong: Any
    for wrong in (len(enum), -1, [], {}, 0.5):
        with pytest.raises(BodyError, match=f"{member} must be one of {next(iter(enum)).name}"):
            ConsumerData.from_wire(CONSUMER | {member: wrong})
    usual = getattr(ConsumerData.from_wire({name: value for name, value in CONSUMER.items() if name != member}), field)
    for unknown in ("NONSENSE", "", None, "0"):
        assert getattr(ConsumerData.from_wire(CONSUMER | {member: unknown}), field) is usual


def test_ordinals_are_javas() -> None:
    """The order of wire.md 9.1, which C++ relies on."""
    assert [constant.name for constant in ConsumeFromWhere][4:] == [
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ]
    assert (MessageModel.BROADCASTING.value, MessageModel.CLUSTERING.value) == (0, 1)
    assert (ConsumeType.CONSUME_ACTIVELY.value, ConsumeType.CONSUME_PASSIVELY.value) == (0, 1)


def test_what_cpp_leaves_out() -> None:
    """Absent members have Java's defaults, and a version may be text (wire.md 15)."""
    wire = {"topic": "T", "subString": "*", "subVersion": "1795208639549"}
    assert SubscriptionData.from_wire(wire) == SubscriptionData("T", "*", (), (), 1795208639549, "TAG", False)
    assert ConsumerData.from_wire(CONSUMER).unit_mode is False
    assert HeartbeatData.from_wire({"clientID": "c"}) == HeartbeatData("c")


@pytest.mark.parametrize(
    "wire",
    [
        {"clientID": 5.5},
        {"clientID": "c", "producerDataSet": [5]},
        {"clientID": "c", "producerDataSet": [{}]},
        {"clientID": "c", "consumerDataSet": {}},
        {"clientID": "c", "consumerDataSet": [{"consumeType": "CONSUME_PASSIVELY"}]},
        {"clientID": "c", "consumerDataSet": [CONSUMER | {"subscriptionDataSet": ["T"]}]},
        {"clientID": "c", "consumerDataSet": [CONSUMER | {"unitMode": "no"}]},
    ],
    ids=str,
)
def test_heartbeats_that_are_refused(wire: Any) -> None:
    """A member that is missing or of another kind is a BodyError."""
    with pytest.raises(BodyError):
        HeartbeatData.from_wire(wire)


@by_row("member", [{"codeSet": ["x"]}, {"codeSet": [None]}, {"codeSet": [float("inf")]}, {"codeSet": [float("nan")]},
     {"codeSet": [1.5]}, {"codeSet": [2**64]}, {"codeSet": [[1]]}, {"codeSet": 5}, {"codeSet": ["9" * 5000]},
     {"tagsSet": [5]}, {"tagsSet": [["a"]]}, {"tagsSet": "TagA"},
     {"topic": None}, {"topic": {}}, {"subVersion": "new"}, {"expressionType": []}])  # fmt: skip
def test_subscriptions_that_are_refused(member: dict[str, Any]) -> None:
    """Tags are texts and their codes numbers that can be written again."""
    with pytest.raises(BodyError):
        SubscriptionData.from_wire({"topic": "T"} | member)


def test_an_infinite_code_in_json() -> None:
    """JSON has numbers that are no integers; they end as a BodyError like any other."""
    for number in (b"1e999", b"Infinity", b"NaN", b"-1e400"):
        consumer = b'"groupName":"G","consumeType":1,"messageModel":1,"consumeFromWhere":0,'
        body = b'{"clientID":"c","consumerDataSet":[{' + consumer
        with pytest.raises(BodyError):
            decode_body(
                HeartbeatData, body + b'"subscriptionDataSet":[{"topic":"T","codeSet":[' + number + b"]}]}]}", 0
            )


def test_codes_may_come_as_text() -> None:
    """Numbers given as text are numbers here too."""
    assert SubscriptionData.from_wire({"topic": "T", "codeSet": ["2598919", -5]}).code_set == (2598919, -5)


def test_parse_makes_tags_and_codes() -> None:
    """An expression becomes its tags and their Java hashes, in order."""
    data = SubscriptionData.parse("T", " TagA||TagB|| TagA ", 5)
    assert (data.tags_set, data.code_set) == (("TagA", "TagB"), (2598919, 2598920))
    assert (data.sub_string, data.sub_version) == (" TagA||TagB|| TagA ", 5)
    for everything in (None, "", "*"):
        assert SubscriptionData.parse("T", everything) == SubscriptionData("T", "*")
    with pytest.raises(FilterError):
        SubscriptionData.parse("T", " || ")


def test_the_brokers_filter() -> None:
    """Without tags everything passes, also untagged messages; with tags only their hashes do (wire.md 6.5)."""
    everything, tagged = SubscriptionData("T"), SubscriptionData.parse("T", "TagA || TagB")
    assert all(everything.matches_code(code) for code in (0, 2598919, -1))
    assert [tagged.matches_code(code) for code in (2598919, 2598920, 0, 1)] == [True, True, False, False]
