"""Requests that a broker passes on to consumers and answers later: codes 222, 223, 307, 309 (wire.md 2.2, 2.4)."""

import pytest

from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.protocol.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from lockstep.protocol.headers.messaging import (
    CreateTopicRequestHeader,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import ConnectionLost, RequestTimeout
from tests.broker.helpers import NOW_MS, FakeConnection, Peer, consumer, over_the_wire
from tests.rows import by_row

R, C = RequestCode, ResponseCode
JSON, MSGPACK = SerializeType.JSON, SerializeType.MSGPACK
T = SubscriptionData.parse("T", "*", 1)
Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
RUNNING = ConsumerRunningInfo({"PROP_CONSUMEORDERLY": "true"}, (T,), {}, {})
ASK_RUNNING = GetConsumerRunningInfoRequestHeader("G", "a")


class World:
    """An administrator and a consumer "a" of group G, each with an encoding of its own."""

    def __init__(self, admin: SerializeType = JSON, client: SerializeType = JSON) -> None:
        self.admin = Peer(admin)
        self.client = Peer(
            client, broker=self.admin.broker, connection=FakeConnection("127.0.0.1:50001", serialize_type=client)
        )
        self.client.heartbeat("a", consumer("G", T))
        self.client.connection.pushed.clear()

    def question(self) -> RemotingCommand:
        """What the consumer was asked last."""
        return self.client.connection.asked[-1][0]

    def answer(self, body: WireBody, code: int = 0, remark: str | None = None) -> None:
        """Let the consumer answer in its encoding."""
        encoding = self.client.encoding
        question, _, then = self.client.connection.asked.pop()
        question.serialize_type = encoding
        then(question.reply(code, body=encode_body(body, encoding), remark=remark))

    def reply(self) -> RemotingCommand:
        """What the administrator got."""
        (reply,) = self.admin.connection.replies
        return reply


@pytest.mark.parametrize("admin", [JSON, MSGPACK])
@pytest.mark.parametrize("client", [JSON, MSGPACK])
def test_a_consumer_is_asked_how_it_runs(admin: SerializeType, client: SerializeType) -> None:
    """The administrator gets the consumer's answer, in its own encoding, when it comes."""
    world = World(admin, client)
    assert world.admin.call(R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING) is None
    question = world.question()
    assert (question.code, question.header, world.client.connection.asked[-1][1]) == (307, ASK_RUNNING, 10_000)
    assert world.admin.connection.replies == []
    world.answer(RUNNING)
    assert world.reply().code == 0
    assert decode_body(ConsumerRunningInfo, world.reply().body, admin) == RUNNING


def test_a_refusal_of_the_consumers_is_passed_back() -> None:
    """With its code and remark."""
    world = World()
    world.admin.call(R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING)
    _, _, then = world.client.connection.asked.pop()
    then(RemotingCommand(1, remark="no", flag=1))
    assert (world.reply().code, world.reply().remark) == (1, "no")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTimeout("127.0.0.1:50001", "x", 10_000), C.CONSUME_MSG_TIMEOUT),
        (ConnectionLost("127.0.0.1:50001", "gone"), C.SYSTEM_ERROR),
    ],
)
def test_a_consumer_that_does_not_answer_is_told_of(error: ConnectionLost | RequestTimeout, code: int) -> None:
    """The caller gets CONSUME_MSG_TIMEOUT after 10 s, or SYSTEM_ERROR when the consumer is gone."""
    world = World()
    world.admin.call(R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING)
    world.client.connection.asked.pop()[2](error)
    assert (world.reply().code, "<G> <a>" in str(world.reply().remark)) == (code, True)


def test_nonsense_from_a_consumer_is_an_error_and_no_exception() -> None:
    """When it must be written anew for the administrator."""
    world = World(MSGPACK, JSON)
    world.admin.call(R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING)
    _, _, then = world.client.connection.asked.pop()
    then(RemotingCommand(0, body=b"nonsense", flag=1))
    assert world.reply().code == C.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b" " * (1024 * 1024 + 1), "1048577 bytes are over the limit of 1048576"),
        (b"{properties:{" + b" " * (128 * 1024) + b"}}", "131087 bytes are over the limit of 131072"),
    ],
)
def test_an_answer_that_is_too_long_is_not_written_anew(body: bytes, says: str) -> None:
    """Of 1 MiB, and of 128 KiB where it is no strict JSON; the remark has both numbers."""
    world = World(MSGPACK, JSON)
    world.admin.call(R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING)
    _, _, then = world.client.connection.asked.pop()
    then(RemotingCommand(0, body=body, flag=1))
    assert world.reply().code == C.SYSTEM_ERROR
    assert says in str(world.reply().remark)


def test_an_answer_in_fastjsons_dialect_is_written_anew_up_to_its_limit() -> None:
    """As Java's clients write them, of some KiB."""
    world = World(MSGPACK, JSON)
    world.admin.call(R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING)
    _, _, then = world.client.connection.asked.pop()
    then(RemotingCommand(0, body=b"{properties:{a:'b'}" + b" " * (100 * 1024) + b"}", flag=1))
    assert decode_body(ConsumerRunningInfo, world.reply().body, MSGPACK).properties == {"a": "b"}


