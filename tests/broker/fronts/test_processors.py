"""Locks, offsets, clients and administration, through the codecs (wire.md 2.4, 7, 8, 9)."""

from typing import Any

import pytest

from lockstep.protocol.bodies.broker import ConsumerGroupList, ConsumerIdList
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody, LockTableBody
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import (
    GetConsumerListByGroupRequestHeader,
    ListLocksRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.helpers import NOW_MS, Peer, consumer, heartbeat_of, queues_of

R, C = RequestCode, ResponseCode
T = SubscriptionData.parse("T", "*", 1)


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


# Locks ------------------------------------------------------------------------------------------------------------


def lock(peer: Peer, client_id: str, count: int = 2) -> int:
    """How many of the queues are granted."""
    reply = peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", client_id, queues_of("T", count)))
    assert (reply.code, reply.ext_fields) == (0, None)
    return len(decode_body(LockOkBody, reply.body, peer.encoding).lock_ok_mq_set)


def test_locks_are_granted_refused_and_taken_over_and_each_is_a_log_line(peer: Peer) -> None:
    """One event a queue; renewals only at debug level; an answer without queues is no error."""
    assert lock(peer, "a") == 2
    peer.now_ms += 20_000
    assert lock(peer, "a") == 2
    peer.now_ms += 60_000
    assert lock(peer, "b") == 0
    peer.now_ms += 1
    assert lock(peer, "b", 3) == 3
    assert peer.log.names() == [
        *["lock_granted"] * 2,
        *["lock_refused"] * 2,
        *["lock_taken_over"] * 2,
        "lock_granted",
    ]
    assert peer.log.events[4][2] == {
        "group": "G",
        "queue": "T@broker-a:0",
        "client_id": "b",
        "from_client_id": "a",
        "age_ms": 60_001,
    }


def test_an_owner_that_comes_too_late_takes_over_from_nobody(peer: Peer) -> None:
    """Its lock had expired and no other client asked meanwhile: this is a separate log event, with the age."""
    lock(peer, "a", 1)
    peer.now_ms += 60_001
    assert lock(peer, "a", 1) == 1
    assert peer.log.names() == ["lock_granted", "lock_reacquired_by_owner"]
    assert peer.log.events[1][2] == {"group": "G", "queue": "T@broker-a:0", "client_id": "a", "age_ms": 60_001}


def test_renewals_are_logged_at_debug_level() -> None:
    """When somebody asked for that level."""
    peer = Peer(log_debug=True)
    lock(peer, "a", 1)
    lock(peer, "a", 1)
    assert peer.log.names("debug") == ["lock_renewed"]


def test_locks_of_many_queues_are_one_log_line_each_outcome(peer: Peer) -> None:
    """Up to 100 of one outcome have an event each; more are counted in one event. Unlocks likewise."""
    lock(peer, "a", 100)
    assert peer.log.names() == ["lock_granted"] * 100
    peer.log.events.clear()
    lock(peer, "a", 300)
    peer.answer(R.UNLOCK_BATCH_MQ, None, LockBatchBody("G", "b", queues_of("T", 300)))
    peer.answer(R.UNLOCK_BATCH_MQ, None, LockBatchBody("G", "a", queues_of("T", 300)))
    facts = {"group": "G", "client_id": "a"}
    assert peer.log.events == [
        ("info", "locks_granted", facts | {"count": 200, "first": "T@broker-a:100"}),
        ("info", "locks_released", {"group": "G", "client_id": "b", "count": 0, "ignored_count": 300}),
        ("info", "locks_released", facts | {"count": 300, "ignored_count": 0}),
    ]


def test_a_lock_request_has_a_bound_and_so_has_the_table() -> None:
    """Too many queues or too long a name are an error that says the limit; a full table grants nothing, in one line."""
    peer = Peer(lock_queues_per_request_max=3, lock_entries_max=2)
    assert lock(peer, "a", 3) == 2
    (line,) = [fields for _, event, fields in peer.log.events if event == "lock_table_full"]
    assert line == {"group": "G", "client_id": "a", "count": 1, "first": "T@broker-a:2", "entries": 2}
    for code in (R.LOCK_BATCH_MQ, R.UNLOCK_BATCH_MQ):
        with pytest.raises(BodyError, match="4 queues in one request; at most 3 are allowed"):
            peer.answer(code, None, LockBatchBody("G", "a", queues_of("T", 4)))
        with pytest.raises(BodyError, match="topic has 256 characters; at most 255"):
            peer.answer(code, None, LockBatchBody("G", "a", queues_of("T" * 256, 1)))


def test_a_lock_list_too_long_for_one_answer_is_asked_for_by_group() -> None:
    """Above the limit of a group the whole table is refused, and the remark says to ask by group."""
    peer = Peer(lock_entries_per_group_max=2)
    lock(peer, "a", 2)
    peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("H", "a", queues_of("T", 1)))
    refused = peer.answer(R.LIST_LOCKS, ListLocksRequestHeader(None))
    assert (refused.code, refused.remark) == (
        C.SYSTEM_ERROR,
        "3 locks are too many for one answer (at most 2); name a group",
    )
    assert peer.answer(R.LIST_LOCKS, ListLocksRequestHeader("G")).code == C.SUCCESS


