"""From a message to its command: which messages may be sent, and the fields on the wire (wire.md 4, 12.11)."""

from typing import Any

import pytest

from lockstep.client import Message, MessageQueue, ProducerConfig, SendError, SendOutcome
from lockstep.client.producer.answers import read_send_reply
from lockstep.client.producer.request import SendRequests, common_sharding_key
from lockstep.client.producer.request_reply import ReplyMessage
from lockstep.client.producer.sequencer import SequenceNumber
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers.messaging import SendMessageRequestHeaderV2, SendMessageResponseHeader
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.messages.ids import UniqueKeyMaker
from lockstep.protocol.messages.properties import decode_properties
from lockstep.protocol.names import RESERVED_TOPICS
from lockstep.protocol.namespace import NamesOfTenant
from tests.remoting.helpers import SteppedRuntime

QUEUE = MessageQueue("T", "broker-a", 2)


def requests(**config: Any) -> SendRequests:
    keys = UniqueKeyMaker(bytes((10, 0, 0, 1)), 7, 9)
    return SendRequests("producers", ProducerConfig(**config), "10.0.0.1@7#9", keys, SteppedRuntime())


async def test_a_message_becomes_a_send() -> None:
    """Every field of the header, and the properties as Java sets them."""
    message = Message(
        "T", b"body", tags="TagA", keys=["k1", "k2"], sharding_key="own", properties={"colour": "red"}, flag=5
    )
    maker = requests()
    outgoing = maker.outgoing(message, "given")
    command = maker.command(QUEUE, outgoing)
    header = command.header
    assert isinstance(header, SendMessageRequestHeaderV2)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert command.body == b"body"
    assert (header.producer_group, header.topic, header.default_topic) == ("producers", "T", "TBW102")
    assert (header.default_topic_queue_nums, header.queue_id, header.flag, header.sys_flag) == (4, 2, 5, 0)
    assert (header.batch, header.unit_mode, header.reconsume_times) == (False, False, 0)
    assert header.born_timestamp == 1_700_000_000_000
    assert (header.send_generation, header.send_sequence, header.sender_id) == (None, None, None)
    assert decode_properties(header.properties or "") == {
        "colour": "red",
        "KEYS": "k1 k2",
        "TAGS": "TagA",
        "__SHARDINGKEY": "given",
        "UNIQ_KEY": outgoing.msg_id,
        "WAIT": "true",
    }
    assert message.sharding_key == "own", "a caller's message is not changed"


async def test_a_numbered_send_names_its_sequence() -> None:
    """To a peer that agreed: the producer, the generation and the number."""
    maker = requests()
    command = maker.command(QUEUE, maker.outgoing(Message("T", b"x"), None), SequenceNumber(3, 17, 99))
    header = command.header
    assert isinstance(header, SendMessageRequestHeaderV2)
    assert (header.sender_id, header.send_generation, header.send_sequence) == ("producers@10.0.0.1@7#9", 3, 17)


async def test_every_message_has_an_id_of_its_own() -> None:
    """A repeat keeps the id: it belongs to the message, not to the attempt."""
    maker = requests()
    outgoings = [maker.outgoing(Message("T", b"x"), None) for _ in range(100)]
    assert len({outgoing.msg_id for outgoing in outgoings}) == 100
    first, second = (maker.command(QUEUE, outgoings[0]).header for _ in range(2))
    assert first == second


@pytest.mark.parametrize("topic", [*sorted(RESERVED_TOPICS), "", "a b", "x" * 128, "sch\u00f6n"])
async def test_topics_nobody_may_send_to(topic: str) -> None:
    """Reserved and illegal names are refused here, and stay refused."""
    maker = requests()
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="topic"):
            maker.outgoing(Message(topic, b"x"), None)


