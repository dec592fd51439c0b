"""Transactions: hidden half messages, their end, checks of producers, giving up (wire.md 11)."""

from typing import Any

import pytest

from lockstep.broker.core.transaction import check_transactions
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.admin import ResumeCheckHalfMessageRequestHeader
from lockstep.protocol.headers.messaging import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages.ids import decode_offset_message_id
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.messages.properties import encode_properties
from lockstep.store import StoreFull
from tests.broker.fronts.test_send import stored
from tests.broker.helpers import NOW_MS, Peer, heartbeat_of

C = ResponseCode
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ROUND_MS = 60_000


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    peer = Peer(header_encoding)
    peer.answer(RequestCode.HEART_BEAT, None, heartbeat_of("p1", producers=("PG",)))
    return peer


def send_half(peer: Peer, body: bytes = b"half", extra: str = "", **fields: Any) -> SendMessageResponseHeader:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01U1\x02TAGS\x01A{extra}"
    reply = peer.send("T", body, properties=properties, **{"queue_id": 2, "sys_flag": 4, **fields})
    assert reply.code == 0, reply
    return reply.decode_header(SendMessageResponseHeader)


def end_header(sent: SendMessageResponseHeader, decision: int, **fields: Any) -> EndTransactionRequestHeader:
    offset = decode_offset_message_id(sent.msg_id).commit_log_offset
    return EndTransactionRequestHeader("PG", sent.queue_offset, offset, decision, "U1")._replace(**fields)


def end(peer: Peer, sent: SendMessageResponseHeader, decision: int, **fields: Any) -> RemotingCommand | None:
    return peer.call(RequestCode.END_TRANSACTION, end_header(sent, decision, **fields))


def questions(peer: Peer) -> list[RemotingCommand]:
    return [pushed for pushed in peer.connection.pushed if pushed.code == RequestCode.CHECK_TRANSACTION_STATE]


def test_a_half_message_is_seen_by_nobody(peer: Peer) -> None:
    """It is stored in the half topic; the reply has its real queue and the half message's offset and id."""
    response = send_half(peer)
    assert (response.queue_id, response.queue_offset, response.transaction_id) == (2, 0, None)
    (half,) = stored(peer, HALF)
    assert half.offset_message_id == response.msg_id
    assert (half.body, half.sys_flag, half.queue_id) == (b"half", 0, 0)
    assert (half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == ("T", "2")
    assert peer.broker.messages.store.max_offset("T", 2) == 0


def test_a_commit_shows_the_message(peer: Peer) -> None:
    """In its own queue, marked as committed, with the half's place in the log; and the half is marked as done."""
    peer.send()  # so that a place in the log and in a queue differ
    sent = send_half(peer, flag=7, reconsume_times=1)
    reply = end(peer, sent, COMMIT)
    assert reply is not None
    assert reply.code == 0
    (message,) = stored(peer, "T", 2)
    assert (message.body, message.sys_flag, message.flag, message.reconsume_times) == (b"half", 8, 7, 1)
    assert message.prepared_transaction_offset == decode_offset_message_id(sent.msg_id).commit_log_offset > 0
    assert {"TRAN_MSG", "REAL_TOPIC", "REAL_QID", "PGROUP", "UNIQ_KEY"} <= set(message.properties)
    (mark,) = stored(peer, OP)
    assert (mark.body, mark.tags) == (b"0", "d")
    found = peer.pull(0, queue_id=2, subscription="A")
    assert found is not None
    assert found.code == 0


def test_a_rollback_leaves_only_the_mark(peer: Peer) -> None:
    """No consumer sees the message, and no producer is asked about it."""
    sent = send_half(peer)
    reply = end(peer, sent, ROLLBACK)
    assert reply is not None
    assert reply.code == 0
    assert peer.broker.messages.store.max_offset("T", 2) == 0
    assert [mark.body for mark in stored(peer, OP)] == [b"0"]
    assert len(peer.broker.messages.halves) == 0


def test_a_producer_that_does_not_know_gets_no_answer(peer: Peer) -> None:
    """And the message stays undecided (wire.md 11, 3); a decision that there is not is an error."""
    sent = send_half(peer)
    assert end(peer, sent, UNKNOWN) is None
    with pytest.raises(HeaderError, match="commitOrRollback"):
        end(peer, sent, 5)
    assert len(peer.broker.messages.halves) == 1


def test_a_second_end_changes_nothing(peer: Peer) -> None:
    """The same answer, and no second message."""
    sent = send_half(peer)
    for decision in (COMMIT, COMMIT, ROLLBACK):
        reply = end(peer, sent, decision)
        assert reply is not None
        assert reply.code == 0
    assert len(stored(peer, "T", 2)) == 1
    assert len(stored(peer, OP)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"producer_group": "other"},
        {"tran_state_table_offset": 1},
        {"commit_log_offset": 1},
        {"commit_log_offset": -1},
        {"commit_log_offset": 0},
    ],
)
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_an_end_must_tell_what_it_ends(peer: Peer, decision: int, wrong: dict[str, Any]) -> None:
    """Code 1 for another group, wrong offsets, or a message that is no half message; it stays undecided."""
    peer.send("T", b"no half", queue_id=2)  # stands at 0
    sent = send_half(peer)
    reply = end(peer, sent, decision, **wrong)
    assert reply is not None
    assert (reply.code, bool(reply.remark)) == (C.SYSTEM_ERROR, True)
    assert len(stored(peer, "T", 2)) == 1
    assert len(peer.broker.messages.halves) == 1


