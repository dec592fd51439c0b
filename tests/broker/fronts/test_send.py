"""Sends: checks in RocketMQ's order, the stored message, batches, dead letters, sequences (wire.md 4, 10.3)."""

from typing import Any

import pytest

from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError, HeaderError
from lockstep.protocol.filter import tags_code
from lockstep.protocol.headers.messaging import SendMessageRequestHeader, SendMessageResponseHeader
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from lockstep.protocol.messages.ids import decode_offset_message_id
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.messages.properties import encode_properties
from tests.broker.helpers import NOW_MS, Peer, send_header

C = ResponseCode


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


def stored(peer: Peer, topic: str = "T", queue_id: int = 0) -> list[MessageExt]:
    result = peer.broker.messages.store.get(topic, queue_id, 0, 1000, None)
    return decode_messages(result.body)


def answer_of(reply: RemotingCommand) -> SendMessageResponseHeader:
    return reply.decode_header(SendMessageResponseHeader)


def test_a_send_is_answered_with_where_it_is_stored(peer: Peer) -> None:
    """Offset message id, queue, queue offset, and the two fields that clients must find."""
    peer.send(queue_id=1)
    reply = peer.send(body=b"hello", queue_id=1)
    response = answer_of(reply)
    (_, message) = stored(peer, queue_id=1)
    assert (reply.code, response.queue_id, response.queue_offset) == (0, 1, 1)
    assert decode_offset_message_id(response.msg_id)[:] == (b"\x7f\0\0\x01", 10911, message.commit_log_offset)
    assert response.msg_id == message.offset_message_id
    assert (response.msg_region, response.trace_on, response.transaction_id) == ("DefaultRegion", "true", None)


def test_what_is_stored_of_a_message(peer: Peer) -> None:
    """The client's fields, its address, the time of arrival; CLUSTER is set, WAIT and wrong IPv6 bits are not kept."""
    properties = encode_properties({"TAGS": "A", "WAIT": "true", "CLUSTER": "mine", "colour": "rød", "empty": ""})
    peer.send(body=b"hello", flag=3, properties=properties + "\x02", reconsume_times=2, sys_flag=0x332)
    (message,) = stored(peer)
    assert message.properties == {"TAGS": "A", "CLUSTER": "DefaultCluster", "colour": "rød"}
    assert (message.flag, message.reconsume_times, message.sys_flag) == (3, 2, 0x302)
    assert (message.born_timestamp, message.store_timestamp) == (NOW_MS - 5, NOW_MS)
    assert message.born_host == (b"\x7f\0\0\x01", 50000)


def test_the_long_names_and_the_letters_do_the_same(peer: Peer) -> None:
    """SEND_MESSAGE and SEND_MESSAGE_V2."""
    header = SendMessageRequestHeader(*send_header())
    assert peer.answer(RequestCode.SEND_MESSAGE, header, b"x").code == 0
    assert len(stored(peer)) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": ""}, C.SYSTEM_ERROR),
        ({"topic": "no spaces"}, C.SYSTEM_ERROR),
        ({"topic": "x" * 128}, C.SYSTEM_ERROR),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, C.NO_PERMISSION),
        ({"topic": "new", "default_topic": "nowhere"}, C.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, C.SYSTEM_ERROR),
        ({"topic": "empty", "default_topic_queue_nums": 0, "queue_id": -1}, C.SYSTEM_ERROR),
        ({"properties": "k\x01" + "v" * 32767}, C.MESSAGE_ILLEGAL),
        ({"topic": "OFFSET_MOVED_EVENT"}, C.NO_PERMISSION),
        ({"properties": "DELAY\x01soon"}, C.SYSTEM_ERROR),
        ({"sys_flag": 4}, C.NO_PERMISSION),
        ({"topic": "%RETRY%no good"}, C.SYSTEM_ERROR),
    ],
)
def test_what_is_refused_is_not_stored(peer: Peer, fields: dict[str, Any], code: ResponseCode) -> None:
    """The code, a remark, the two fields that are on error replies too; the next send is served."""
    reply = peer.send(**fields)
    assert reply.code == code
    assert reply.remark
    assert reply.ext_fields is not None
    assert (reply.ext_fields["MSG_REGION"], reply.ext_fields["TRACE_ON"]) == ("DefaultRegion", "true")
    assert peer.broker.messages.store.max_offset(fields.get("topic", "T"), 0) == 0
    assert peer.send("other").code == 0