def test_unlock_frees_what_the_caller_owns(peer: Peer) -> None:
    """Another's unlock is answered, logged and ignored."""
    lock(peer, "a", 1)
    for client_id in ("b", "a"):
        body = LockBatchBody("G", client_id, queues_of("T", 1))
        assert peer.answer(R.UNLOCK_BATCH_MQ, None, body).body == b""
    assert peer.log.names()[1:] == ["unlock_ignored", "lock_released"]
    assert lock(peer, "b", 1) == 1


def test_locks_outlive_the_connection_of_their_owner(peer: Peer) -> None:
    """Neither a close nor an unregistration frees a queue (wire.md 7.2)."""
    lock(peer, "a", 1)
    peer.heartbeat("a", consumer("G", T))
    peer.answer(R.UNREGISTER_CLIENT, UnregisterClientRequestHeader("a", None, "G"))
    peer.broker.on_closed(peer.connection)
    assert lock(peer.beside(), "b", 1) == 0


def test_the_lock_table_is_listed(peer: Peer) -> None:
    """Of all groups or of one, with the remaining life of each lock."""
    lock(peer, "a")
    peer.now_ms += 1000
    reply = peer.answer(R.LIST_LOCKS, ListLocksRequestHeader())
    rows = decode_body(LockTableBody, reply.body, peer.encoding).rows
    assert [(row.queue.queue_id, row.client_id, row.age_ms, row.remaining_ms) for row in rows] == [
        (0, "a", 1000, 59_000),
        (1, "a", 1000, 59_000),
    ]
    reply = peer.answer(R.LIST_LOCKS, ListLocksRequestHeader("nobody"))
    assert decode_body(LockTableBody, reply.body, peer.encoding).rows == ()


# Offsets ----------------------------------------------------------------------------------------------------------


def offset(reply: RemotingCommand) -> int:
    assert reply.code == 0
    return reply.decode_header(OffsetResponseHeader).offset


def test_offsets_are_stored_and_queried(peer: Peer) -> None:
    """Two-way and one-way; a lower one is stored and logged as a warning."""
    peer.make_topics("T")
    query = QueryConsumerOffsetRequestHeader("G", "T", 0)
    assert offset(peer.answer(R.QUERY_CONSUMER_OFFSET, query)) == 0
    assert peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", 0, 7)).code == 0
    assert offset(peer.answer(R.QUERY_CONSUMER_OFFSET, query)) == 7
    assert peer.log.names() == []
    peer.call(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", 0, 3), flag=2)
    assert offset(peer.answer(R.QUERY_CONSUMER_OFFSET, query)) == 3
    assert peer.log.names("warning") == ["offset_committed_backwards"]


def test_a_json_update_is_answered_with_empty_ext_fields() -> None:
    """As RocketMQ does."""
    peer = Peer()
    peer.make_topics("T")
    reply = peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", 0, 7))
    assert reply.ext_fields == {}


SMALL: dict[str, Any] = {"memory_limit_bytes": 200_000, "segment_bytes": 1000, "max_message_bytes": 1000}


def test_bounds_of_queues_and_the_min_offset_rule() -> None:
    """A group that is new to a queue whose first messages were dropped gets QUERY_NOT_FOUND, and no other error."""
    peer = Peer(SerializeType.MSGPACK, **SMALL)
    peer.send_many(2000)
    low = offset(peer.answer(R.GET_MIN_OFFSET, QueueRequestHeader("T", 0)))
    assert 0 < low < 2000
    assert offset(peer.answer(R.GET_MAX_OFFSET, QueueRequestHeader("T", 0))) == 2000
    reply = peer.answer(R.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader("G", "T", 0))
    assert reply.code == C.QUERY_NOT_FOUND


def test_unknown_queues_answer_zero(peer: Peer) -> None:
    """And no earliest time."""
    for code in (R.GET_MIN_OFFSET, R.GET_MAX_OFFSET):
        assert offset(peer.answer(code, QueueRequestHeader("nowhere", 9))) == 0
    assert offset(peer.answer(R.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader("nowhere", 0, 5))) == 0
    reply = peer.answer(R.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader("nowhere", 9))
    assert reply.decode_header(TimestampResponseHeader).timestamp == -1


def test_times_of_messages(peer: Peer) -> None:
    """The earliest, and the one nearest to a time."""
    for passed_ms in (0, 1000, 1000):
        peer.now_ms += passed_ms
        peer.send()
    reply = peer.answer(R.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader("T", 0))
    assert reply.decode_header(TimestampResponseHeader).timestamp == NOW_MS
    header = SearchOffsetRequestHeader("T", 0, NOW_MS + 1400)
    assert offset(peer.answer(R.SEARCH_OFFSET_BY_TIMESTAMP, header)) == 1


def test_messages_dropped_ahead_of_a_group_are_logged_and_counted() -> None:
    """Exactly those between its committed offset and the new minimum; groups that are ahead are not named."""
    peer = Peer(SerializeType.MSGPACK, **SMALL)
    peer.send_many(10)
    for group, committed in [("behind", 4), ("ahead", 10**6)]:
        peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, "T", 0, committed))
    peer.send_many(2000)
    low = peer.broker.messages.store.min_offset("T", 0)
    assert peer.broker.messages.dropped.ahead_count == low - 4
    assert {fields["group"] for level, _, fields in peer.log.events if level == "warning"} == {"behind"}


