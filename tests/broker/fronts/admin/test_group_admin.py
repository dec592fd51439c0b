"""Group configurations and connections: codes 200, 201, 203, 204, 207, 328, 352 (wire.md 2.4)."""

import pytest

from lockstep.broker.catalog.topics import QUEUE_NUMS_MAX
from lockstep.protocol.bodies.client import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.config import SubscriptionGroupWrapper
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from lockstep.protocol.bodies.subscription_group import GroupRetryPolicy, SubscriptionGroupConfig
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.admin import (
    ConsumerGroupRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    ProducerGroupRequestHeader,
)
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from tests.broker.helpers import NOW_MS, Peer, consumer, heartbeat_of
from tests.rows import by_row

R, C = RequestCode, ResponseCode
T = SubscriptionData.parse("T", "a || b", 1)


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


def groups(peer: Peer) -> dict[str, SubscriptionGroupConfig]:
    body = decode_body(SubscriptionGroupWrapper, peer.answer(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body, peer.encoding)
    return {config.group_name: config for config in body.groups}


def test_a_group_is_made_changed_and_listed(peer: Peer) -> None:
    """Beside the built-in ones; the version moves."""
    assert "TOOLS_CONSUMER" in groups(peer)
    for retry_max_times in (5, 6):
        config = SubscriptionGroupConfig("G", retry_max_times=retry_max_times, retry_queue_nums=2)
        assert peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config).code == 0
        assert groups(peer)["G"] == config
    assert peer.broker.catalog.groups.data_version == (2, NOW_MS)


def test_one_group_is_told_to_the_tools_of_rocketmq_5(peer: Peer) -> None:
    """Its configuration; an unknown group is SUBSCRIPTION_GROUP_NOT_EXIST (wire.md 13)."""
    config = SubscriptionGroupConfig("G", retry_max_times=3)
    peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
    reply = peer.answer(R.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader("G"))
    assert decode_body(SubscriptionGroupConfig, reply.body, peer.encoding).without_defaults() == config
    unknown = peer.answer(R.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader("other"))
    assert unknown.code == C.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_group_reads_in_order_and_waits_before_retries(peer: Peer) -> None:
    """As tools of RocketMQ 5 set it; 4 has no such members, so where they say nothing else they are not listed."""
    policy = GroupRetryPolicy(is_exponential=True, initial_ms=1000)
    for config in (
        SubscriptionGroupConfig("G", consume_message_orderly=True, retry_policy=policy, consume_timeout_minute=20),
        SubscriptionGroupConfig("G", consume_message_orderly=True, retry_policy=GroupRetryPolicy(False, (1000, 5000))),
    ):
        assert peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config).code == 0
        assert groups(peer)["G"] == config
    plain = SubscriptionGroupConfig(
        "G", consume_message_orderly=False, retry_policy=GroupRetryPolicy(), consume_timeout_minute=15
    )
    peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, plain)
    assert groups(peer)["G"] == SubscriptionGroupConfig("G")
    reply = peer.answer(R.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader("G"))
    assert decode_body(SubscriptionGroupConfig, reply.body, peer.encoding) == plain


def test_a_group_has_no_attributes() -> None:
    """RocketMQ has some for lite topics and priorities: a tool that sets one is told in its words."""
    peer = Peer(SerializeType.JSON)
    body = b'{"groupName": "G", "attributes": {"+lite.bind.topic": "T"}}'
    reply = peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert (reply.code, reply.remark) == (C.SYSTEM_ERROR, "unsupported key: lite.bind.topic")
    assert "G" not in groups(peer)


@by_row(
    "policy, complaint",
    [
        ({"type": "NEVER"}, "is CUSTOMIZED or EXPONENTIAL, not 'NEVER'"),
        ({"customizedRetryPolicy": {"next": []}}, "has 1 to 64 waits, not 0"),
        ({"customizedRetryPolicy": {"next": [1] * 65}}, "has 1 to 64 waits, not 65"),
    ],
)
def test_a_retry_policy_that_cannot_be(policy: dict[str, object], complaint: str) -> None:
    with pytest.raises(BodyError, match=complaint):
        GroupRetryPolicy.from_wire(policy)


def test_a_group_that_cannot_be_is_refused(peer: Peer) -> None:
    """With the reason."""
    reply = peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("no good"))
    assert (reply.code, "no good" in str(reply.remark)) == (C.SYSTEM_ERROR, True)
    assert "no good" not in groups(peer)