async def test_limits_of_a_body() -> None:
    """From one byte to maxMessageSize; text is not bytes."""
    maker = requests(body_bytes_max=100)
    maker.outgoing(Message("T", b"x"), None)
    maker.outgoing(Message("T", b"x" * 100), None)
    for body in (b"", b"x" * 101):
        with pytest.raises(LocalProtocolError, match=f"1 to 100 bytes, not {len(body)}"):
            maker.outgoing(Message("T", body), None)
    text: Any = "text"
    with pytest.raises(LocalProtocolError, match="must be bytes, not str"):
        maker.outgoing(Message("T", text), None)


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "WAIT", "TRAN_MSG", "RETRY_TOPIC", "MIN_OFFSET"])
async def test_reserved_properties(name: str) -> None:
    """RocketMQ's own names are not for users (wire.md 4.3)."""
    with pytest.raises(LocalProtocolError, match="choose another name"):
        requests().outgoing(Message("T", b"x", properties={name: "v"}), None)


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", tags="a\x02DELAY\x013"),
        Message("T", b"x", keys="k\x01"),
        Message("T", b"x", sharding_key="k\x02"),
        Message("T", b"x", properties={"n": "v\x02"}),
        Message("T", b"x", properties={"n\x01": "v"}),
    ],
    ids=["tags", "keys", "sharding key", "value", "name"],
)
async def test_nothing_breaks_out_of_its_property(message: Message) -> None:
    """Separators of the property string are refused in every text, or a tag could set a delay."""
    with pytest.raises(LocalProtocolError, match="0x01"):
        requests().outgoing(message, message.sharding_key)


async def test_properties_over_their_limit() -> None:
    """The stored length is 16 bits (wire.md 4.2): refused here, not by a torn batch."""
    with pytest.raises(LocalProtocolError, match="32767"):
        requests().outgoing(Message("T", b"x", properties={"n": "v" * 32_767}), None)


async def test_properties_are_measured_in_bytes() -> None:
    """Two bytes a letter: 20 000 of them are refused by name, alone and in a batch, and 10 000 are not."""
    maker = requests()
    for size, good in ((10_000, True), (20_000, False)):
        message = Message("T", b"x", properties={"n": "\u00fc" * size})
        if good:
            maker.outgoing(message, None)
            maker.outgoing_batch([message], None)
            continue
        with pytest.raises(LocalProtocolError, match="32767"):
            maker.outgoing(message, None)
        with pytest.raises(LocalProtocolError, match="31743"):
            maker.outgoing_batch([message], None)


async def test_text_that_is_no_text_becomes_question_marks_in_a_batch_too() -> None:
    """Half a surrogate pair, as a single message would have it."""
    outgoing = requests().outgoing_batch([Message("T", b"x", properties={"n": "a\ud800"})], None)
    [record] = decode_batch(outgoing.body)
    assert decode_properties(record.properties)["n"] == "a?"


# Batches -----------------------------------------------------------------------------------------------------


async def test_a_batch_is_one_command() -> None:
    """Its records carry flag, body and properties of each message, its id all ids."""
    maker = requests()
    messages = [Message("T", b"b%d" % i, tags=f"t{i}", flag=i) for i in range(3)]
    outgoing = maker.outgoing_batch(messages, "key")
    command = maker.command(QUEUE, outgoing)
    records = decode_batch(command.body)
    ids = outgoing.msg_id.split(",")
    header = command.header
    assert isinstance(header, SendMessageRequestHeaderV2)
    assert (command.code, header.batch, header.properties) == (RequestCode.SEND_BATCH_MESSAGE, True, "")
    assert [(record.flag, record.body) for record in records] == [(0, b"b0"), (1, b"b1"), (2, b"b2")]
    properties = [decode_properties(record.properties) for record in records]
    assert [found["UNIQ_KEY"] for found in properties] == ids
    assert [(found["TAGS"], found["__SHARDINGKEY"]) for found in properties] == [(f"t{i}", "key") for i in range(3)]
    assert [message.sharding_key for message in messages] == [None] * 3, "a caller's messages are not changed"


