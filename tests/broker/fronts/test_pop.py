"""POP over remoting: fields, codes, remarks and receipts as RocketMQ 5.5's broker answers (docs/wire.md 18)."""

from typing import Any
from zlib import crc32

import pytest

from lockstep.broker.core.pop import forsake
from lockstep.broker.core.revive import run_pops
from lockstep.broker.fronts.remoting import pop as pop_front
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.pop import (
    AssignmentsBody,
    BatchAck,
    BatchAckBody,
    DeliveryRow,
    DeliveryTableBody,
    QueryAssignmentBody,
    RequestMode,
    RequestModesBody,
)
from lockstep.protocol.codes import PopResponseCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.headers.messaging import UnregisterClientRequestHeader
from lockstep.protocol.headers.pop import (
    AckRequestHeader,
    ChangeInvisibleRequestHeader,
    ChangeInvisibleResponseHeader,
    ListDeliveriesRequestHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopRequestHeader,
    PopResponseHeader,
)
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.receipts import Receipt
from lockstep.store import StoreFull
from tests.broker.helpers import NOW_MS, Peer, consumer

C, R = ResponseCode, RequestCode
FURTHER = "https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
KEY = "__SHARDINGKEY\x01"


# A binary header has 16 bits for the code, so it cannot carry these requests.
@pytest.fixture(params=[SerializeType.JSON, SerializeType.MSGPACK])
def peer(request: pytest.FixtureRequest) -> Peer:
    return Peer(request.param)


def pop_header(**fields: Any) -> PopRequestHeader:
    header = PopRequestHeader("G", "T", -1, 32, 10_000, 0, 0, 0, "TAG", "*", True)
    return header._replace(**fields)


def pop(peer: Peer, **fields: Any) -> tuple[RemotingCommand, PopResponseHeader]:
    reply = peer.answer(R.POP_MESSAGE, pop_header(**fields))
    return reply, reply.decode_header(PopResponseHeader)


def bodies(reply: RemotingCommand) -> list[bytes]:
    return [message.body for message in decode_messages(reply.body)]


def ack(peer: Peer, popped: PopResponseHeader, offset: int, **fields: Any) -> RemotingCommand:
    queue_id = fields.get("queue_id", 0)
    start = int((popped.start_offset_info or "0 0 0").split(" ")[2])
    receipt = Receipt(start, popped.pop_time, popped.invisible_time, popped.revive_qid, 0, "broker-a", queue_id, offset)
    header = AckRequestHeader("G", "T", queue_id, receipt.encode(), offset)
    return peer.answer(R.ACK_MESSAGE, header._replace(**fields))


def test_the_answer_names_queues_offsets_and_counts(peer: Peer) -> None:
    peer.send_many(3)
    reply, popped = pop(peer)
    assert (reply.code, reply.remark, bodies(reply)) == (C.SUCCESS, "FOUND", [b"0", b"1", b"2"])
    assert popped == (NOW_MS, 10_000, 999, 0, "0 0 0", "0 0 0,1,2", "0 0 0", None)
    # The invisible time is over: all come again, for the second time, with one that is new.
    peer.now_ms += 10_000
    peer.send()
    _, popped = pop(peer)
    assert popped.order_count_info == "0 qo0%0 1;0 qo0%1 1;0 qo0%2 1;0 0 0"
    peer.now_ms += 10_000
    _, popped = pop(peer, max_msg_nums=2)
    assert popped.order_count_info == "0 qo0%0 2;0 qo0%1 2;0 0 2"
    assert popped.rest_num == 2


def test_acknowledged_in_any_order(peer: Peer) -> None:
    """The group's offset is the first message that is not acknowledged."""
    peer.send_many(4)
    _, popped = pop(peer)
    committed = []
    for offset in (3, 1, 0, 2):
        reply = ack(peer, popped, offset)
        assert (reply.code, reply.remark) == (C.SUCCESS, None)
        committed.append(peer.broker.catalog.offsets.query("G", "T", 0))
    assert committed == [0, 0, 2, 4]
    # Twice, and stale: both are answered with success.
    assert ack(peer, popped, 0).code == C.SUCCESS