def shown(question: RemotingCommand) -> tuple[CheckTransactionStateRequestHeader, MessageExt]:
    header = question.header
    assert isinstance(header, CheckTransactionStateRequestHeader)
    return header, decode_messages(question.body)[0]


def test_a_producer_that_did_not_tell_is_asked(peer: Peer) -> None:
    """After a minute the half stands anew, the producer sees it as it sent it, and ends it by its new offsets."""
    first = send_half(peer)
    assert peer.broker.messages.halves.next_due_ms == NOW_MS + ROUND_MS
    check_transactions(peer.broker, NOW_MS + ROUND_MS)
    (question,) = questions(peer)
    header, message = shown(question)
    assert (message.topic, message.queue_id, message.body) == ("T", 2, b"half")
    assert (header.msg_id, header.transaction_id, header.tran_state_table_offset) == ("U1", "U1", 1)
    again = stored(peer, HALF)[1]
    assert (header.commit_log_offset, header.offset_msg_id) == (again.commit_log_offset, again.offset_message_id)
    assert again.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert (message.queue_offset, message.commit_log_offset) == (1, again.commit_log_offset)
    answer = EndTransactionRequestHeader("PG", 1, header.commit_log_offset, COMMIT, "U1", True)
    assert peer.answer(RequestCode.END_TRANSACTION, answer).code == 0
    assert end(peer, first, COMMIT) is not None
    assert len(stored(peer, "T", 2)) == 1, "an end by the first place comes second"
    assert len(peer.broker.messages.halves) == 0


def test_a_late_end_counts_though_the_half_has_moved(peer: Peer) -> None:
    """A producer that took longer than a round ends its message once, by the first offset that it got."""
    sent, other = send_half(peer, b"late"), send_half(peer, b"other")
    for times in (1, 2):
        check_transactions(peer.broker, NOW_MS + times * ROUND_MS)
    for _ in range(2):
        end(peer, sent, COMMIT)
    assert [message.body for message in stored(peer, "T", 2)] == [b"late"]
    assert len(peer.broker.messages.halves) == 1
    end(peer, other, ROLLBACK)
    assert len(peer.broker.messages.halves) == 0


@pytest.mark.parametrize(("age_ms", "asked"), [(6000, 0), (6001, 1)])
def test_a_lone_half_message_is_asked_about_in_the_brokers_next_round(peer: Peer, age_ms: int, asked: int) -> None:
    """Rounds are counted from the broker's start and not from the message: it waits 6 to 66 s (wire.md 11)."""
    for times in (1, 2):
        check_transactions(peer.broker, NOW_MS + times * ROUND_MS)
    peer.now_ms = NOW_MS + 3 * ROUND_MS - age_ms
    send_half(peer, born_timestamp=peer.now_ms)
    assert peer.broker.messages.halves.next_due_ms == NOW_MS + 3 * ROUND_MS
    check_transactions(peer.broker, NOW_MS + 3 * ROUND_MS)
    assert len(questions(peer)) == asked


@pytest.mark.parametrize(
    ("now_ms", "next_ms"),
    [
        (ROUND_MS, 2 * ROUND_MS),
        (ROUND_MS - 1, 2 * ROUND_MS),
        (2 * ROUND_MS - 1, 2 * ROUND_MS),
        (2 * ROUND_MS, 3 * ROUND_MS),
        (9 * ROUND_MS + 5, 10 * ROUND_MS),
        (-3_600_000, ROUND_MS - 3_600_000),
    ],
)
def test_when_the_next_round_is(now_ms: int, next_ms: int) -> None:
    """A timer that is early or late moves no round, missed rounds are left out, and a clock that was set back does
    not stop them. Times count from the broker's start."""
    peer = Peer()
    check_transactions(peer.broker, NOW_MS + now_ms)
    assert peer.broker.messages.halves.next_due_ms == NOW_MS + next_ms


