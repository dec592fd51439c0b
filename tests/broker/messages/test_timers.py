"""Messages for a time: when they wait and for how long, in which order they come, and what is recalled (18.7)."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    TimedSendResponseHeader,
)
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from lockstep.protocol.recall import RecallHandle
from tests.broker.fronts.test_send import stored
from tests.broker.fronts.test_transactions import COMMIT, end, send_half
from tests.broker.helpers import NOW_MS, Peer, pull_header

C = ResponseCode
DAY_MS = 86_400_000
LATE_MS = 4 * DAY_MS
IN_A_SECOND = f"TIMER_DELIVER_MS\x01{NOW_MS + 1000}"


def send(peer: Peer, properties: str, body: bytes = b"x", unique_key: str = "U", **fields: Any) -> str | None:
    """Returns its recall handle."""
    reply = peer.send(body=body, properties=f"{properties}\x02UNIQ_KEY\x01{unique_key}", **fields)
    assert reply.code == 0, reply
    return reply.decode_header(TimedSendResponseHeader).recall_handle


def bodies(peer: Peer, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in stored(peer, queue_id=queue_id)]


def recall(peer: Peer, handle: str, topic: str = "T") -> int:
    return peer.answer(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(topic, handle, "PG")).code


@pytest.mark.parametrize(
    "asks", [IN_A_SECOND, "TIMER_DELAY_MS\x011000", "TIMER_DELAY_SEC\x011", f"TIMER_DELAY_SEC\x01+1\x02{IN_A_SECOND}9"]
)
def test_a_message_comes_at_its_time(asks: str) -> None:
    """To the millisecond, in its queue; its properties say when, and where it was for, as in RocketMQ."""
    peer = Peer()
    send(peer, asks, b"later", queue_id=2, flag=9)
    assert peer.broker.messages.timers.next_due_ms == NOW_MS + 1000
    peer.broker.messages.deliver_timed(NOW_MS + 999)
    assert bodies(peer, 2) == []
    peer.broker.messages.deliver_timed(NOW_MS + 1000)
    (message,) = stored(peer, queue_id=2)
    assert (message.body, message.flag, message.store_timestamp) == (b"later", 9, NOW_MS + 1000)
    assert message.properties["TIMER_OUT_MS"] == str(NOW_MS + 1000)
    assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == ("T", "2")
    peer.broker.messages.deliver_timed(NOW_MS + 9999)
    assert len(stored(peer, queue_id=2)) == 1


@pytest.mark.parametrize(
    "asks",
    [
        f"TIMER_DELIVER_MS\x01{NOW_MS}",
        "TIMER_DELAY_MS\x01-5",
        "TIMER_DELAY_SEC\x010",
        f"{IN_A_SECOND}\x02TIMER_OUT_MS\x011",
    ],
)
def test_what_is_due_does_not_wait(asks: str) -> None:
    """Nor does a message that was delivered, when somebody sends it again as it is."""
    peer = Peer()
    assert send(peer, asks) is None
    assert bodies(peer) == [b"x"]


@pytest.mark.parametrize("asks", [f"TIMER_DELIVER_MS\x01{NOW_MS + 3 * DAY_MS + 1}", "TIMER_DELAY_SEC\x011.5"])
def test_a_time_that_cannot_be_is_refused(asks: str) -> None:
    """With RocketMQ's code and text; three days can be."""
    peer = Peer()
    reply = peer.send(properties=asks)
    assert (reply.code, (reply.remark or "")[:91]) == (
        C.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; ",
    )
    send(peer, f"TIMER_DELAY_MS\x01{3 * DAY_MS}")


def test_a_level_wins() -> None:
    """As in RocketMQ, and the message keeps no time that a retry would wait for."""
    peer = Peer()
    assert send(peer, "DELAY\x011\x02TIMER_DELAY_SEC\x0190") is None
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    (message,) = stored(peer)
    assert "TIMER_DELAY_SEC" not in message.properties