def test_delay_zero_is_no_delay(peer: Peer) -> None:
    """RocketMQ clients write it to say so."""
    assert peer.send(properties="DELAY\x010").code == 0


def test_a_negative_queue_id_means_any_queue(peer: Peer) -> None:
    """Chosen by the runtime's generator among the writable ones."""
    chosen = {answer_of(peer.send(queue_id=-1)).queue_id for _ in range(60)}
    assert chosen == {0, 1, 2, 3}


def test_a_send_makes_a_topic_and_says_so_once(peer: Peer) -> None:
    """The same call registers it with name servers."""
    peer.send("new")
    peer.send("new")
    assert peer.broker.catalog.topics.get("new") is not None
    assert peer.topic_changes == 1


@pytest.mark.parametrize("dead", [False, True])
def test_a_retry_topic_longer_than_a_topic_may_be_is_no_place_for_messages(peer: Peer, dead: bool) -> None:
    """A group's name may have 255 characters; a topic's length stands in one byte, and RocketMQ takes 127."""
    group = "g" * 121
    reply = peer.send(f"%RETRY%{group}", reconsume_times=int(dead), max_reconsume_times=1)
    assert reply.code in (C.SYSTEM_ERROR, C.MESSAGE_ILLEGAL)
    peer.broker.catalog.topics.ensure_retry_topic(group, 1, NOW_MS)  # as its heartbeat does
    reply = peer.send(f"%RETRY%{group}", reconsume_times=int(dead), max_reconsume_times=1)
    assert (reply.code, "at most 127" in (reply.remark or "")) == (C.MESSAGE_ILLEGAL, True)


def test_without_auto_creation_only_retry_topics_are_made() -> None:
    """Code 17 for others."""
    peer = Peer(auto_create_topics=False)
    reply = peer.send()
    assert (reply.code, reply.remark) == (
        C.TOPIC_NOT_EXIST,
        "topic 'T' does not exist here, and sends may not create it",
    )
    assert peer.broker.catalog.topics.get("T") is None
    assert peer.send("%RETRY%G").code == 0


def test_a_broker_that_may_only_be_read_still_takes_what_has_no_order() -> None:
    """RocketMQ looks at the topic's order flag here, and at nothing else (wire.md 4.7)."""
    peer = Peer(broker_permission=4)
    peer.broker.catalog.topics.put(TopicConfig("ordered", order=True), NOW_MS)
    assert peer.send("ordered").code == C.NO_PERMISSION
    assert peer.send("other").code == 0


def test_a_retry_topic_needs_its_group() -> None:
    """Code 26 for a group that is not there and not made by use."""
    peer = Peer(auto_create_groups=False)
    assert peer.send("%RETRY%G").code == C.SUBSCRIPTION_GROUP_NOT_EXIST
    peer.broker.catalog.groups.put(SubscriptionGroupConfig("G", retry_max_times=2), NOW_MS)
    assert peer.send("%RETRY%G", reconsume_times=2).code == 0
    assert peer.broker.messages.store.max_offset("%DLQ%G", 0) == 1


# Dead letters -----------------------------------------------------------------------------------------------------


