"""Pulls: checks in RocketMQ's order, answers, commits with a pull, long polling (wire.md 6)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker.core.pull import sweep_held_pulls
from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, dispatch
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader, PullMessageResponseHeader
from lockstep.protocol.messages.message import decode_messages
from tests.broker.helpers import NOW_MS, FakeConnection, Peer, consumer, over_the_wire, pull_header

C = ResponseCode
COMMIT, SUSPEND, TEXT = PullSysFlag.COMMIT_OFFSET, PullSysFlag.SUSPEND, PullSysFlag.SUBSCRIPTION
BULK = int(TEXT | PullSysFlag.BULK)
WAITING = int(SUSPEND | TEXT)


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


def bodies(reply: RemotingCommand | None) -> list[bytes]:
    assert reply is not None
    return [message.body for message in decode_messages(reply.body)]


def offsets_of(reply: RemotingCommand) -> tuple[int, int, int]:
    """next, min, max."""
    header = reply.decode_header(PullMessageResponseHeader)
    assert header.suggest_which_broker_id == 0
    return header.next_begin_offset, header.min_offset, header.max_offset


def test_a_bulk_pull_has_no_limit_of_messages(peer: Peer) -> None:
    """Lockstep's own reader of whole topics asks so; every other pull gets 32 messages at most."""
    peer.send_many(50)
    assert len(bodies(peer.pull(0, max_msg_nums=4096))) == 32
    assert len(bodies(peer.pull(0, max_msg_nums=4096, sys_flag=BULK))) == 50
    assert len(bodies(peer.pull(3, max_msg_nums=40, sys_flag=BULK))) == 40