def test_which_topics_transactions_make(peer: Peer) -> None:
    """The first round makes that of half messages, with or without any; that of the marks is never made, listed or
    routed, though it has a queue (wire.md 11)."""
    end(peer, send_half(peer), COMMIT)
    assert [peer.broker.catalog.topics.get(topic) for topic in (HALF, OP)] == [None, None]
    check_transactions(peer.broker, NOW_MS + ROUND_MS)
    half = peer.broker.catalog.topics.get(HALF)
    assert half is not None
    assert (half.read_queue_nums, half.write_queue_nums, half.perm) == (1, 1, 6)
    assert peer.broker.catalog.topics.get(OP) is None
    assert len(stored(peer, OP)) == 1


def test_what_is_young_is_not_asked_about(peer: Peer) -> None:
    """6 s by the producer's clock, or the message's own time; the next round checks again."""
    send_half(peer, born_timestamp=NOW_MS + ROUND_MS - 6000)
    send_half(peer, extra="\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01100")
    send_half(peer, extra="\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01soon\x02TRANSACTION_CHECK_TIMES\x01never")
    check_transactions(peer.broker, NOW_MS + ROUND_MS)
    assert [shown(question)[0].tran_state_table_offset for question in questions(peer)] == [3]
    check_transactions(peer.broker, NOW_MS + 2 * ROUND_MS)
    assert len(questions(peer)) == 4


def test_after_fifteen_questions_a_message_is_given_up(peer: Peer) -> None:
    """It moves to TRANS_CHECK_MAX_TIME_TOPIC, is marked, and no producer is asked again."""
    send_half(peer)
    for times in range(1, 20):
        check_transactions(peer.broker, NOW_MS + times * ROUND_MS)
    assert len(questions(peer)) == 15
    (message,) = stored(peer, GIVEN_UP)
    assert (message.body, message.properties["TRANSACTION_CHECK_TIMES"]) == (b"half", "15")
    assert len(peer.broker.messages.halves) == 0
    assert [mark.body for mark in stored(peer, OP)] == [b"15"]


def test_a_message_without_room_to_count_questions_is_given_up(peer: Peer) -> None:
    """Its properties have the maximum length; later half messages are still checked."""
    sent = send_half(peer, extra="\x02filler\x01")
    (half,) = stored(peer, HALF)
    end(peer, sent, ROLLBACK)
    room_bytes = PROPERTIES_BYTES_MAX - len(encode_properties(half.properties)) - len("filler\x01\x02")
    send_half(peer, extra="\x02filler\x01" + "x" * room_bytes)
    send_half(peer, b"other")
    check_transactions(peer.broker, NOW_MS + ROUND_MS)
    assert [len(message.properties["filler"]) for message in stored(peer, GIVEN_UP)] == [room_bytes]
    assert [shown(question)[1].body for question in questions(peer)] == [b"other"]


def test_a_round_over_many_messages_is_done_in_parts(peer: Peer) -> None:
    """Each part is due at once; a half message that begins meanwhile waits for the next round, an ended one is left
    out."""
    sent = [send_half(peer) for _ in range(450)]
    at_ms = NOW_MS + ROUND_MS
    check_transactions(peer.broker, at_ms)
    assert len(questions(peer)) == 200
    end(peer, sent[-1], ROLLBACK)
    send_half(peer, b"new")
    for _ in range(2):
        assert peer.broker.messages.halves.next_due_ms == at_ms
        check_transactions(peer.broker, at_ms)
    assert peer.broker.messages.halves.next_due_ms == at_ms + ROUND_MS
    assert [shown(question)[1].body for question in questions(peer)] == [b"half"] * 449