def test_a_batch_cannot_wait() -> None:
    """RocketMQ 5.5 answers that it is stored, and loses it. A time in a single message means nothing, as there."""
    peer = Peer()
    body = encode_batch([BatchRecord(0, b"a", "TIMER_DELAY_SEC\x011"), BatchRecord(0, b"b", "")])
    assert peer.send(body=body, batch=True, properties="TIMER_DELAY_SEC\x011").code == C.MESSAGE_ILLEGAL
    assert peer.send(body=body, batch=True).code == 0
    assert bodies(peer) == [b"a", b"b"]


def test_a_time_means_nothing_to_rocketmq_4() -> None:
    """Of a batch, too."""
    peer = Peer(rocketmq="4")
    peer.send(body=b"a", properties=IN_A_SECOND)
    body = encode_batch([BatchRecord(0, b"b", "")])
    assert peer.send(body=body, batch=True, properties=IN_A_SECOND).code == 0
    assert bodies(peer) == [b"a", b"b"]


def test_a_transaction_waits_from_its_commit_on() -> None:
    """For as long as it asks, or until the time that it asks for."""
    peer = Peer()
    sent = send_half(peer, extra="\x02TIMER_DELAY_SEC\x011")
    peer.now_ms = NOW_MS + 5000
    assert end(peer, sent, COMMIT) is not None
    assert peer.broker.messages.timers.next_due_ms == NOW_MS + 6000
    peer.broker.messages.deliver_timed(NOW_MS + 6000)
    (message,) = stored(peer, queue_id=2)
    assert (message.body, message.sys_flag) == (b"half", COMMIT)


def test_too_many_are_refused() -> None:
    """Messages and recalls: both take memory until their time."""
    peer = Peer(timer_messages_max=2)
    handle = send(peer, IN_A_SECOND)
    assert handle is not None
    assert recall(peer, handle) == 0
    assert peer.send(properties=IN_A_SECOND).code == C.SYSTEM_ERROR
    assert recall(peer, handle) == C.SYSTEM_ERROR
    peer.broker.messages.deliver_timed(NOW_MS + 1000)
    send(peer, f"TIMER_DELIVER_MS\x01{NOW_MS + 2000}")


def test_a_topic_that_is_deleted_gets_nothing() -> None:
    """Nor does a new one of its name."""
    peer = Peer()
    send(peer, IN_A_SECOND)
    peer.broker.catalog.topics.delete("T", NOW_MS)
    peer.make_topics("T")
    peer.broker.messages.deliver_timed(NOW_MS + 1000)
    assert bodies(peer) == []
    assert "delayed_message_of_deleted_topic" in peer.log.names()


def test_nobody_reads_or_writes_the_topic() -> None:
    """It is in no list either."""
    peer = Peer()
    send(peer, IN_A_SECOND)
    topic = "rmq_sys_LOCKSTEP_TIMERS"
    assert peer.send(topic).code == C.NO_PERMISSION
    reply = peer.call(RequestCode.PULL_MESSAGE, pull_header(0)._replace(topic=topic))
    assert reply is not None
    assert reply.code == C.TOPIC_NOT_EXIST
    assert topic not in [config.topic_name for config in peer.broker.catalog.topics.topics]


def test_after_the_clock_went_back_what_was_due_does_not_wait() -> None:
    """The place of what was delivered says all: a message before it would be forgotten by a start."""
    peer = Peer()
    send(peer, "TIMER_DELAY_SEC\x0110", b"first")
    peer.broker.messages.deliver_timed(NOW_MS + 10_000)
    send(peer, "TIMER_DELAY_SEC\x015", b"second")
    assert bodies(peer) == [b"first", b"second"]


# Recalls ----------------------------------------------------------------------------------------------------------


def test_a_recalled_message_does_not_come() -> None:
    """Also when it is recalled twice; others of the same time do."""
    peer = Peer()
    handle = send(peer, IN_A_SECOND, b"recalled", "U1")
    send(peer, IN_A_SECOND, b"kept", "U2")
    assert handle is not None
    assert RecallHandle.decode(handle) == ("T", "broker-a", NOW_MS + 1000, "U1")
    for _ in range(2):
        reply = peer.answer(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader("T", handle, "PG"))
        assert reply.code == 0
        assert reply.remark == "not set any response code"
        assert reply.decode_header(RecallMessageResponseHeader) == ("U1", "DefaultRegion")
    peer.broker.messages.deliver_timed(NOW_MS + 1000)
    assert bodies(peer) == [b"kept"]