# Clients ----------------------------------------------------------------------------------------------------------


def members(peer: Peer, group: str = "G") -> tuple[str, ...]:
    reply = peer.answer(R.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(group))
    return decode_body(ConsumerIdList, reply.body, peer.encoding).consumer_id_list if reply.code == 0 else ()


def notices(peer: Peer) -> list[str]:
    """Groups of the notices that this client got since the last call."""
    pushed = peer.connection.pushed.copy()
    peer.connection.pushed.clear()
    assert all(command.code == R.NOTIFY_CONSUMER_IDS_CHANGED for command in pushed)
    return [command.decode_header(NotifyConsumerIdsChangedRequestHeader).consumer_group for command in pushed]


def test_a_new_member_is_told_of_to_everybody_itself_included(peer: Peer) -> None:
    """One notice to each; an equal heartbeat sends none."""
    other = peer.beside()
    assert peer.heartbeat("a", consumer("G", T)).version == 409
    assert notices(peer) == ["G"]
    other.heartbeat("b", consumer("G", T))
    assert (notices(peer), notices(other)) == (["G"], ["G"])
    peer.heartbeat("a", consumer("G", T))
    assert (notices(peer), notices(other)) == ([], [])
    assert members(peer) == ("a", "b")


def test_a_heartbeat_makes_the_retry_topic_before_its_answer(peer: Peer) -> None:
    """The same call registers the topic with name servers."""
    peer.heartbeat("a", consumer("G", T))
    config = peer.broker.catalog.topics.get("%RETRY%G")
    assert config is not None
    assert (config.read_queue_nums, config.perm, peer.topic_changes) == (1, 6, 1)


def test_departures_are_told_to_those_who_stay(peer: Peer) -> None:
    """By unregistration and by a closed connection; a group without members answers SYSTEM_ERROR."""
    other = peer.beside()
    for each, client_id in [(peer, "a"), (other, "b")]:
        each.heartbeat(client_id, consumer("G", T))
    notices(peer)
    other.answer(R.UNREGISTER_CLIENT, UnregisterClientRequestHeader("b", None, "G"))
    assert (notices(peer), members(peer)) == (["G"], ("a",))
    other.heartbeat("b", consumer("G", T))
    notices(peer)
    peer.broker.on_closed(other.connection)
    assert (notices(peer), members(peer)) == (["G"], ("a",))
    peer.broker.on_closed(peer.connection)
    reply = peer.answer(R.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader("G"))
    assert (reply.code, reply.body) == (C.SYSTEM_ERROR, b"")


def test_notices_can_be_turned_off(peer: Peer) -> None:
    """By notifyConsumerIdsChangedEnable."""
    quiet = Peer(peer.encoding, notify_consumer_ids_changed=False)
    quiet.heartbeat("a", consumer("G", T))
    assert notices(quiet) == []