async def test_what_is_no_batch() -> None:
    """Empty, of several topics, with one bad message, or too large as a whole."""
    maker = requests(body_bytes_max=100)
    with pytest.raises(LocalProtocolError, match="at least one message"):
        maker.outgoing_batch([], None)
    with pytest.raises(LocalProtocolError, match="one topic, not both 'T' and 'U'"):
        maker.outgoing_batch([Message("T", b"x"), Message("U", b"x")], None)
    with pytest.raises(LocalProtocolError, match="1 to 100 bytes, not 0"):
        maker.outgoing_batch([Message("T", b"x"), Message("T", b"")], None)
    with pytest.raises(LocalProtocolError, match="1 to 100 bytes"):
        maker.outgoing_batch([Message("T", b"x" * 60)] * 2, None)
    with pytest.raises(LocalProtocolError, match="cannot be delayed"):
        maker.outgoing_batch([Message("T", b"x"), Message("T", b"x", delay_level=1)], None)


async def test_a_message_of_a_batch_has_room_for_the_brokers_properties() -> None:
    """A broker adds CLUSTER to each. RocketMQ writes the length as an int16, unchecked."""
    maker = requests()
    fits, too_long = (Message("T", b"x", properties={"n": "v" * count}) for count in (31_600, 31_743))
    maker.outgoing_batch([Message("T", b"x"), fits], None)
    with pytest.raises(LocalProtocolError, match="over 31743 bytes, the most RocketMQ stores in a batch"):
        maker.outgoing_batch([Message("T", b"x"), too_long], None)
    maker.outgoing(too_long, None)


async def test_a_delay_level_is_a_property() -> None:
    """Of the broker's levels, which may have more than 18; none below zero."""
    maker = requests()
    outgoing = maker.outgoing(Message("T", b"x", delay_level=19), None)
    assert decode_properties(outgoing.properties)["DELAY"] == "19"
    with pytest.raises(LocalProtocolError, match="0 or above"):
        maker.outgoing(Message("T", b"x", delay_level=-1), None)


def test_the_key_of_a_batch() -> None:
    """A batch goes to one queue, so its messages have one key or none."""
    keyed = [Message("T", b"x", sharding_key="k"), Message("T", b"y", sharding_key="k")]
    assert common_sharding_key(keyed) == "k"
    assert common_sharding_key([Message("T", b"x")] * 2) is None
    assert common_sharding_key([]) is None
    for mixed in ([*keyed, Message("T", b"z", sharding_key="other")], [*keyed, Message("T", b"z")]):
        with pytest.raises(LocalProtocolError, match="a batch goes to one queue"):
            common_sharding_key(mixed)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([Message("%RETRY%group", b"x")], "cannot be sent as a batch"),
        ([ReplyMessage("c_REPLY_TOPIC", b"x", correlation_id="1", reply_to_client="c", ttl="1")], "a reply cannot"),
    ],
)
async def test_what_a_batch_may_not_hold(messages: list[Message], reason: str) -> None:
    """wire.md 4.4."""
    with pytest.raises(LocalProtocolError, match=reason):
        requests().outgoing_batch(messages, None)


# Messages with a purpose -------------------------------------------------------------------------------------


async def test_a_half_message() -> None:
    """wire.md 11: two properties and the prepared bit, beside everything that any message has."""
    maker = requests()
    header = maker.command(QUEUE, maker.outgoing(Message("T", b"x" * 5000, tags="A"), "k", half=True)).header
    assert isinstance(header, SendMessageRequestHeaderV2)
    properties = decode_properties(header.properties or "")
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "producers")
    assert {"TAGS", "__SHARDINGKEY", "UNIQ_KEY", "WAIT"} < set(properties)
    assert header.sys_flag == 0x4 | 0x301