@pytest.mark.parametrize(
    ("topic", "handle", "code", "remark"),
    [
        ("T", RecallHandle("O", "broker-a", NOW_MS + 9, "U").encode(), 604, "recall failed, topic not match"),
        ("N", RecallHandle("N", "broker-a", NOW_MS + 9, "U").encode(), 17, "recall failed, the topic[N] not exist"),
        ("T", RecallHandle("T", "z", NOW_MS + 9, "U").encode(), 604, "recall failed, broker service not available"),
        ("T", RecallHandle("T", "broker-a", NOW_MS, "U").encode(), 604, "recall failed, timestamp invalid"),
        ("T", RecallHandle("T", "broker-a", NOW_MS + LATE_MS, "U").encode(), 604, "recall failed, timestamp invalid"),
        ("T", "djEgVCBicm9rZXItYSBhYmMgVQ", 604, "recall failed, timestamp invalid"),  # v1 T broker-a abc U
        ("T", "", 604, "recall handle is invalid"),
        ("T", "abc!", 604, "recall handle is invalid"),
        ("T", "aGVsbG8", 604, "recall handle is invalid"),
    ],
)  # fmt: skip
def test_a_recall_that_cannot_be_is_refused(topic: str, handle: str, code: int, remark: str) -> None:
    """With the codes and texts of 5.5.0."""
    peer = Peer()
    peer.make_topics("T")
    reply = peer.answer(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(topic, handle, "PG"))
    assert (reply.code, reply.remark) == (code, remark)
    assert reply.ext_fields == {"MSG_REGION": "DefaultRegion"}


def test_recalls_can_be_switched_off() -> None:
    """As they are in RocketMQ by default."""
    peer = Peer(recall_message_enable=False)
    handle = send(peer, IN_A_SECOND)
    assert handle is not None
    assert recall(peer, handle) == C.NO_PERMISSION


# Order ------------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 40), st.integers(0, 1)),
        st.tuples(st.just("recall"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 15), st.integers(1, 3)),
    ),
    max_size=60,
)


@given(STEPS)
def test_messages_come_in_the_order_of_their_times(steps: list[tuple[str, int, int]]) -> None:
    """Each once, never early, those of one time in the order of their sends, and none that was recalled in time.

    The steps send with a delay, recall an earlier message, and let time pass with some deliveries at once.
    """
    peer = Peer()
    due: dict[int, list[tuple[int, int]]] = defaultdict(list)  # queue -> (time, number) of all that come
    handles: list[str] = []
    for number, (what, value, other) in enumerate(steps):
        if what == "send":
            handle = send(peer, f"TIMER_DELAY_MS\x01{value}", b"%d" % number, str(number), queue_id=other)
            due[other].append((peer.now_ms + value, number))
            if handle is not None:
                handles.append(handle)
        elif what == "recall" and value < len(handles):
            named = RecallHandle.decode(handles[value])
            left = named.deliver_at_ms - peer.now_ms
            assert recall(peer, handles[value]) == (0 if left > 0 else 604)
            if left > 0:
                for places in due.values():
                    places[:] = [place for place in places if place[1] != int(named.message_id)]
        elif what == "wait":
            peer.now_ms += value
            for _ in range(len(steps)):
                for record in peer.broker.messages.timers.due(peer.now_ms, other):
                    peer.broker.messages.put(record)
        for queue_id, places in due.items():
            came = [int(message.body) for message in stored(peer, queue_id=queue_id)]
            assert sorted(came) == sorted(number for at_ms, number in places if at_ms <= peer.now_ms)
    peer.broker.messages.deliver_timed(peer.now_ms + 100)
    for queue_id, places in due.items():
        all_came = stored(peer, queue_id=queue_id)
        assert [message.store_timestamp for message in all_came] == sorted(
            message.store_timestamp for message in all_came
        )
        timed = [(int(m.properties["TIMER_OUT_MS"]), int(m.body)) for m in all_came if "TIMER_OUT_MS" in m.properties]
        assert timed == sorted(timed)
        assert len(all_came) == len(places)
    assert peer.broker.messages.timers.next_due_ms is None