def test_a_message_tried_often_enough_is_a_dead_letter_at_once_when_it_is_told_to() -> None:
    """In %DLQ%G, its delay dropped, whatever level its sender asked for (wire.md 10.3)."""
    peer = Peer(dead_letter_at_once=True)
    properties = "DELAY\x0118\x02RETRY_TOPIC\x01T\x02UNIQ_KEY\x01U1"
    reply = peer.send("%RETRY%G", b"poison", properties=properties, reconsume_times=3, max_reconsume_times=3)
    assert (reply.code, answer_of(reply).queue_id, answer_of(reply).queue_offset) == (0, 0, 0)
    (letter,) = stored(peer, "%DLQ%G")
    assert (letter.body, letter.reconsume_times) == (b"poison", 3)
    assert letter.properties == {"RETRY_TOPIC": "T", "UNIQ_KEY": "U1", "CLUSTER": "DefaultCluster"}
    assert peer.broker.messages.store.max_offset("%RETRY%G", 0) == 0
    assert "dead_letter" in peer.log.names("info")


def test_a_dead_letter_waits_as_in_rocketmq(peer: Peer) -> None:
    """In the schedule topic, and then in %DLQ%G with the text of its delay."""
    properties = "DELAY\x0118\x02RETRY_TOPIC\x01T"
    reply = peer.send("%RETRY%G", b"poison", properties=properties, reconsume_times=16, max_reconsume_times=16)
    assert (reply.code, answer_of(reply).queue_id) == (0, 0)
    assert peer.broker.messages.store.max_offset("%DLQ%G", 0) == 0
    peer.broker.messages.deliver_delayed(NOW_MS + 7_200_000)
    (letter,) = stored(peer, "%DLQ%G")
    assert letter.properties["DELAY"] == "18"
    assert letter.properties["REAL_TOPIC"] == "%DLQ%G"


@pytest.mark.parametrize(
    ("reconsume_times", "max_reconsume_times", "version", "dead"),
    [(2, 3, 409, False), (15, None, 409, False), (16, None, 409, True), (3, 3, 120, False), (3, 3, 121, True)],
)
def test_how_often_is_often_enough(
    peer: Peer, reconsume_times: int, max_reconsume_times: int | None, version: int, dead: bool
) -> None:
    """The header's limit from version 121 on, else 16."""
    header = send_header("%RETRY%G", reconsume_times=reconsume_times, max_reconsume_times=max_reconsume_times)
    peer.answer(RequestCode.SEND_MESSAGE_V2, header, b"x", version=version)
    assert peer.broker.messages.store.max_offset("%DLQ%G", 0) == int(dead)
    assert peer.broker.messages.store.max_offset("%RETRY%G", 0) == int(not dead)


# Batches ----------------------------------------------------------------------------------------------------------

BLOB = encode_batch([BatchRecord(1, b"b1", "TAGS\x01A\x02WAIT\x01true\x02"), BatchRecord(2, b"b2", "")])


def test_a_batch_is_stored_message_by_message(peer: Peer) -> None:
    """Consecutive offsets, ids joined by commas, the batch's properties behind each record's."""
    peer.send()
    header = send_header(batch=True, properties="WAIT\x01true")
    response = answer_of(peer.answer(RequestCode.SEND_BATCH_MESSAGE, header, BLOB))
    first, second = stored(peer)[1:]
    assert (first.body, first.flag, first.queue_offset) == (b"b1", 1, 1)
    assert first.properties == {"TAGS": "A", "WAIT": "true", "CLUSTER": "DefaultCluster"}
    assert (second.body, second.flag, second.queue_offset) == (b"b2", 2, 2)
    assert response.queue_offset == 1
    assert response.msg_id == f"{first.offset_message_id},{second.offset_message_id}"