async def test_a_reply() -> None:
    """wire.md 2.1: it has its own code and the fields that lead it to the client that asked; its topic has no
    namespace."""
    keys = UniqueKeyMaker(bytes(4), 7, 9)
    tenant = NamesOfTenant("ns")
    maker = SendRequests("ns%g", ProducerConfig(), "c", keys, SteppedRuntime(), tenant=tenant)
    reply = ReplyMessage("C_REPLY_TOPIC", b"x", correlation_id="id", reply_to_client="client", ttl="3000")
    outgoing = maker.outgoing(reply, None)
    assert (outgoing.code, outgoing.topic) == (RequestCode.SEND_REPLY_MESSAGE_V2, "C_REPLY_TOPIC")
    properties = decode_properties(outgoing.properties)
    expected = {"MSG_TYPE": "reply", "CORRELATION_ID": "id", "REPLY_TO_CLIENT": "client", "TTL": "3000"}
    assert expected.items() < properties.items()
    plain = maker.outgoing(Message("T", b"x"), None)
    assert (plain.topic, decode_properties(plain.properties)["INSTANCE_ID"]) == ("ns%T", "ns")
    assert maker.outgoing_batch([Message("T", b"x")] * 2, None).topic == "ns%T"


# Replies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [(0, "SEND_OK"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")],
)
async def test_three_codes_mean_stored(code: int, status: str) -> None:
    """Under the names of Java's SendStatus, with the broker's queue and offset."""
    outgoing = requests().outgoing(Message("T", b"x"), None)
    reply = RemotingCommand(code, SendMessageResponseHeader("OFFSETID", 1, 41))
    result = read_send_reply(reply, QUEUE, outgoing)
    assert (result.status, result.msg_id, result.offset_msg_id) == (status, outgoing.msg_id, "OFFSETID")
    assert (result.queue, result.queue_id, result.queue_offset) == (QUEUE._replace(queue_id=1), 1, 41)


@pytest.mark.parametrize("remark", [None, "/data/commitlog/0 cannot be put on the disk: Input/output error"])
async def test_what_may_not_be_on_the_disk_is_unknown(remark: str | None) -> None:
    """The broker has it in its log, and it may be lost with the machine; Java's SendStatus says so too."""
    outgoing = requests().outgoing(Message("T", b"x"), None)
    reply = RemotingCommand(
        ResponseCode.FLUSH_DISK_TIMEOUT, SendMessageResponseHeader("OFFSETID", 1, 41), remark=remark
    )
    with pytest.raises(SendError) as caught:
        read_send_reply(reply, QUEUE, outgoing)
    assert (caught.value.outcome, caught.value.code) == (SendOutcome.UNKNOWN, 10)
    assert caught.value.reason == f"FLUSH_DISK_TIMEOUT (10){': ' + remark if remark else ''}"


async def test_a_half_message_that_may_not_be_on_the_disk_is_known_by_its_status() -> None:
    """Its producer rolls it back and needs its offset."""
    outgoing = requests().outgoing(Message("T", b"x"), None, half=True)
    reply = RemotingCommand(ResponseCode.FLUSH_DISK_TIMEOUT, SendMessageResponseHeader("OFFSETID", 1, 41))
    assert read_send_reply(reply, QUEUE, outgoing).status == "FLUSH_DISK_TIMEOUT"


async def test_every_other_code_is_a_refusal() -> None:
    """With the code, its name and the broker's reason."""
    outgoing = requests().outgoing(Message("T", b"x"), None)
    reply = RemotingCommand(ResponseCode.MESSAGE_ILLEGAL, remark="too long")
    with pytest.raises(SendError, match=r"refused: MESSAGE_ILLEGAL \(13\): too long") as caught:
        read_send_reply(reply, QUEUE, outgoing)
    assert (caught.value.outcome, caught.value.code) == (SendOutcome.REFUSED, 13)
    assert caught.value.msg_id == outgoing.msg_id


async def test_a_success_without_its_fields_is_unknown() -> None:
    """The broker said yes and not where: it may be stored."""
    outgoing = requests().outgoing(Message("T", b"x"), None)
    with pytest.raises(SendError, match="msgId") as caught:
        read_send_reply(RemotingCommand(0, ext_fields={"queueId": "1"}), QUEUE, outgoing)
    assert caught.value.outcome is SendOutcome.UNKNOWN