def test_a_consumer_that_is_not_online_is_not_asked() -> None:
    """SYSTEM_ERROR at once, in RocketMQ's words."""
    world = World()
    for group, client_id in [("G", "b"), ("H", "a")]:
        header = GetConsumerRunningInfoRequestHeader(group, client_id)
        reply = world.admin.answer(R.GET_CONSUMER_RUNNING_INFO, header)
        assert (reply.code, reply.remark) == (C.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    assert world.client.connection.asked == []


def test_a_one_way_question_is_never_answered() -> None:
    """As of any request."""
    world = World()
    world.admin.call(R.GET_CONSUMER_RUNNING_INFO, ASK_RUNNING, flag=2)
    world.answer(RUNNING)
    assert world.admin.connection.replies == []


def test_a_consumer_is_given_a_stored_message_to_consume() -> None:
    """The broker adds the message and its own name; the result goes back."""
    world = World()
    message_id = world.admin.send("T", b"hello").decode_header(SendMessageResponseHeader).msg_id
    header = ConsumeMessageDirectlyRequestHeader("G", "a", message_id)
    assert world.admin.call(R.CONSUME_MESSAGE_DIRECTLY, header) is None
    question = world.question()
    assert question.header == header._replace(broker_name="broker-a")
    assert [message.body for message in decode_messages(question.body)] == [b"hello"]
    result = ConsumeMessageDirectlyResult(False, True, CMResult.CR_SUCCESS, None, 3)
    world.answer(result)
    assert decode_body(ConsumeMessageDirectlyResult, world.reply().body, JSON) == result


@pytest.mark.parametrize("message_id", [None, "nonsense", "7F00000100002A9F0000000000000007"])
def test_a_message_that_is_not_here_is_not_passed_on(message_id: str | None) -> None:
    """Nor one whose id is none."""
    world = World()
    reply = world.admin.answer(R.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader("G", "a", message_id))
    assert (reply.code, world.client.connection.asked) == (C.SYSTEM_ERROR, [])


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_every_member_is_asked_for_its_offsets(encoding: SerializeType) -> None:
    """The reply holds all answers, and is sent when the last one has arrived or failed."""
    world = World(encoding, encoding)
    other = world.client.beside("127.0.0.1:50002")
    other.heartbeat("b", consumer("G", T))
    header = ConsumerStatusRequestHeader("T", "G")
    assert world.admin.call(R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header) is None
    assert world.question().code == R.GET_CONSUMER_STATUS_FROM_CLIENT
    world.answer(GetConsumerStatusBody({Q0: 5}, {}))
    assert world.admin.connection.replies == []
    other.connection.asked.pop()[2](RequestTimeout("127.0.0.1:50002", "x", 5000))
    assert decode_body(GetConsumerStatusBody, world.reply().body, encoding).consumer_table == {"a": {Q0: 5}}


def test_answers_of_members_are_left_out_when_one_frame_cannot_carry_them() -> None:
    """Of 20 members that answer with 1 MiB each, 15 are in the reply."""
    world = World()
    for number in range(19):
        world.client.beside(f"127.0.0.1:{50_002 + number}").heartbeat(f"b{number}", consumer("G", T))
    members = list(world.admin.broker.members.consumers.groups["G"].channels)
    world.admin.call(R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader("T", "G"))
    answer = encode_body(GetConsumerStatusBody({}, {}), JSON).ljust(1024 * 1024)
    for member in members:
        assert isinstance(member, FakeConnection)
        question, _, then = member.asked.pop()
        then(question.reply(0, body=answer))
    assert len(decode_body(GetConsumerStatusBody, world.reply().body, JSON).consumer_table) == 15


def test_one_member_is_asked_for_its_offsets() -> None:
    """It is named by its client id; a group without members is an error."""
    world = World()
    other = world.client.beside("127.0.0.1:50002")
    other.heartbeat("b", consumer("G", T))
    world.admin.call(R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader("T", "G", "b"))
    assert (len(world.client.connection.asked), len(other.connection.asked)) == (0, 1)
    nobody = world.admin.answer(R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader("T", "H"))
    assert (nobody.code, nobody.remark) == (C.SYSTEM_ERROR, "No Any Consumer online in the consumer group: [H]")


# Reset ------------------------------------------------------------------------------------------------------------


class Reset(World):
    """A topic of two queues; the first has three messages, stored 1 s apart, and G is at 2 in it."""

    def __init__(self) -> None:
        super().__init__()
        self.admin.answer(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("T", "TBW102", 2, 2, 6))
        for _ in range(3):
            self.admin.send("T")
            self.admin.now_ms += 1000
        for queue_id, offset in enumerate((2, 0)):
            header = UpdateConsumerOffsetRequestHeader("G", "T", queue_id, offset)
            self.admin.answer(R.UPDATE_CONSUMER_OFFSET, header)

    def reset(
        self,
        timestamp: int,
        *,
        force: bool = False,
        topic: str = "T",
        cpp: bool = False,
        serialize_type: SerializeType = JSON,
    ) -> RemotingCommand:
        header = ResetOffsetRequestHeader(topic, "G", timestamp, force)
        command = RemotingCommand(R.INVOKE_BROKER_TO_RESET_OFFSET, header, serialize_type=serialize_type)
        command = over_the_wire(command)
        command.language = LanguageCode.CPP if cpp else LanguageCode.JAVA
        broker, connection = self.admin.broker, self.admin.connection
        reply = Answers(broker).answer(connection, command)
        assert reply is not None
        return reply

    def pushed(self) -> RemotingCommand:
        (push,) = self.client.connection.pushed
        assert push.code == R.RESET_CONSUMER_CLIENT_OFFSET
        return push


@pytest.mark.parametrize(
    ("timestamp", "force", "offsets"),
    [
        (-1, True, {Q0: 3, Q1: 0}),
        (-1, False, {Q0: 2, Q1: 0}),
        (NOW_MS, False, {Q0: 0, Q1: 0}),
        (NOW_MS + 2000, True, {Q0: 2, Q1: 0}),
    ],
)
def test_members_are_told_where_to_go_on(timestamp: int, force: bool, offsets: dict[MessageQueue, int]) -> None:
    """-1 is the end; forwards only with force. The broker's own offsets stay: the clients write them."""
    world = Reset()
    reply = world.reset(timestamp, force=force)
    assert decode_body(ResetOffsetBody, reply.body, JSON).offset_table == offsets
    assert decode_body(ResetOffsetBody, world.pushed().body, JSON).offset_table == offsets
    assert world.pushed().header == ResetOffsetRequestHeader("T", "G", timestamp, False)
    assert world.admin.broker.catalog.offsets.query("G", "T", 0) == 2


@by_row(
    "later_ms, rocketmq, ours",
    [(0, 0, 0), (1, 0, 1), (999, 1, 1), (1000, 1, 1), (1001, 1, 2), (2000, 2, 2), (2001, 2, 3), (10**9, 2, 3)],
)
def test_our_own_tools_get_the_first_message_from_the_time_on(later_ms: int, rocketmq: int, ours: int) -> None:
    """RocketMQ's get the nearest one, which may be older: after the last message the last one (wire.md 17.5)."""
    world = Reset()
    reply = world.reset(NOW_MS + later_ms, force=True)
    assert decode_body(ResetOffsetBody, reply.body, JSON).offset_table == {Q0: rocketmq, Q1: 0}
    reply = world.reset(NOW_MS + later_ms, force=True, serialize_type=MSGPACK)
    assert decode_body(ResetOffsetBody, reply.body, MSGPACK).offset_table == {Q0: ours, Q1: 0}


def test_the_form_for_cpp_is_used_when_the_asker_is_cpp() -> None:
    """A list in the push, whoever the client is; the reply is the same as ever."""
    world = Reset()
    reply = world.reset(-1, force=True, cpp=True)
    assert decode_body(ResetOffsetBodyForC, world.pushed().body, JSON).offset_table == {Q0: 3, Q1: 0}
    assert decode_body(ResetOffsetBody, reply.body, JSON).offset_table == {Q0: 3, Q1: 0}


def test_each_member_is_told_in_its_own_encoding() -> None:
    """A member that speaks MSGPACK among others that do not."""
    world = Reset()
    other = FakeConnection("127.0.0.1:50002", serialize_type=MSGPACK)
    Peer(MSGPACK, broker=world.admin.broker, connection=other).heartbeat("b", consumer("G", T))
    world.client.connection.pushed.clear()
    world.reset(-1)
    push = other.pushed[-1]
    assert decode_body(ResetOffsetBody, push.body, MSGPACK).offset_table == {Q0: 2, Q1: 0}
    assert decode_body(ResetOffsetBody, world.pushed().body, JSON).offset_table == {Q0: 2, Q1: 0}


def test_a_group_that_nobody_is_in_cannot_be_reset_this_way() -> None:
    """CONSUMER_NOT_ONLINE, after which tools write the offsets themselves."""
    world = Reset()
    world.admin.broker.on_closed(world.client.connection)
    reply = world.reset(-1)
    remark = "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: -1"
    assert (reply.code, reply.remark) == (C.CONSUMER_NOT_ONLINE, remark)
    assert world.admin.broker.catalog.offsets.query("G", "T", 0) == 2


def test_a_group_without_an_offset_of_every_queue_cannot_be_reset() -> None:
    """Nor can a group of an unknown topic; no member gets a request."""
    world = Reset()
    assert world.reset(-1, topic="nowhere").code == C.SYSTEM_ERROR
    world.admin.answer(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("T", "TBW102", 3, 3, 6))
    reply = world.reset(-1)
    assert (reply.code, reply.remark) == (C.SYSTEM_ERROR, "THe consumer group <G> not exist")
    assert world.client.connection.pushed == []