def test_nothing_to_give(peer: Peer) -> None:
    peer.make_topics("T")
    reply, popped = pop(peer)
    assert (reply.code, reply.remark) == (PopResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert (popped.start_offset_info, popped.msg_offset_info, popped.order_count_info) == ("", "", "")


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        (
            {"born_time": NOW_MS - 60_000, "poll_time": 2000},
            210,
            "the broker[127.0.0.1] pop message is timeout too much",
        ),
        ({"max_msg_nums": 33}, 29, "the broker[127.0.0.1] pop message's num is greater than 32"),
        ({"topic": "nowhere"}, C.TOPIC_NOT_EXIST, "topic[nowhere] not exist, apply first please! \nSee " + FURTHER),
        (
            {"queue_id": 9},
            29,
            "queueId[9] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:50000]",
        ),
        ({"consumer_group": "no good"}, C.SUBSCRIPTION_GROUP_NOT_EXIST, None),
        ({"exp": " || "}, C.SUBSCRIPTION_PARSE_FAILED, None),
    ],
)
def test_what_may_not_be_popped(peer: Peer, fields: dict[str, Any], code: int, remark: str | None) -> None:
    peer.make_topics("T")
    reply = peer.answer(R.POP_MESSAGE, pop_header(**fields))
    assert reply.code == code
    assert remark is None or reply.remark == remark


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"offset": 99_999}, C.NO_MESSAGE, "offset is illegal, key:T@0, commit:99999, store:0~2"),
        ({"queue_id": 77}, C.MESSAGE_ILLEGAL, None),
        ({"topic": "nowhere"}, C.TOPIC_NOT_EXIST, None),
    ],
)
def test_what_cannot_be_acknowledged(peer: Peer, fields: dict[str, Any], code: int, remark: str | None) -> None:
    peer.send_many(2)
    _, popped = pop(peer)
    header = AckRequestHeader("G", "T", 0, Receipt(0, NOW_MS, 1, 999, 0, "b", 0, 0).encode(), 0)
    reply = peer.answer(R.ACK_MESSAGE, header._replace(**fields))
    assert reply.code == code
    assert remark is None or reply.remark == remark
    assert popped.pop_time == NOW_MS


@pytest.mark.parametrize("receipt", ["", "1 2 3", "a b c d e f g h", "1 2 3 4 5 b 7 " + 30 * "9"])
def test_an_unreadable_receipt(peer: Peer, receipt: str) -> None:
    """The endpoint answers SYSTEM_ERROR with the text."""
    peer.send()
    with pytest.raises(RemoteProtocolError, match="receipt"):
        peer.answer(R.ACK_MESSAGE, AckRequestHeader("G", "T", 0, receipt or "x", 0))


