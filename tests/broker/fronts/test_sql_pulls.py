"""SQL92 subscriptions on a broker: checked, compiled once, found and evaluated for pulls (wire.md 6.2, 6.5)."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lockstep.broker.messages import filters as consumer_filters
from lockstep.broker.messages.filters import ConsumerFilterManager
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.filter import FilterError
from lockstep.protocol.headers.messaging import PullMessageResponseHeader
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.messages.properties import encode_properties
from lockstep.store import Passes
from tests.broker.helpers import NOW_MS, Peer, RecordingLog, consumer

C = ResponseCode
SUSPEND, TEXT = int(PullSysFlag.SUSPEND), int(PullSysFlag.SUBSCRIPTION)
DAY_MS = 24 * 60 * 60 * 1000


def sql(expression: str = "size > 2", version: int = 5, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type="SQL92")


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding, property_filter=True)


def send_sizes(peer: Peer, *sizes: int) -> None:
    for size in sizes:
        peer.send(properties=encode_properties({"size": str(size)}), body=str(size).encode())


def registered(peer: Peer, offset: int = 0, **fields: Any) -> RemotingCommand:
    """A pull of a push consumer, which has said in its heartbeat what it wants."""
    reply = peer.pull(offset, **{"sys_flag": 0, "consumer_group": "G", "sub_version": 5, **fields})
    assert reply is not None
    return reply


def bodies(reply: RemotingCommand) -> list[bytes]:
    return [message.body for message in decode_messages(reply.body)]


def next_offset(reply: RemotingCommand) -> int:
    return reply.decode_header(PullMessageResponseHeader).next_begin_offset


def test_a_registered_expression_filters(peer: Peer) -> None:
    """The reply has only matching messages; the others count as examined, so that the offset moves on."""
    send_sizes(peer, 1, 2, 3, 4, 1)
    peer.heartbeat("c1", consumer("G", sql()))
    found = registered(peer)
    assert (found.code, bodies(found), next_offset(found)) == (C.SUCCESS, [b"3", b"4"], 5)
    nothing = registered(peer, 4)
    assert (nothing.code, next_offset(nothing)) == (C.PULL_RETRY_IMMEDIATELY, 5)


def test_an_expression_in_the_request_filters_too(peer: Peer) -> None:
    """As consumers send it that pull by themselves; no heartbeat is needed."""
    send_sizes(peer, 1, 3)
    peer.send(properties="TAGS\x01size", body=b"none")
    asked = {"sys_flag": TEXT, "expression_type": "SQL92"}
    for expression, expected in (("size > 2", [b"3"]), ("size IS NULL AND TAGS = 'size'", [b"none"])):
        reply = peer.pull(0, subscription=expression, **asked)
        assert reply is not None
        assert bodies(reply) == expected
    broken = peer.pull(0, subscription="size >", **asked)
    assert broken is not None
    assert (broken.code, broken.remark) == (
        C.SUBSCRIPTION_PARSE_FAILED,
        "the expression ends where a value, a name or a bracket must follow",
    )


def test_pull_limits_hold_for_filtered_messages(peer: Peer) -> None:
    """As many as were asked for; the next pull goes on behind the last that was looked at."""
    send_sizes(peer, *[1, 9] * 10)
    peer.heartbeat("c1", consumer("G", sql()))
    first = registered(peer, max_msg_nums=3)
    assert (len(bodies(first)), next_offset(first)) == (3, 6)
    assert len(bodies(registered(peer, 6))) == 7


def test_a_long_expression_is_shown_fewer_messages(peer: Peer) -> None:
    """It takes longer for each: 800 messages and 8192 characters kept a broker for three seconds."""
    long = " OR ".join(["size = 7"] * 600)
    send_sizes(peer, *[1] * 40, 7)
    peer.heartbeat("c1", consumer("G", sql(long)))
    nothing = registered(peer)
    assert (nothing.code, next_offset(nothing)) == (C.PULL_RETRY_IMMEDIATELY, 204_800 // len(long))
    found = registered(peer, next_offset(nothing))
    assert (bodies(found), next_offset(found)) == ([b"7"], 41)


@pytest.mark.parametrize(
    ("subscription", "asked_version", "code", "remark"),
    [
        (sql("size > >"), 5, C.FILTER_DATA_NOT_EXIST, "the expression of topic 'T' is invalid: 'size > >'"),
        (sql(""), 5, C.FILTER_DATA_NOT_EXIST, "the expression of topic 'T' is invalid: ''"),
        (sql()._replace(expression_type="REGEX"), 5, C.FILTER_DATA_NOT_EXIST, "is invalid"),
        (sql(), 6, C.SUBSCRIPTION_NOT_LATEST, "the subscription here has version 5, the request 6"),
    ],
)
def test_what_cannot_be_used_is_told_to_pulls(
    peer: Peer, subscription: SubscriptionData, asked_version: int, code: ResponseCode, remark: str
) -> None:
    """A heartbeat is never refused; the pull learns that there is no filter."""
    send_sizes(peer, 3)
    peer.heartbeat("c1", consumer("G", subscription))
    reply = registered(peer, sub_version=asked_version)
    assert reply.code == code
    assert remark in (reply.remark or "")


def test_a_filter_older_than_the_request_is_told_so(peer: Peer) -> None:
    """FILTER_DATA_NOT_LATEST: the newer expression of the same subscription could not be compiled."""
    send_sizes(peer, 3)
    peer.heartbeat("c1", consumer("G", sql()))
    peer.heartbeat("c1", consumer("G", sql("size > >", 6)))
    reply = registered(peer, sub_version=6)
    assert (reply.code, reply.remark) == (C.FILTER_DATA_NOT_LATEST, "the filter here has version 5, the request 6")
    assert bodies(registered(peer, sub_version=5)) == [b"3"]


def test_without_the_setting_it_is_refused() -> None:
    """RocketMQ's default and text; CHECK_CLIENT_CONFIG gets the same."""
    peer, refused = Peer(), "The broker does not support consumer to filter message by SQL92"
    send_sizes(peer, 3)
    peer.heartbeat("c1", consumer("G", sql()))
    asked = peer.pull(0, sys_flag=TEXT, expression_type="SQL92", subscription="size > 2")
    assert asked is not None
    body = b'{"clientId":"a","group":"G","subscriptionData":{"topic":"T","subString":"a > 1","expressionType":"SQL92"}}'
    check = peer.answer(RequestCode.CHECK_CLIENT_CONFIG, None, body)
    for reply in (registered(peer), asked, check):
        assert (reply.code, reply.remark) == (C.SYSTEM_ERROR, refused)
    assert peer.broker.messages.filters.find("G", "T") is None, "nothing is compiled for nothing"