def test_an_end_that_cannot_be_stored_may_be_asked_for_again(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is an error; the second commits the message."""

    def full(_: Any) -> None:
        raise StoreFull("the disk is full")

    sent = send_half(peer)
    with monkeypatch.context() as patched:
        patched.setattr(peer.broker.messages.store, "append_all", full)
        refused = end(peer, sent, COMMIT)
    assert refused is not None
    assert refused.code == C.SYSTEM_ERROR
    committed = end(peer, sent, COMMIT)
    assert committed is not None
    assert (committed.code, len(stored(peer, "T", 2))) == (0, 1)


def test_without_a_producer_it_is_tried_again(peer: Peer) -> None:
    """Any producer of the group may answer, each asked in turn; a missing one is no answer."""
    send_half(peer)
    peer.broker.on_closed(peer.connection)
    check_transactions(peer.broker, NOW_MS + ROUND_MS)
    others = [peer.beside(f"127.0.0.1:6000{i}") for i in range(2)]
    for other in others:
        other.answer(RequestCode.HEART_BEAT, None, heartbeat_of(f"p{other.connection.address}", producers=("PG",)))
    for times in (2, 3):
        check_transactions(peer.broker, NOW_MS + times * ROUND_MS)
    assert questions(peer) == []
    assert [len(questions(other)) for other in others] == [1, 1]


def test_a_half_message_that_the_store_dropped_is_forgotten() -> None:
    """With a word about it."""
    peer = Peer(memory_limit_bytes=6 << 20, segment_bytes=1 << 20, max_message_bytes=1 << 20)
    send_half(peer)
    for _ in range(9):
        peer.send("filler", bytes(900_000))
    check_transactions(peer.broker, NOW_MS + ROUND_MS)
    assert len(peer.broker.messages.halves) == 0
    assert "half_message_lost" in peer.log.names("warning")


def test_a_delay_of_a_half_message_is_dropped(peer: Peer) -> None:
    """As Java's producer drops it."""
    end(peer, send_half(peer, extra="\x02DELAY\x013"), COMMIT)
    assert len(stored(peer, "T", 2)) == 1
    assert peer.broker.messages.delays.next_due_ms is None


def test_a_broker_may_be_told_to_reject_transactions() -> None:
    """rejectTransactionMessage: code 16."""
    peer = Peer(reject_transactions=True)
    assert peer.send(properties="TRAN_MSG\x01true", sys_flag=4).code == C.NO_PERMISSION


def resume(peer: Peer, message_id: str | None) -> RemotingCommand:
    return peer.answer(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(message_id))


def test_the_checks_of_a_message_that_was_given_up_begin_anew(peer: Peer) -> None:
    """An administrator names it by its id in TRANS_CHECK_MAX_TIME_TOPIC; its producer is asked again, and commits."""
    send_half(peer)
    for times in range(1, 17):
        check_transactions(peer.broker, NOW_MS + times * ROUND_MS)
    (given_up,) = stored(peer, GIVEN_UP)
    assert resume(peer, given_up.offset_message_id).code == 0
    assert stored(peer, HALF)[-1].properties["TRANSACTION_CHECK_TIMES"] == "0"
    check_transactions(peer.broker, NOW_MS + 17 * ROUND_MS)
    header, message = shown(questions(peer)[-1])
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    answer = EndTransactionRequestHeader(
        "PG", header.tran_state_table_offset, header.commit_log_offset, COMMIT, "U1", from_transaction_check=True
    )
    assert peer.answer(RequestCode.END_TRANSACTION, answer).code == 0
    assert [message.body for message in stored(peer, "T", 2)] == [b"half"]


def test_an_undecided_message_is_resumed_in_place(peer: Peer) -> None:
    """Its new copy replaces it, by whichever copy it is named, and its producer may end it by the first."""
    sent = send_half(peer)
    check_transactions(peer.broker, NOW_MS + ROUND_MS)
    for count in (3, 4):
        assert resume(peer, sent.msg_id).code == 0
        assert (len(stored(peer, HALF)), len(peer.broker.messages.halves)) == (count, 1)
    for _ in range(2):
        assert end(peer, sent, COMMIT) is not None
    assert len(stored(peer, "T", 2)) == 1


@pytest.mark.parametrize(
    "message_id",
    [None, "", "7F", "z" * 32, "0" * 31, "7F00000100002A9F00000000FFFFFFFF", "7F00000100002A9F" + "F" * 16],
)
def test_a_resumed_message_must_be_there(peer: Peer, message_id: str | None) -> None:
    assert resume(peer, message_id).code == C.SYSTEM_ERROR


def test_only_half_messages_are_resumed(peer: Peer) -> None:
    """RocketMQ takes any message; a committed one would be committed again."""
    sent = send_half(peer)
    end(peer, sent, COMMIT)
    (committed,) = stored(peer, "T", 2)
    refused = resume(peer, committed.offset_message_id)
    assert refused.code == C.SYSTEM_ERROR
    assert "no half message" in (refused.remark or "")
    assert (len(stored(peer, HALF)), len(peer.broker.messages.halves)) == (1, 0)


def test_a_message_without_room_for_a_count_is_not_resumed(peer: Peer) -> None:
    send_half(peer, extra="\x02filler\x01")
    (half,) = stored(peer, HALF)
    room_bytes = PROPERTIES_BYTES_MAX - len(encode_properties(half.properties)) - len("filler\x01\x02")
    sent = send_half(peer, extra="\x02filler\x01" + "x" * room_bytes)
    assert resume(peer, sent.msg_id).code == C.SYSTEM_ERROR
    assert len(peer.broker.messages.halves) == 2


@pytest.mark.parametrize("topic", [HALF, GIVEN_UP])
def test_a_message_that_was_given_up_is_resumed_once(peer: Peer, topic: str) -> None:
    """Named twice by the same id, it is one half message, whose producer is asked and commits once."""
    send_half(peer)
    for times in range(1, 17):
        check_transactions(peer.broker, NOW_MS + times * ROUND_MS)
    message_id = stored(peer, topic)[-1].offset_message_id
    for _ in range(2):
        assert resume(peer, message_id).code == 0
        assert len(peer.broker.messages.halves) == 1