@pytest.mark.parametrize(
    ("of_record", "of_batch", "kept"),
    [
        ("WAIT\x01true\x02KEYS\x01k", "WAIT\x01true", "WAIT\x01true\x02KEYS\x01k\x02WAIT\x01true\x02"),
        ("junk\x02x\x011\x02x\x013\x02e\x01\x02", "q\x01r", "junk\x02x\x011\x02x\x013\x02e\x01\x02q\x01r\x02"),
        ("", "q\x01r", "q\x01r\x02"),
        ("KEYS\x01k\x02", "", "KEYS\x01k\x02"),
        ("a\x01b", "q\x01r\x02q\x01s\x02junk", "a\x01b\x02q\x01s\x02"),
    ],
)
def test_a_batchs_properties_are_appended_to_a_records_text(
    peer: Peer, of_record: str, of_batch: str, kept: str
) -> None:
    """The record's text stays as it was sent, a name that both have stands twice, and the batch's value counts
    (wire.md 4.4)."""
    blob = encode_batch([BatchRecord(0, b"b", of_record)])
    header = send_header(batch=True, properties=of_batch)
    assert peer.answer(RequestCode.SEND_BATCH_MESSAGE, header, blob).code == 0
    text = (kept + "CLUSTER\x01DefaultCluster").encode()
    data = peer.broker.messages.store.get("T", 0, 0, 1, None).body
    assert data.endswith(len(text).to_bytes(2) + text)


def test_a_batchs_properties_do_not_become_many_bytes(peer: Peer) -> None:
    """Each record gets them: 10,000 empty ones, 220 kB, would become 300 MB."""
    header = send_header(batch=True, properties="k\x01" + "v" * 30_000)
    for count, code in ((100, C.SUCCESS), (200, C.MESSAGE_ILLEGAL)):
        reply = peer.answer(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch([BatchRecord(0, b"", "")] * count))
        assert reply.code == code
    assert "for each of 200 messages" in (reply.remark or "")


def test_a_batchs_tag_counts(peer: Peer) -> None:
    """Pulls by tag find a record by the tag of its batch, which stands behind its own."""
    blob = encode_batch([BatchRecord(0, b"b", "TAGS\x01A")])
    header = send_header(batch=True, properties="TAGS\x01B")
    assert peer.answer(RequestCode.SEND_BATCH_MESSAGE, header, blob).code == 0
    assert peer.broker.messages.store.entries("T", 0, 0, 1)[0].tags_code == tags_code("B")


def test_a_batch_is_stored_whole_or_not_at_all(peer: Peer) -> None:
    """A delay of all, a part of a transaction, properties too long, a retry topic, a broken blob."""
    for fields in ({"properties": "DELAY\x011"}, {"sys_flag": 4}, {"sys_flag": 8}):
        header = send_header(batch=True, **fields)
        assert peer.answer(RequestCode.SEND_BATCH_MESSAGE, header, BLOB).code == C.MESSAGE_ILLEGAL
    long = send_header(batch=True, properties="k\x01" + "v" * 32760)
    assert peer.answer(RequestCode.SEND_BATCH_MESSAGE, long, BLOB).code == C.MESSAGE_ILLEGAL
    retry = send_header("%RETRY%G", batch=True)
    assert peer.answer(RequestCode.SEND_BATCH_MESSAGE, retry, BLOB).code == C.MESSAGE_ILLEGAL
    with pytest.raises(BodyError):
        peer.answer(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), BLOB[:-1])
    assert peer.broker.messages.store.max_offset("T", 0) == 0


@pytest.mark.parametrize("language", [LanguageCode.JAVA, LanguageCode.CPP])
def test_a_batch_has_a_number_of_messages_that_it_may_have(language: LanguageCode) -> None:
    """One more is refused with the limit's name, and nothing is stored; so it is with librocketmq's batches."""
    peer = Peer(batch_messages_max=2)
    send = send_as if language == LanguageCode.CPP else send_batch_as
    assert send(peer, language, BLOB).code == 0
    refused = send(peer, language, BLOB + encode_batch([BatchRecord(0, b"b3", "")]))
    assert (refused.code, refused.remark) == (
        C.MESSAGE_ILLEGAL,
        "a batch may hold at most 2 messages (batch_messages_max)",
    )
    assert len(stored(peer)) == 2


def send_batch_as(peer: Peer, language: LanguageCode, blob: bytes) -> RemotingCommand:
    return peer.answer(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), blob, language=int(language))