def test_the_setting_is_changed_while_the_broker_runs() -> None:
    """Pulls are answered from the next heartbeat on; until then they learn that there is no filter yet."""
    peer = Peer()
    send_sizes(peer, 3)
    peer.heartbeat("c1", consumer("G", sql()))
    peer.broker.change_config(replace(peer.broker.config, property_filter=True), NOW_MS)
    assert registered(peer).code == C.FILTER_DATA_NOT_EXIST
    peer.heartbeat("c1", consumer("G", sql()))
    assert bodies(registered(peer)) == [b"3"]


@pytest.mark.parametrize("at_start", [True, False])
def test_the_parser_is_loaded_before_the_first_expression(monkeypatch: pytest.MonkeyPatch, at_start: bool) -> None:
    """It takes some 80 ms, in which no peer would be answered: so at the start, or in turns when switched on."""
    monkeypatch.delitem(sys.modules, "lockstep.broker.messages.sql.parser", raising=False)
    broker = Peer(property_filter=at_start).broker
    turns: list[Callable[[], None]] = []
    if not at_start:
        assert "lockstep.broker.messages.sql.parser" not in sys.modules
        broker.work.soon = turns.append
        broker.change_config(replace(broker.config, property_filter=True), NOW_MS)
        assert "lockstep.broker.messages.sql.parser" not in sys.modules
        while turns:
            turns.pop(0)()
    assert "lockstep.broker.messages.sql.parser" in sys.modules


@pytest.mark.parametrize(
    ("expression_type", "expression", "code", "remark"),
    [
        ("SQL92", "size > 2", C.SUCCESS, None),
        ("SQL92", "", C.SUBSCRIPTION_PARSE_FAILED, "must not be empty"),
        ("SQL92", "size > 'a'", C.SUBSCRIPTION_PARSE_FAILED, "'a' has no order"),
        ("SQL92", "a" * 8193, C.SUBSCRIPTION_PARSE_FAILED, "at most 8192"),
        ("REGEX", "size", C.SUBSCRIPTION_PARSE_FAILED, "the expression type 'REGEX' is unknown"),
        ("TAG", "size", C.SUCCESS, None),
    ],
)
def test_a_client_asks_before_it_subscribes(
    expression_type: str, expression: str, code: ResponseCode, remark: str | None
) -> None:
    """CHECK_CLIENT_CONFIG: 23 with the reason for an expression that cannot be (wire.md 2)."""
    body = (
        f'{{"clientId":"a","group":"G","subscriptionData":{{"topic":"T","subString":"{expression}",'
        f'"expressionType":"{expression_type}"}}}}'
    )
    reply = Peer(property_filter=True).answer(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())
    assert reply.code == code
    assert (remark or "") in (reply.remark or "")


def test_a_parked_pull_sleeps_until_its_expression_is_true(peer: Peer) -> None:
    """A message that does not match wakes it only at the next sweep, as with tags (wire.md 6.4)."""
    send_sizes(peer, 1)
    peer.heartbeat("c1", consumer("G", sql()))
    assert peer.pull(1, sys_flag=SUSPEND, consumer_group="G", sub_version=5) is None
    send_sizes(peer, 1)
    assert peer.connection.replies == []
    send_sizes(peer, 7)
    (woken,) = peer.connection.replies
    assert (bodies(woken), next_offset(woken)) == ([b"7"], 3)