def test_an_invisible_time_can_be_changed(peer: Peer) -> None:
    peer.send_many(1)
    _, popped = pop(peer)
    receipt = Receipt(0, popped.pop_time, 10_000, 999, 0, "broker-a", 0, 0)
    peer.now_ms += 4000
    header = ChangeInvisibleRequestHeader("G", "T", 0, receipt.encode(), 0, 3000)
    reply = peer.answer(R.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert (reply.code, reply.remark) == (C.SUCCESS, "not set any response code")
    assert reply.decode_header(ChangeInvisibleResponseHeader) == (NOW_MS, 7000, 999)
    peer.now_ms += 2999
    assert pop(peer)[0].code == 210
    peer.now_ms += 1
    assert pop(peer)[0].code == C.SUCCESS


class TestHeld:
    """Calls that wait. The server runs `run_pops` when they are due, and after each read."""

    def test_a_message_ends_the_wait(self, peer: Peer) -> None:
        peer.make_topics("T")
        waiting = peer.beside()
        assert waiting.call(R.POP_MESSAGE, pop_header(poll_time=5000, born_time=NOW_MS)) is None
        assert peer.broker.messages.pops.next_due_ms == NOW_MS + 5000
        peer.send()
        run_pops(peer.broker, peer.now_ms)
        (reply,) = waiting.connection.replies
        assert bodies(reply) == [b"x"]

    def test_the_wait_ends(self, peer: Peer) -> None:
        peer.make_topics("T")
        assert peer.call(R.POP_MESSAGE, pop_header(poll_time=5000, born_time=NOW_MS)) is None
        run_pops(peer.broker, NOW_MS + 4999)
        assert not peer.connection.replies
        run_pops(peer.broker, NOW_MS + 5000)
        assert [reply.code for reply in peer.connection.replies] == [210]
        assert peer.broker.messages.pops.next_due_ms is None

    def test_an_acknowledgement_ends_the_wait(self, peer: Peer) -> None:
        peer.send_many(2)
        _, popped = pop(peer, max_msg_nums=1)
        waiting = peer.beside()
        assert waiting.call(R.POP_MESSAGE, pop_header(poll_time=5000, born_time=NOW_MS)) is None
        ack(peer, popped, 0)
        run_pops(peer.broker, peer.now_ms)
        assert [bodies(reply) for reply in waiting.connection.replies] == [[b"1"]]

    def test_the_end_of_an_invisible_time_ends_the_wait(self, peer: Peer) -> None:
        peer.send_many(1)
        waiting = peer.beside()
        pop(peer, invisible_time=1000)
        assert waiting.call(R.POP_MESSAGE, pop_header(poll_time=5000, born_time=NOW_MS)) is None
        assert peer.broker.messages.pops.next_due_ms == NOW_MS + 1000
        run_pops(peer.broker, NOW_MS + 1000)
        assert [bodies(reply) for reply in waiting.connection.replies] == [[b"0"]]

    def test_too_many_wait(self) -> None:
        peer = Peer(held_pulls_per_connection_max=1)
        peer.make_topics("T")
        assert peer.call(R.POP_MESSAGE, pop_header(poll_time=5000, born_time=NOW_MS)) is None
        assert peer.answer(R.POP_MESSAGE, pop_header(poll_time=5000, born_time=NOW_MS)).code == 209
        polling = peer.answer(R.POLLING_INFO, PollingInfoRequestHeader("G", "T", -1))
        assert polling.decode_header(PollingInfoResponseHeader) == (1,)
        peer.broker.on_closed(peer.connection)
        assert len(peer.broker.messages.pops.held) == 0

    def test_a_client_that_leaves_gets_nothing_more(self, peer: Peer) -> None:
        """Its calls for the group end now, before they are given what comes; those of others wait on."""
        peer.make_topics("T")
        other = peer.beside()
        calls = [pop_header(poll_time=5000, born_time=NOW_MS), pop_header(poll_time=5000, consumer_group="other")]
        for one in (peer, other):
            assert [one.call(R.POP_MESSAGE, header) for header in calls] == [None, None]
        notification = NotificationRequestHeader("G", "T", 0, 5000, NOW_MS, True)
        assert peer.call(R.NOTIFICATION, notification) is None
        assert peer.answer(R.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c1", None, "G")).code == C.SUCCESS
        assert [(reply.code, reply.remark) for reply in peer.connection.replies] == [
            (210, "NO_MESSAGE_IN_QUEUE"),
            (0, "not set any response code"),
        ]
        peer.send()
        run_pops(peer.broker, peer.now_ms)
        assert [bodies(reply) for reply in other.connection.replies] == [[b"x"]]
        peer.broker.on_closed(peer.connection)
        assert len(peer.broker.messages.pops.held) == 1

    def test_a_notification(self, peer: Peer) -> None:
        peer.make_topics("T")
        header = NotificationRequestHeader("G", "T", 0, 5000, NOW_MS, True)
        assert peer.call(R.NOTIFICATION, header) is None
        peer.send()
        run_pops(peer.broker, peer.now_ms)
        assert [r.decode_header(NotificationResponseHeader) for r in peer.connection.replies] == [(True, False)]
        pop(peer)
        assert peer.answer(R.NOTIFICATION, header._replace(poll_time=0)).decode_header(NotificationResponseHeader) == (
            False,
            False,
        )


def test_a_peek_delivers_nothing(peer: Peer) -> None:
    peer.send_many(3)
    reply = peer.answer(R.PEEK_MESSAGE, PeekRequestHeader("G", "T", 0, 2))
    assert bodies(reply) == [b"0", b"1"]
    assert reply.decode_header(PopResponseHeader).rest_num == 3
    assert bodies(pop(peer)[0]) == [b"0", b"1", b"2"]


def deliveries(peer: Peer, group: str = "G") -> list[DeliveryRow]:
    return list(listed(peer, group).rows)


def listed(peer: Peer, group: str = "G") -> DeliveryTableBody:
    reply = peer.answer(R.LIST_DELIVERIES, ListDeliveriesRequestHeader(group))
    assert reply.code == C.SUCCESS
    return decode_body(DeliveryTableBody, reply.body, reply.serialize_type)


class TestDeliveriesAreListed:
    """Of a group in order: what was delivered and is not acknowledged, with its newest delivery."""

    def test_of_rocketmqs_way(self, peer: Peer) -> None:
        peer.send_many(3)
        pop(peer)
        peer.now_ms += 10_000
        _, popped = pop(peer)
        ack(peer, popped, 1)
        receipt = Receipt(0, popped.pop_time, 10_000, 999, 0, "broker-a", 0, 2)
        peer.answer(
            R.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleRequestHeader("G", "T", 0, receipt.encode(), 2, 30_000)
        )
        queue, now_ms = MessageQueue("T", "broker-a", 0), peer.now_ms
        assert deliveries(peer) == [
            DeliveryRow(queue, 0, now_ms, now_ms + 10_000, 1, None, peer.connection.address),
            DeliveryRow(queue, 2, now_ms, now_ms + 30_000, 1, None, peer.connection.address),
        ]
        assert deliveries(peer, "another") == []

    def test_of_the_fenced_way(self) -> None:
        """What waits for its key was not delivered."""
        peer = Peer(lock_mode="fenced")
        for key in "abb":
            peer.send(properties=KEY + key)
        peer.send()
        _, popped = pop(peer, max_msg_nums=1)
        other = peer.beside()
        pop(other, max_msg_nums=1)
        pop(peer.beside("h:3"))
        queue, until_ms = MessageQueue("T", "broker-a", 0), NOW_MS + 10_000
        a, b = crc32(b"a"), crc32(b"b")
        assert deliveries(peer) == [
            DeliveryRow(queue, 0, NOW_MS, until_ms, 0, a, peer.connection.address),
            DeliveryRow(queue, 1, NOW_MS + 1, until_ms, 0, b, other.connection.address),
            DeliveryRow(queue, 3, NOW_MS + 2, until_ms, 0, None, "h:3"),
        ]
        ack(peer, popped, 0)
        assert [row.queue_offset for row in deliveries(peer)] == [1, 3]


class TestWithoutOrder:
    """Each message by itself: what is not acknowledged comes again from the group's retry topic."""

    def test_others_get_the_next_messages(self, peer: Peer) -> None:
        peer.send_many(3)
        reply, popped = pop(peer, order=False, max_msg_nums=1)
        assert (bodies(reply), popped.revive_qid, popped.order_count_info) == ([b"0"], 0, None)
        reply, popped = pop(peer.beside(), order=False)
        assert (bodies(reply), popped.revive_qid) == ([b"1", b"2"], 1)

    def test_what_is_acknowledged_is_over(self, peer: Peer) -> None:
        peer.send_many(2)
        _, popped = pop(peer, order=False)
        assert peer.broker.catalog.offsets.query("G", "T", 0) == 0
        assert [ack(peer, popped, offset).code for offset in (0, 1)] == [C.SUCCESS] * 2
        assert peer.broker.catalog.offsets.query("G", "T", 0) == 2
        run_pops(peer.broker, NOW_MS + 60_000)
        assert pop(peer, order=False)[0].code == 210

    def test_what_is_not_acknowledged_comes_again(self, peer: Peer) -> None:
        peer.send_many(2, properties=KEY + "k")
        _, popped = pop(peer, order=False)
        ack(peer, popped, 1)
        assert peer.broker.messages.pops.next_due_ms == NOW_MS + 10_000
        peer.now_ms += 10_000
        run_pops(peer.broker, peer.now_ms)
        reply, popped = pop(peer, order=False)
        (message,) = decode_messages(reply.body)
        assert (message.body, message.topic, message.reconsume_times) == (b"0", "T", 1)
        assert (popped.start_offset_info, popped.msg_offset_info) == ("1 0 0", "1 0 0")
        properties = message.properties
        assert properties["POP_CK"] == f"0 {peer.now_ms} 10000 1 1 broker-a 0 0"
        assert (properties["1ST_POP_TIME"], properties["ORIGIN_GROUP"]) == (str(NOW_MS), "G")
        receipt = Receipt.parse(properties["POP_CK"])
        header = AckRequestHeader("G", "T", 0, receipt.encode(), 0)
        assert peer.answer(R.ACK_MESSAGE, header).code == C.SUCCESS
        run_pops(peer.broker, peer.now_ms + 60_000)
        assert pop(peer, order=False)[0].code == 210

    def test_a_waiting_pop_gets_what_comes_again(self, peer: Peer) -> None:
        """It waited for the end of its own time, for the message came by another topic."""
        peer.send_many(1)
        pop(peer, order=False)
        waiter = peer.beside()
        waiter.call(R.POP_MESSAGE, pop_header(order=False, poll_time=20_000, born_time=NOW_MS))
        assert waiter.connection.replies == []
        run_pops(peer.broker, NOW_MS + 10_000)
        assert [bodies(reply) for reply in waiter.connection.replies] == [[b"0"]]

    def test_after_the_last_retry_it_is_a_dead_letter(self, peer: Peer) -> None:
        peer.send()
        for _ in range(17):
            assert len(bodies(pop(peer, order=False)[0])) == 1
            peer.now_ms += 10_000
            run_pops(peer.broker, peer.now_ms)
        assert pop(peer, order=False)[0].code == 210
        assert peer.broker.messages.store.max_offset("%DLQ%G", 0) == 1

    def test_a_longer_invisible_time_is_a_new_delivery(self, peer: Peer) -> None:
        peer.send_many(2)
        _, popped = pop(peer, order=False)
        receipt = Receipt(0, popped.pop_time, 10_000, 0, 0, "broker-a", 0, 1)
        peer.now_ms += 1000
        header = ChangeInvisibleRequestHeader("G", "T", 0, receipt.encode(), 1, 30_000)
        changed = peer.answer(R.CHANGE_MESSAGE_INVISIBLETIME, header).decode_header(ChangeInvisibleResponseHeader)
        assert changed == (NOW_MS + 1000, 30_000, 0)
        peer.now_ms = NOW_MS + 10_000
        run_pops(peer.broker, peer.now_ms)
        assert bodies(pop(peer, order=False)[0]) == [b"0"]

    def test_a_batch_of_acknowledgements(self, peer: Peer) -> None:
        peer.send_many(3)
        _, popped = pop(peer, order=False)
        batch = BatchAck("G", "T", "0", 0, 0, 0, popped.pop_time, 10_000, (0, 2))
        assert peer.answer(R.BATCH_ACK_MESSAGE, body=BatchAckBody("broker-a", (batch,))).code == C.SUCCESS
        peer.now_ms += 10_000
        run_pops(peer.broker, peer.now_ms)
        assert bodies(pop(peer, order=False)[0]) == [b"1"]


class TestFenced:
    def test_a_stale_acknowledgement_is_refused_and_counted(self) -> None:
        peer = Peer(lock_mode="fenced")
        peer.send_many(1)
        _, old = pop(peer)
        peer.now_ms += 10_000
        other = peer.beside()
        other.now_ms = peer.now_ms
        _, new = pop(other)
        reply = ack(peer, old, 0)
        assert reply.code == C.NO_MESSAGE
        told = listed(peer)
        assert told == DeliveryTableBody(told.rows, stale=1, stale_ms=peer.now_ms, topics=("T",))
        assert ack(peer, new, 0).code == C.SUCCESS

    def test_a_key_holds_up_no_other(self) -> None:
        peer = Peer(lock_mode="fenced")
        for key in "abab":
            peer.send(properties=KEY + key, body=key.encode())
        _, popped = pop(peer, max_msg_nums=1)
        assert bodies(pop(peer.beside())[0]) == [b"b", b"b"]
        ack(peer, popped, 0)
        assert bodies(pop(peer)[0]) == [b"a"]


class TestAssignments:
    """The broker shares the queues out, for clients that do not do it themselves."""

    def ask(self, peer: Peer, client: str = "c1", **fields: Any) -> list[tuple[int, str]] | None:
        asked = QueryAssignmentBody("T", "G", client)._replace(**fields)
        reply = peer.answer(R.QUERY_ASSIGNMENT, body=asked)
        assert reply.code == C.SUCCESS, reply.remark
        body = decode_body(AssignmentsBody, reply.body, reply.serialize_type)
        return None if body.assignments is None else [(one.queue.queue_id, one.mode) for one in body.assignments]

    def test_pulled_queues_are_shared(self, peer: Peer) -> None:
        assert self.ask(peer) is None
        peer.make_topics("T")
        assert self.ask(peer) is None
        peer.heartbeat("c1", consumer("G", SubscriptionData.parse("T", "*", 1)))
        peer.beside().heartbeat("c2", consumer("G", SubscriptionData.parse("T", "*", 1)))
        assert self.ask(peer) == [(0, "PULL"), (1, "PULL")]
        assert self.ask(peer, "c2", strategy_name="AVG_BY_CIRCLE") == [(1, "PULL"), (3, "PULL")]
        assert self.ask(peer, message_model="BROADCASTING") == [(n, "PULL") for n in range(4)]
        assert self.ask(peer, "a stranger") == []
        assert self.ask(peer, strategy_name="MINE") is None

    def test_popped_queues_are_everybodys_or_shared_with_some(self, peer: Peer) -> None:
        peer.make_topics("T")
        for number in range(4):
            peer.beside(f"h:{number}").heartbeat(f"c{number}", consumer("G", SubscriptionData.parse("T", "*", 1)))
        assert peer.answer(R.SET_MESSAGE_REQUEST_MODE, body=RequestMode("T", "G", "POP")).code == C.SUCCESS
        assert self.ask(peer) == [(-1, "POP")]
        peer.answer(R.SET_MESSAGE_REQUEST_MODE, body=RequestMode("T", "G", "POP", 2))
        assert self.ask(peer) == [(1, "POP"), (2, "POP"), (3, "POP")]
        reply = peer.answer(R.GET_ALL_MESSAGE_REQUEST_MODE)
        modes = decode_body(RequestModesBody, reply.body, reply.serialize_type).modes
        assert modes == {"T": {"G": RequestMode("T", "G", "POP", 2)}}

    def test_what_is_refused(self, peer: Peer) -> None:
        peer.make_topics("T")
        reply = peer.answer(R.SET_MESSAGE_REQUEST_MODE, body=RequestMode("%RETRY%G", "G", "POP"))
        assert (reply.code, reply.remark) == (C.NO_PERMISSION, "retry topic is not allowed to set mode")
        assert peer.answer(R.SET_MESSAGE_REQUEST_MODE, body=RequestMode("no good", "G", "POP")).code == C.SYSTEM_ERROR
        with pytest.raises(RemoteProtocolError, match="POP or PULL"):
            peer.answer(R.SET_MESSAGE_REQUEST_MODE, body=RequestMode("T", "G", "PUSH"))


class TestWhatOnceWentWrong:
    def test_a_change_in_the_millisecond_of_its_pop(self, peer: Peer) -> None:
        """Two deliveries had one name, and the message had no checkpoint any more."""
        peer.send_many(3)
        _, popped = pop(peer, order=False)
        header = ChangeInvisibleRequestHeader("G", "T", 0, receipt_of(popped, 0).encode(), 0, 10_000)
        changed = peer.answer(R.CHANGE_MESSAGE_INVISIBLETIME, header).decode_header(ChangeInvisibleResponseHeader)
        assert changed.pop_time == NOW_MS + 1
        peer.now_ms += 10_001
        run_pops(peer.broker, peer.now_ms)
        assert sorted(bodies(pop(peer, order=False)[0])) == [b"0", b"1", b"2"]

    def test_a_count_of_retries_that_cannot_rise(self, peer: Peer) -> None:
        """It stopped the revival of all other groups."""
        peer.send(reconsume_times=2**31 - 1)
        pop(peer, order=False)
        peer.send(body=b"good")
        pop(peer, order=False)
        run_pops(peer.broker, NOW_MS + 10_000)
        store = peer.broker.messages.store
        assert (store.max_offset("%DLQ%G", 0), store.max_offset("%RETRY%G_T", 0)) == (1, 1)

    def test_properties_that_leave_no_room(self, peer: Peer) -> None:
        peer.send(properties="p\x01" + "v" * 32_700)
        pop(peer, order=False)
        peer.now_ms += 10_000
        run_pops(peer.broker, peer.now_ms)
        (message,) = decode_messages(pop(peer, order=False)[0].body)
        assert (message.topic, message.reconsume_times) == ("T", 1)

    def test_names_too_long_for_a_retry_topic(self, peer: Peer) -> None:
        topic = "T" * 127
        peer.send(topic)
        assert pop(peer, order=False, topic=topic)[0].code == C.SUCCESS
        run_pops(peer.broker, NOW_MS + 10_000)
        assert peer.broker.messages.store.max_offset("%DLQ%G", 0) == 1

    @pytest.mark.parametrize("topic", ["rmq_sys_LOCKSTEP_POPS", "rmq_sys_REVIVE_LOG_DefaultCluster"])
    def test_nobody_sends_to_a_journal(self, peer: Peer, topic: str) -> None:
        assert peer.send(topic).code == C.NO_PERMISSION

    def test_nobody_fills_the_table_of_offsets(self, peer: Peer) -> None:
        peer.send_many(1)
        for number in range(5):
            header = AckRequestHeader(f"g{number}", "T", 0, Receipt(0, 1, 1, 999, 0, "b", 0, 0).encode(), 0)
            assert peer.answer(R.ACK_MESSAGE, header).code == C.SUCCESS
        assert len(peer.broker.catalog.offsets) == 0

    def test_a_batch_has_a_bound(self, peer: Peer) -> None:
        peer.send_many(1)
        batch = BatchAck("G", "T", "0", 0, 0, 0, NOW_MS, 1, tuple(range(3000)))
        assert peer.answer(R.BATCH_ACK_MESSAGE, body=BatchAckBody("b", (batch,))).code == C.SYSTEM_ERROR

    def test_a_heap_has_a_bound(self, peer: Peer) -> None:
        peer.send_many(1)
        _, popped = pop(peer, order=False)
        receipt = receipt_of(popped, 0)
        for _ in range(500):
            peer.now_ms += 1
            header = ChangeInvisibleRequestHeader("G", "T", 0, receipt.encode(), 0, 10_000)
            changed = peer.answer(R.CHANGE_MESSAGE_INVISIBLETIME, header).decode_header(ChangeInvisibleResponseHeader)
            receipt = receipt._replace(pop_ms=changed.pop_time)
        checkpoints = peer.broker.messages.pops.checkpoints
        assert len(checkpoints._heap) < 100
        assert len(checkpoints._queues["T", "G", 0].in_memory) < 100

    def test_a_full_store_answers_a_call_that_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also a fault of ours ends that call alone."""
        peer = Peer()
        peer.make_topics("T")
        first, second = peer.beside("h:1"), peer.beside("h:2")
        for one in (first, second):
            assert one.call(R.POP_MESSAGE, pop_header(poll_time=5000, born_time=NOW_MS, max_msg_nums=1)) is None
        faults = iter((StoreFull("full"), RuntimeError("a fault")))

        def failing(*_: object) -> None:
            raise next(faults)

        with monkeypatch.context() as patched:
            patched.setattr(pop_front, "pop", failing)
            peer.send()
            run_pops(peer.broker, NOW_MS)
        assert [reply.code for reply in first.connection.replies] == [C.SYSTEM_ERROR]
        assert (second.connection.replies, second.connection.is_open) == ([], False)
        assert peer.log.names("error") == ["held_call_failed"]

    def test_a_client_is_back_before_its_old_connection_ends(self) -> None:
        peer = Peer(lock_mode="fenced")
        peer.send_many(1)
        old, new = peer.beside("h:1"), peer.beside("h:2")
        for one in (old, new):
            one.heartbeat("a", consumer("G", SubscriptionData.parse("T", "*", 1)))
        _, popped = pop(new, invisible_time=60_000)
        forsake(peer.broker, old.connection, NOW_MS)
        other = peer.beside("h:3")
        other.now_ms = NOW_MS + 10_000
        assert pop(other)[0].code == 210
        assert ack(new, popped, 0).code == C.SUCCESS


def receipt_of(popped: PopResponseHeader, offset: int) -> Receipt:
    start = int((popped.start_offset_info or "0 0 0").split(" ")[2])
    return Receipt(start, popped.pop_time, popped.invisible_time, popped.revive_qid, 0, "broker-a", 0, offset)