def test_a_client_without_a_heartbeat_for_120_seconds_is_closed_and_its_group_told() -> None:
    """At 120 000 ms it is still there; a producer's silence counts the same."""
    peer = Peer()
    other, producer = peer.beside(), peer.beside()
    other.heartbeat("b", consumer("G", T))
    producer.answer(R.HEART_BEAT, None, heartbeat_of("p", producers=("PG",)))
    peer.now_ms += 60_000
    peer.heartbeat("a", consumer("G", T))
    notices(peer)
    peer.broker.scan(NOW_MS + 120_000)
    assert members(peer) == ("b", "a")
    peer.broker.scan(NOW_MS + 120_001)
    assert other.connection.aborted
    assert producer.connection.aborted
    assert (notices(peer), members(peer)) == (["G"], ("a",))


def test_producers_register_and_unregister(peer: Peer) -> None:
    """By heartbeat and by code 35."""
    peer.answer(R.HEART_BEAT, None, heartbeat_of("p", producers=("PG", "CLIENT_INNER_PRODUCER")))
    assert list(peer.broker.members.producers.groups) == ["PG", "CLIENT_INNER_PRODUCER"]
    peer.answer(R.UNREGISTER_CLIENT, UnregisterClientRequestHeader("p", "PG"))
    assert list(peer.broker.members.producers.groups) == ["CLIENT_INNER_PRODUCER"]


def test_a_group_with_an_impossible_name_is_left_out_and_the_others_served(peer: Peer) -> None:
    """The heartbeat itself is answered with success, as RocketMQ does."""
    assert peer.heartbeat("a", consumer("no good", T), consumer("G", T)).code == 0
    assert list(peer.broker.members.consumers.groups) == ["G"]
    assert peer.broker.catalog.topics.get("%RETRY%no good") is None


def test_groups_are_listed_with_the_topics_they_know(peer: Peer) -> None:
    """Those online and those that only left offsets."""
    peer.make_topics("T", "old")
    peer.heartbeat("a", consumer("G", T))
    for group, topic in [("G", "old"), ("offline", "T")]:
        peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, topic, 0, 1))
    body = decode_body(ConsumerGroupList, peer.answer(R.LIST_CONSUMER_GROUPS).body, peer.encoding)
    assert body.groups == {"G": ("T", "old"), "offline": ("T",)}


@pytest.mark.parametrize(("expression_type", "code"), [("TAG", 0), ("", 0), ("SQL92", 1), ("REGEX", 1)])
def test_a_client_may_ask_whether_it_can_be_filtered_for(expression_type: str, code: int) -> None:
    """CHECK_CLIENT_CONFIG: tags are allowed; other expressions only when the broker's setting allows them."""
    body = (
        b'{"clientId":"a","group":"G","subscriptionData":{"topic":"T","subString":"x","expressionType":"%s"}}'
        % expression_type.encode()
    )
    assert Peer().answer(R.CHECK_CLIENT_CONFIG, None, body).code == code


def test_a_client_that_asks_for_no_subscription_may_have_it(peer: Peer) -> None:
    """CHECK_CLIENT_CONFIG with nothing in it is a success, as in RocketMQ."""
    for body in (b"\x80",) if peer.encoding == SerializeType.MSGPACK else (b"{}", b"null", b"[]"):
        assert peer.answer(R.CHECK_CLIENT_CONFIG, None, body).code == 0


def test_a_queue_that_is_asked_for_twice_is_locked_once(peer: Peer) -> None:
    """The queues of a lock request are a set; a queue id must be one of Java's ints."""
    (queue,) = queues_of("T", 1)
    reply = peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "a", (queue, queue)))
    assert decode_body(LockOkBody, reply.body, peer.encoding).lock_ok_mq_set == (queue,)
    with pytest.raises(BodyError, match="32 bits"):
        peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "a", (queue._replace(queue_id=2**31),)))


# Administration ---------------------------------------------------------------------------------------------------


def test_an_unknown_request_code_is_answered_with_3(peer: Peer) -> None:
    """By name, where it has one."""
    reply = peer.answer(9999)
    assert (reply.code, reply.remark) == (C.REQUEST_CODE_NOT_SUPPORTED, "request code 9999 is not supported here")
    assert peer.answer(R.GET_ROUTEINFO_BY_TOPIC).code == C.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize("group", ["G", "nobody"])
def test_replies_with_a_header_class_have_ext_fields(group: str) -> None:
    """Empty ones too, for every code (wire.md 1.2); a reply without a header class has none."""
    peer = Peer()
    peer.heartbeat("a", consumer("G", T))
    reply = peer.answer(R.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(group))
    assert reply.ext_fields == {}
    assert peer.answer(R.HEART_BEAT, None, heartbeat_of("a", consumer("G", T))).ext_fields is None