def test_a_group_cannot_have_more_retry_queues_than_a_topic_may(peer: Peer) -> None:
    """Its first heartbeat makes a retry topic of as many, and every list of queues goes through them."""
    config = SubscriptionGroupConfig("G", retry_queue_nums=QUEUE_NUMS_MAX + 1)
    reply = peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
    assert (reply.code, str(QUEUE_NUMS_MAX) in str(reply.remark)) == (C.SYSTEM_ERROR, True)
    assert peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config._replace(retry_queue_nums=0)).code == 0


@pytest.mark.parametrize("remove_offset", [False, True])
def test_a_group_is_deleted_and_its_offsets_only_when_asked(peer: Peer, remove_offset: bool) -> None:
    """Other groups' offsets stay in either case; deleting an unknown group is no error."""
    peer.make_topics("T")
    for group in ("G", "other"):
        peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig(group))
        peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, "T", 0, 7))
    for _ in range(2):
        header = DeleteSubscriptionGroupRequestHeader("G", remove_offset)
        assert peer.answer(R.DELETE_SUBSCRIPTIONGROUP, header).code == 0
    assert ("G" in groups(peer), "other" in groups(peer)) == (False, True)
    assert peer.broker.catalog.offsets.query("G", "T", 0) == (-1 if remove_offset else 7)
    assert peer.broker.catalog.offsets.query("other", "T", 0) == 7


def test_a_group_may_want_no_notices(peer: Peer) -> None:
    """Its members rebalance by their timers; with notices on again they get them."""
    for wanted in (False, True):
        config = SubscriptionGroupConfig("G", notify_consumer_ids_changed_enable=wanted)
        peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        peer.heartbeat("a", consumer("G", T))
        peer.beside().heartbeat("b", consumer("G", T))
        assert bool(peer.connection.pushed) is wanted


def test_a_groups_connections_are_shown_with_what_they_subscribe_to(peer: Peer) -> None:
    """Each channel with its client's id, language and version; the group's consume type and subscriptions.

    Lockstep's clients are told the ages of the first and the last heartbeat too.
    """
    peer.heartbeat("a", consumer("G", T))
    peer.now_ms += 30_000
    peer.heartbeat("a", consumer("G", T))
    beside = peer.beside()
    beside.now_ms = peer.now_ms
    beside.heartbeat("b", consumer("G", T))
    peer.now_ms += 1000
    ages = {"a": (31_000, 1000), "b": (1000, 1000)} if peer.encoding == SerializeType.MSGPACK else {}
    reply = peer.answer(R.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader("G"))
    assert decode_body(ConsumerConnection, reply.body, peer.encoding) == ConsumerConnection(
        (
            Connection("a", "127.0.0.1:50000", LanguageCode.PYTHON, 409, *ages.get("a", ())),
            Connection("b", "127.0.0.1:50001", LanguageCode.PYTHON, 409, *ages.get("b", ())),
        ),
        {"T": T},
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )


def test_a_group_without_members_is_not_online(peer: Peer) -> None:
    """CONSUMER_NOT_ONLINE, in RocketMQ's words, also when it was there before."""
    peer.heartbeat("a", consumer("G", T))
    peer.broker.on_closed(peer.connection)
    reply = peer.answer(R.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader("G"))
    assert (reply.code, reply.remark) == (C.CONSUMER_NOT_ONLINE, "the consumer group[G] not online")


def test_producers_are_listed_by_group_and_all_together(peer: Peer) -> None:
    """A group without producers is an error of the one request, and absent in the other's reply."""
    peer.answer(R.HEART_BEAT, None, heartbeat_of("p", producers=("PG",)))
    reply = peer.answer(R.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequestHeader("PG"))
    connection = Connection("p", "127.0.0.1:50000", LanguageCode.PYTHON, 409)
    assert decode_body(ProducerConnection, reply.body, peer.encoding) == ProducerConnection((connection,))
    unknown = peer.answer(R.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequestHeader("nobody"))
    assert (unknown.code, unknown.remark) == (C.SYSTEM_ERROR, "the producer group[nobody] not exist")
    table = decode_body(ProducerTable, peer.answer(R.GET_ALL_PRODUCER_INFO).body, peer.encoding)
    assert table.data == {"PG": (ProducerInfo("p", "/127.0.0.1:50000", LanguageCode.PYTHON, 409, NOW_MS),)}