def test_what_a_record_of_a_batch_says_of_delays_is_text(peer: Peer) -> None:
    """Stored at once in its own topic, as RocketMQ does (wire.md 4.4)."""
    blob = encode_batch([BatchRecord(0, b"b1", "DELAY\x013")])
    assert peer.answer(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), blob).code == 0
    assert stored(peer)[0].properties["DELAY"] == "3"


@pytest.mark.parametrize(("accepted", "count"), [(True, 2), (False, 1)])
def test_librocketmqs_batches(accepted: bool, count: int) -> None:
    """Marked "1", which Java reads as false and stores as one message; a setting (wire.md 4.4)."""
    peer = Peer(accept_cpp_batches=accepted)
    reply = send_as(peer, LanguageCode.CPP, BLOB)
    assert (reply.code, len(stored(peer))) == (0, count)


def test_only_well_formed_blobs_of_librocketmq_are_batches() -> None:
    """Others are messages like any; so is the same from another language."""
    peer = Peer()
    assert send_as(peer, LanguageCode.CPP, b"just text").code == 0
    assert send_as(peer, LanguageCode.JAVA, BLOB).code == 0
    assert [message.body for message in stored(peer)] == [b"just text", BLOB]


def send_as(peer: Peer, language: LanguageCode, body: bytes) -> RemotingCommand:
    """A JSON request of another language, which our encoder does not write."""
    fields = dict(zip("abcdefgh", ["P", "T", "TBW102", "4", "0", "0", "1", "0"], strict=True))
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, body=body, ext_fields={**fields, "m": "1"})
    command.language = int(language)
    reply = Answers(peer.broker).answer(peer.connection, command)
    assert reply is not None
    return reply


def test_properties_with_a_lone_surrogate_are_stored_readable() -> None:
    """JSON can carry what UTF-8 cannot."""
    peer = Peer()
    assert peer.send(properties="k\x01\ud800").code == 0
    assert stored(peer)[0].properties["k"] == "?"


# Send sequences ----------------------------------------------------------------------------------------------------


def test_sends_of_a_sequence_are_stored_in_their_turn_or_refused(peer: Peer) -> None:
    """A refused one stops all behind it, until it is repeated or a new generation begins."""

    def numbered(generation: int, sequence: int, **fields: Any) -> int:
        return peer.send(sender_id="p1", send_generation=generation, send_sequence=sequence, **fields).code

    assert [numbered(0, 0), numbered(0, 1)] == [0, 0]
    assert numbered(0, 2, body=bytes(5 << 20)) == C.MESSAGE_ILLEGAL
    assert [numbered(0, 3), numbered(0, 4)] == [C.SEND_OUT_OF_SEQUENCE] * 2
    assert [numbered(1, 0), numbered(0, 2), numbered(1, 1)] == [0, C.SEND_OUT_OF_SEQUENCE, 0]
    assert peer.broker.messages.store.max_offset("T", 0) == 4
    assert peer.send().code == 0


def test_a_batch_is_one_step_of_a_sequence(peer: Peer) -> None:
    """Two messages, one number."""
    fields: dict[str, Any] = {"sender_id": "p1", "send_generation": 0}
    header = send_header(batch=True, send_sequence=0, **fields)
    assert peer.answer(RequestCode.SEND_BATCH_MESSAGE, header, BLOB).code == 0
    assert peer.send(send_sequence=1, **fields).code == 0


def test_a_send_without_a_topic_is_refused_in_good_order() -> None:
    """With the two fields of every reply to a send; one that lacks another field has none, as from RocketMQ."""
    peer = Peer()
    fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    reply = peer.answer(RequestCode.SEND_MESSAGE_V2, ext_fields={"e": "0"})
    assert (reply.code, dict(reply.ext_fields or {})) == (ResponseCode.SYSTEM_ERROR, fields)
    with pytest.raises(HeaderError, match="queue_id"):
        peer.answer(RequestCode.SEND_MESSAGE_V2, ext_fields={"b": "T"})