@pytest.mark.parametrize(
    ("written", "offset", "code", "remark", "offsets"),
    [
        (3, 0, C.SUCCESS, "FOUND", (3, 0, 3)),
        (3, 3, C.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", (3, 0, 3)),
        (3, 9, C.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", (3, 0, 3)),
        (3, -1, C.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", (0, 0, 3)),
        (0, 0, C.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", (0, 0, 0)),
        (0, 7, C.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", (0, 0, 0)),
    ],
)
def test_code_and_offsets_of_an_answer(
    peer: Peer, written: int, offset: int, code: ResponseCode, remark: str, offsets: tuple[int, int, int]
) -> None:
    """The table of wire.md 6.3; the remark is the store's status."""
    peer.send(queue_id=1)  # makes the topic
    peer.send_many(written)
    reply = peer.pull(offset)
    assert reply is not None
    assert (reply.code, reply.remark, offsets_of(reply)) == (code, remark, offsets)
    assert len(bodies(reply)) == (written if code is C.SUCCESS else 0)


def test_nothing_that_matches_says_to_go_on(peer: Peer) -> None:
    """PULL_RETRY_IMMEDIATELY with the offset moved."""
    peer.send_many(3, properties="TAGS\x01B")
    reply = peer.pull(0, subscription="A")
    assert reply is not None
    assert (reply.code, offsets_of(reply)) == (C.PULL_RETRY_IMMEDIATELY, (3, 0, 3))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumer_group": "no good"}, C.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "nowhere"}, C.TOPIC_NOT_EXIST),
        ({"topic": "writeonly"}, C.NO_PERMISSION),
        ({"queue_id": 4}, C.SYSTEM_ERROR),
        ({"queue_id": -1}, C.SYSTEM_ERROR),
        ({"subscription": " || "}, C.SUBSCRIPTION_PARSE_FAILED),
        ({"subscription": "t" * 32_768}, C.SUBSCRIPTION_PARSE_FAILED),
        ({"expression_type": "SQL92", "subscription": "a > 1"}, C.SYSTEM_ERROR),
        ({"expression_type": "SQL92", "subscription": None}, C.SUBSCRIPTION_PARSE_FAILED),
        ({"consumer_group": "closed", "topic": "nowhere"}, C.NO_PERMISSION),
        ({"sys_flag": 0, "consumer_group": "casting", "topic": "nobodys"}, C.TOPIC_NOT_EXIST),
        ({"sys_flag": 0, "consumer_group": "casting", "topic": "T"}, C.NO_PERMISSION),
        ({"sys_flag": 0}, C.SUBSCRIPTION_NOT_EXIST),
        ({"sys_flag": 0, "consumer_group": "online"}, C.SUBSCRIPTION_NOT_EXIST),
        ({"sys_flag": 0, "consumer_group": "online", "topic": "U", "sub_version": 6}, C.SUBSCRIPTION_NOT_LATEST),
        ({"sys_flag": 0, "consumer_group": "online", "topic": "S", "sub_version": 5}, C.SYSTEM_ERROR),
    ],
)
def test_what_may_not_be_pulled(peer: Peer, fields: dict[str, Any], code: ResponseCode) -> None:
    """The first failing check decides; nothing is committed by a refused pull."""
    for topic in ("T", "U", "S"):
        peer.send(topic)
    peer.answer(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("writeonly", "TBW102", 4, 4, 2))
    sql = SubscriptionData("S", "a > 1", sub_version=5, expression_type="SQL92")
    peer.heartbeat("c1", consumer("online", SubscriptionData.parse("U", "*", 5), sql))
    casting = consumer("casting", SubscriptionData.parse("U", "*", 5))
    peer.heartbeat("c1", casting._replace(message_model=MessageModel.BROADCASTING))
    peer.broker.catalog.groups.put(SubscriptionGroupConfig("closed", consume_enable=False), NOW_MS)
    peer.broker.catalog.groups.put(SubscriptionGroupConfig("casting", consume_broadcast_enable=False), NOW_MS)
    reply = peer.pull(0, **{**fields, "commit_offset": 5, "sys_flag": fields.get("sys_flag", int(TEXT)) | COMMIT})
    assert reply is not None
    assert (reply.code, reply.body) == (code, b"")
    assert reply.remark
    assert peer.broker.catalog.offsets.groups() == []


def test_a_group_that_may_not_be_made_by_use_does_not_pull() -> None:
    """Code 26 before the topic is looked at; tools' own group is always there."""
    peer = Peer(auto_create_groups=False)
    peer.send()
    reply = peer.pull(0, topic="nowhere")
    assert reply is not None
    assert reply.code == C.SUBSCRIPTION_GROUP_NOT_EXIST
    assert bodies(peer.pull(0, consumer_group="TOOLS_CONSUMER", max_msg_nums=1)) == [b"x"]


def test_a_broker_that_may_not_be_read_says_so_first() -> None:
    """brokerPermission without its read bit."""
    reply = Peer(broker_permission=2).pull(0, consumer_group="no good", topic="nowhere")
    assert reply is not None
    assert reply.code == C.NO_PERMISSION


def test_an_offset_out_of_bounds_leaves_an_event(peer: Peer) -> None:
    """In OFFSET_MOVED_EVENT, with the group as tag and key, for each such pull (wire.md 6.3)."""
    peer.send_many(3)
    for offset in (0, 3, 9):
        peer.pull(offset)
    (event,) = decode_messages(peer.broker.messages.store.get("OFFSET_MOVED_EVENT", 0, 0, 32, None).body)
    assert (event.tags, event.keys, event.properties["DELAY"]) == ("G", "G", "0")
    assert json.loads(event.body) == {
        "consumerGroup": "G",
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
        "offsetNew": 3,
        "offsetRequest": 9,
    }


def test_a_registered_subscription_filters(peer: Peer) -> None:
    """Without text in the request, the group's own; an equal version is new enough."""
    peer.send_many(2, properties="TAGS\x01A")
    peer.send_many(2, properties="TAGS\x01B")
    peer.heartbeat("c1", consumer("G", SubscriptionData.parse("T", "B", 5)))
    reply = peer.pull(0, sys_flag=0, sub_version=5, subscription=None)
    assert reply is not None
    assert (len(bodies(reply)), offsets_of(reply)[0]) == (2, 4)


def test_a_pull_commits_when_told_to_even_if_it_is_parked(peer: Peer) -> None:
    """Once, when it comes; its rerun does not (wire.md 6.4, 6)."""
    peer.send_many(2)
    assert peer.pull(2, sys_flag=WAITING | COMMIT, commit_offset=2) is None
    assert peer.broker.catalog.offsets.query("G", "T", 0) == 2
    peer.broker.catalog.offsets.commit("G", "T", 0, 1)
    peer.send()
    assert len(peer.connection.replies) == 1
    assert peer.broker.catalog.offsets.query("G", "T", 0) == 1
    peer.pull(0, commit_offset=9)
    assert peer.broker.catalog.offsets.query("G", "T", 0) == 1


def test_a_parked_pull_is_answered_by_the_message_it_waits_for(peer: Peer) -> None:
    """Under its own opaque, with the message."""
    peer.send_many(2)
    other = peer.beside()
    assert other.call(RequestCode.PULL_MESSAGE, pull_header(2, sys_flag=WAITING), opaque=77) is None
    peer.send(queue_id=1)
    assert other.connection.replies == []
    peer.send(body=b"news")
    (reply,) = other.connection.replies
    assert (reply.opaque, reply.code, bodies(reply), offsets_of(reply)) == (77, 0, [b"news"], (3, 0, 3))


def test_a_lite_pull_is_a_pull(peer: Peer) -> None:
    """It has another code and comes from RocketMQ 5's lite pull consumers (wire.md 13); it waits as well."""
    peer.send_many(2)
    reply = peer.answer(RequestCode.LITE_PULL_MESSAGE, pull_header(0))
    assert (reply.code, bodies(reply), offsets_of(reply)) == (0, [b"0", b"1"], (2, 0, 2))
    other = peer.beside()
    header = pull_header(2, sys_flag=WAITING | PullSysFlag.LITE_PULL)
    assert other.call(RequestCode.LITE_PULL_MESSAGE, header, opaque=77) is None
    peer.send(body=b"news")
    (late,) = other.connection.replies
    assert (late.opaque, late.code, bodies(late)) == (77, 0, [b"news"])


def test_an_empty_queue_is_waited_for_too(peer: Peer) -> None:
    """NO_MESSAGE_IN_QUEUE at offset 0 waits; at another offset it is answered."""
    peer.send(queue_id=1)
    assert peer.pull(0, sys_flag=WAITING) is None
    assert peer.pull(5, sys_flag=WAITING) is not None


def test_a_pull_that_waits_keeps_nothing_of_its_request_but_what_its_reply_needs(peer: Peer) -> None:
    """Thousands may wait for one peer, and each may have come in a frame of 16 MiB."""
    peer.send_many(2)
    asked = RemotingCommand(
        RequestCode.PULL_MESSAGE,
        pull_header(2, sys_flag=WAITING),
        b"x" * 1000,
        ext_fields={"more": "y" * 1000},
        opaque=7,
        serialize_type=peer.encoding,
    )
    request = over_the_wire(asked)
    assert dispatch(BROKER_HANDLERS, peer.broker, peer.connection, request, NOW_MS) is None
    assert (request.body, request.ext_fields, request.positional) == (b"", None, None)
    sweep_held_pulls(peer.broker, NOW_MS + 60_000)
    (reply,) = peer.connection.replies
    assert (reply.opaque, reply.serialize_type) == (7, peer.encoding)


def test_a_pull_that_waits_in_vain_is_answered_by_the_sweep_after_its_time(peer: Peer) -> None:
    """PULL_NOT_FOUND, once; not a millisecond before its own deadline."""
    peer.send_many(2)
    peer.pull(2, sys_flag=WAITING, suspend_timeout_millis=2000)
    sweep_held_pulls(peer.broker, NOW_MS + 1999)
    assert peer.connection.replies == []
    sweep_held_pulls(peer.broker, NOW_MS + 2000)
    sweep_held_pulls(peer.broker, NOW_MS + 9000)
    (reply,) = peer.connection.replies
    assert (reply.code, offsets_of(reply)) == (C.PULL_NOT_FOUND, (2, 0, 2))


def test_a_message_of_another_tag_is_found_by_the_sweep(peer: Peer) -> None:
    """Which ignores tags, so that the offset moves on: NO_MATCHED_MESSAGE."""
    peer.send_many(2)
    peer.pull(2, sys_flag=WAITING, subscription="A")
    peer.send(properties="TAGS\x01B")
    assert peer.connection.replies == []
    sweep_held_pulls(peer.broker, NOW_MS + 5000)
    (reply,) = peer.connection.replies
    assert (reply.code, offsets_of(reply)) == (C.PULL_RETRY_IMMEDIATELY, (3, 0, 3))


def test_with_long_polling_off_a_pull_waits_a_second(peer: Peer) -> None:
    """Whatever it asked for."""
    short = Peer(peer.encoding, long_polling=False)
    short.send_many(1)
    short.pull(1, sys_flag=WAITING)
    sweep_held_pulls(short.broker, NOW_MS + 1000)
    assert len(short.connection.replies) == 1


@pytest.mark.parametrize("setting", ["held_pulls_per_connection_max", "held_pulls_max"])
def test_a_pull_that_cannot_be_parked_is_answered_that_the_broker_is_busy(setting: str) -> None:
    """Clients pull again at once when nothing is there, and wait when the broker is busy. A line names the setting."""
    limits: dict[str, Any] = {setting: 2}
    peer = Peer(**limits)
    peer.send_many(1)
    answers = [peer.pull(1, sys_flag=WAITING) for _ in range(3)]
    assert [answer and answer.code for answer in answers] == [None, None, C.SYSTEM_BUSY]
    (said,) = [fields for _, event, fields in peer.log.events if event == "limit_met"]
    assert (said["setting"], said["maximum"]) == (setting, 2)


def test_a_peer_that_stops_reading_while_it_is_answered_gets_no_more() -> None:
    """Its other pulls are parked again and answered once it reads."""

    class Narrow(FakeConnection):
        def reply(self, reply: RemotingCommand) -> None:
            super().reply(reply)
            self.write_paused = True

    narrow = Narrow()
    peer = Peer(connection=narrow)
    peer.send_many(1)
    for _ in range(3):
        peer.pull(1, sys_flag=WAITING)
    peer.beside().send()
    assert len(narrow.replies) == 1
    narrow.write_paused = False
    sweep_held_pulls(peer.broker, NOW_MS + 5000)
    assert len(narrow.replies) == 2
    assert len(peer.broker.messages.hold) == 1


def test_a_closed_connection_is_not_answered(peer: Peer) -> None:
    """Its parked pulls went with it."""
    peer.send_many(1)
    other = peer.beside()
    other.pull(1, sys_flag=WAITING)
    peer.broker.on_closed(other.connection)
    peer.send()
    assert other.connection.replies == []


def test_many_pulls_that_wait_for_one_message_are_answered_in_steps() -> None:
    """The first at once, the others in later turns of the loop, each once; a pull whose peer is gone is left out."""
    peer, turns = Peer(), list[Callable[[], None]]()
    peer.broker.work.soon = turns.append
    peer.send_many(1)
    others = [peer.beside(f"127.0.0.1:{50_001 + number}") for number in range(200)]
    for other in others:
        other.pull(1, sys_flag=WAITING)
    peer.send()
    assert 0 < sum(len(other.connection.replies) for other in others) < 200
    others[-1].connection.is_open = False
    while turns:
        turns.pop(0)()
    assert [len(other.connection.replies) for other in others] == [1] * 199 + [0]
    assert len(peer.broker.messages.hold) == 0