class Compiled:
    """Counts what is compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.expressions: list[str] = []
        compiled = consumer_filters.compiled

        def counted(expression_type: str, expression: str) -> Passes:
            self.expressions.append(expression)
            return compiled(expression_type, expression)

        monkeypatch.setattr(consumer_filters, "compiled", counted)


def test_an_expression_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many heartbeats bring it; a newer version of the same only counts as newer."""
    seen, filters = Compiled(monkeypatch), ConsumerFilterManager(RecordingLog())
    for version in (5, 5, 6, 6):
        filters.register("G", [sql(version=version)], NOW_MS)
    known = filters.find("G", "T")
    assert known is not None
    assert (known.sub_version, seen.expressions) == (6, ["size > 2"])
    filters.register("G", [sql("size > 3", 7)], NOW_MS)
    assert seen.expressions == ["size > 2", "size > 3"]


def test_a_second_of_heartbeats_has_a_bounded_number_of_characters_compiled() -> None:
    """A heartbeat of 16 MiB would occupy a broker for minutes. Expressions that were left out are compiled with a later
    heartbeat."""
    log = RecordingLog()
    filters = ConsumerFilterManager(log)
    texts = ", ".join(["'x'"] * 1000)
    many = [sql(f"size = {i} OR size IN ({texts})", topic=f"T{i}") for i in range(10)]
    of_a_second = 32_768 // len(many[0].sub_string)

    def known() -> int:
        return sum(filters.find("G", f"T{i}") is not None for i in range(10))

    filters.register("G", many, NOW_MS)
    filters.register("G", many, NOW_MS + 999)
    assert (known(), of_a_second) == (6, 6)
    assert set(log.names("warning")) == {"filter_compilation_throttled"}
    filters.register("G", many, NOW_MS + 1000)
    assert known() == 10


def test_only_a_newer_version_changes_an_expression() -> None:
    """Two members that disagree under one version: the first one's stays, and the log says so."""
    log = RecordingLog()
    filters = ConsumerFilterManager(log)
    filters.register("G", [sql()], NOW_MS)
    filters.register("G", [sql("size > 3")], NOW_MS)
    filters.register("G", [sql("size > 4", 4)], NOW_MS)
    known = filters.find("G", "T")
    assert known is not None
    assert known.expression == "size > 2"
    assert log.names("warning") == ["filter_version_conflict"]


def test_filters_of_who_left_are_kept_for_a_day() -> None:
    """Filters of groups without members and of unsubscribed topics; a group that returns within a day finds its
    filter."""
    filters = ConsumerFilterManager(RecordingLog())
    filters.register("gone", [sql()], NOW_MS)
    filters.register("G", [sql(), sql(topic="U")], NOW_MS)
    filters.register("G", [sql()], NOW_MS)  # U is no longer wanted
    filters.expire({"G"}, NOW_MS)
    filters.expire({"G"}, NOW_MS + DAY_MS - 1)
    assert filters.find("gone", "T")
    assert filters.find("G", "U")
    filters.register("gone", [sql()], NOW_MS + DAY_MS - 1)  # it is back
    filters.expire({"G", "gone"}, NOW_MS + DAY_MS)
    assert filters.find("gone", "T")
    assert filters.find("G", "U") is None
    assert filters.find("G", "T")


def test_expressions_that_are_kept_have_a_bound() -> None:
    """Of all groups together. One too many is not kept; it is when it comes again, and dead ones were forgotten."""
    met: list[tuple[int, int]] = []
    filters = ConsumerFilterManager(RecordingLog(), 20, lambda maximum, now_ms: met.append((maximum, now_ms)))
    filters.register("G", [sql("size > 2")], NOW_MS)
    filters.register("H", [sql("size > 3")], NOW_MS)
    filters.register("I", [sql("size > 4")], NOW_MS)
    assert filters.find("I", "T") is None
    assert met == [(20, NOW_MS)]
    filters.register("G", [sql("size > 5", 6)], NOW_MS)  # in place of its own
    filters.expire({"G"}, NOW_MS)
    assert filters.find("H", "T") is None
    filters.register("I", [sql("size > 4")], NOW_MS)
    known = filters.find("I", "T"), filters.find("G", "T")
    assert [one.expression for one in known if one] == ["size > 4", "size > 5"]


def test_a_failure_is_remembered_as_well() -> None:
    """A broken expression costs one parse, not one a heartbeat; its error does not keep the frames of who was told."""
    consumer_filters._compiled.cache_clear()
    depths = []
    for _ in range(3):
        with pytest.raises(FilterError) as told:
            consumer_filters.compiled("SQL92", "size > >")
        depths.append(len(told.traceback))
    assert consumer_filters._compiled.cache_info().misses == 1
    assert depths == depths[:1] * 3
