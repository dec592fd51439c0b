"""The admin client finds messages, and what each group did with them."""

from collections.abc import Callable

import pytest

from lockstep.client.admin.message_track import MessageTrack, TrackType, track_message
from lockstep.client.admin.messages import id_address
from lockstep.protocol.bodies.admin import ConsumeStats, GroupList, OffsetWrapper
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ResetOffsetBody
from lockstep.protocol.bodies.heartbeat import ConsumeType, MessageModel, SubscriptionData
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.headers.admin import QueryMessageRequestHeader, QueryMessageResponseHeader
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, PullMessageResponseHeader
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.remoting.errors import RequestRefused
from tests.client.messages import message_at, stored_bytes
from tests.client.stage import PORT, TOPIC, FakeBroker, Stage, on_stage, queue_at
from tests.rows import by_row

R, T = RequestCode, TrackType
KEYS, TAGS, UNIQ = "KEYS", "TAGS", "UNIQ_KEY"


async def two_brokers(stage: Stage) -> tuple[FakeBroker, FakeBroker]:
    brokers = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 2, "broker-b": 2})
    return brokers


def stored(offset: int, **properties: str) -> bytes:
    return stored_bytes(offset, topic=TOPIC, properties=properties)


# Ids ---------------------------------------------------------------------------------------------------------


def test_an_offset_message_id_names_its_broker() -> None:
    """Of either family; a producer's own id looks alike, but its port is none."""
    assert id_address("0A00000100002A9F0000000000000007") == "10.0.0.1:10911"
    assert id_address(encode_offset_message_id(bytes(15) + b"\1", 80, 0)) == "[::1]:80"
    for text in (
        "7F00000168F50CBFDFBD6C9AD6320003",
        "",
        "no hex",
        "0A00000100002A9F",
        "0A0000010000000000000000000000FF",
    ):
        with pytest.raises(ValueError, match=r".*"):
            id_address(text)


@on_stage
async def test_a_message_is_asked_of_the_broker_in_its_id(stage: Stage) -> None:
    """By its commit log offset. The broker's name comes from the cluster, and the result is one message."""
    first, second = await two_brokers(stage)
    second.on[R.VIEW_MESSAGE_BY_ID] = lambda command: command.reply(ResponseCode.SUCCESS, body=stored(7))
    host = bytes(map(int, second.runtime.address.split(".")))
    async with stage.admin() as admin:
        message = await admin.view_message(encode_offset_message_id(host, PORT, 7000))
        second.on[R.VIEW_MESSAGE_BY_ID] = lambda command: command.reply(ResponseCode.SUCCESS, body=stored(7) * 2)
        with pytest.raises(RemoteProtocolError, match="2 messages instead of one"):
            await admin.view_message(encode_offset_message_id(host, PORT, 7000))
    assert (message.queue_offset, message.broker_name) == (7, "broker-b")
    assert first.requests(R.VIEW_MESSAGE_BY_ID) == []


# Keys --------------------------------------------------------------------------------------------------------


def finds(*messages: bytes) -> Callable[[RemotingCommand], RemotingCommand]:
    def answer(command: RemotingCommand) -> RemotingCommand:
        if not messages:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark="nothing")
        return command.reply(ResponseCode.SUCCESS, QueryMessageResponseHeader(0, 0), b"".join(messages))

    return answer


@on_stage
async def test_messages_of_a_key_come_from_every_broker(stage: Stage) -> None:
    """Messages that share only the key's hash, or belong to another topic, are left out; each broker returns at most
    64."""
    first, second = await two_brokers(stage)
    first.on[R.QUERY_MESSAGE] = finds(stored(1, **{KEYS: "a b"}), stored(2, **{KEYS: "ab"}), stored(3, **{KEYS: "b"}))
    second.on[R.QUERY_MESSAGE] = finds()
    async with stage.admin() as admin:
        found = await admin.query_messages(TOPIC, "b", begin_ms=5, end_ms=9, count_max=100)
        second.on[R.QUERY_MESSAGE] = finds(stored(9, **{KEYS: "b"}), stored_bytes(4, properties={KEYS: "b"}))
        newest = await admin.query_messages(TOPIC, "b", count_max=2)
        second.answers(R.QUERY_MESSAGE, ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RequestRefused, match="so says the test"):
            await admin.query_messages(TOPIC, "b")
    assert [(message.broker_name, message.queue_offset) for message in found] == [("broker-a", 1), ("broker-a", 3)]
    assert [(message.broker_name, message.queue_offset) for message in newest] == [("broker-a", 3), ("broker-b", 9)]
    asked = first.requests(R.QUERY_MESSAGE)[0].decode_header(QueryMessageRequestHeader)
    assert asked == (TOPIC, "b", 64, 5, 9, None)


@on_stage
async def test_a_message_is_found_by_its_own_id(stage: Stage) -> None:
    """The request says that the key is a UNIQ_KEY; the same text in KEYS does not count."""
    broker = await stage.broker(queues=1)
    broker.on[R.QUERY_MESSAGE] = finds(stored(1, **{UNIQ: "U"}), stored(2, **{KEYS: "U", UNIQ: "V"}))
    async with stage.admin() as admin:
        assert [m.queue_offset for m in await admin.query_messages(TOPIC, "U", unique=True)] == [1]
    assert broker.requests(R.QUERY_MESSAGE)[0].decode_header(QueryMessageRequestHeader).unique_key_query is True


# Queues ------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_queue_is_read_without_a_group_of_ones_own(stage: Stage) -> None:
    """As the tools of RocketMQ do: their group, the subscription in the request, nothing committed."""
    broker = await stage.broker(queues=1)
    bounds = PullMessageResponseHeader(0, 7, 1, 9)
    body = stored(5, **{TAGS: "red"}) + stored(6, **{TAGS: "blue"})
    broker.on[R.PULL_MESSAGE] = lambda command: command.reply(ResponseCode.SUCCESS, bounds, body)
    async with stage.admin() as admin:
        found = await admin.read_queue(queue_at(0), 5, expression="red", wait_ms=15_000)
        assert ([m.queue_offset for m in found.messages], found[1:]) == ([5], (7, 1, 9))
        broker.on[R.PULL_MESSAGE] = lambda command: command.reply(ResponseCode.PULL_OFFSET_MOVED, bounds)
        assert await admin.read_queue(queue_at(0), 100) == ([], 7, 1, 9)
        broker.answers(R.PULL_MESSAGE, ResponseCode.TOPIC_NOT_EXIST)
        with pytest.raises(RequestRefused, match="so says the test"):
            await admin.read_queue(queue_at(0), 0)
    waiting, short, _ = [command.decode_header(PullMessageRequestHeader) for command in broker.requests(R.PULL_MESSAGE)]
    assert waiting[:11] == ("TOOLS_CONSUMER", TOPIC, 0, 5, 32, 2 | 4, 0, 15_000, 0, "red", "TAG")
    assert (short.sys_flag, short.suspend_timeout_millis) == (4, 0)


# Tracks ------------------------------------------------------------------------------------------------------


def online(
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    model: MessageModel = MessageModel.CLUSTERING,
    expression: str = "*",
) -> ConsumerConnection:
    connection = Connection("c", "10.0.0.9:1", LanguageCode.JAVA, 399)
    return ConsumerConnection((connection,), {TOPIC: SubscriptionData.parse(TOPIC, expression)}, consume_type, model)


def at(offset: int) -> ConsumeStats:
    return ConsumeStats({queue_at(0): OffsetWrapper(9, offset, 1)})


OFFLINE, BROKEN = ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR


@by_row(
    "members, progress, expected",
    [
        (OFFLINE, at(9), T.NOT_ONLINE),
        (online(ConsumeType.CONSUME_ACTIVELY), at(9), T.PULL),
        (online(model=MessageModel.BROADCASTING), at(9), T.CONSUME_BROADCASTING),
        (online(), at(5), T.NOT_CONSUME_YET),
        (online(), at(6), T.CONSUMED),
        (online(), ConsumeStats({}), T.NOT_CONSUME_YET),
        (online(), BROKEN, T.NOT_CONSUME_YET),
        (online(expression="red || blue"), at(6), T.CONSUMED),
        (online(expression="blue"), at(6), T.CONSUMED_BUT_FILTERED),
        (BROKEN, at(9), T.UNKNOWN),
    ],
)
@on_stage
async def test_what_a_group_did_with_a_message(
    stage: Stage, members: ConsumerConnection | int, progress: ConsumeStats | int, expected: TrackType
) -> None:
    """By its members and its offset: the message at 5 is consumed by whoever is at 6."""
    broker = await stage.broker(queues=1)
    broker.answers(R.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(("g",)))
    broker.answers(R.GET_CONSUMER_CONNECTION_LIST, members)
    broker.answers(R.GET_CONSUME_STATS, progress)
    message = message_at(5, TAGS="red")
    message.topic = TOPIC
    async with stage.admin() as admin:
        (found,) = await track_message(admin, message)
    assert found[:2] == MessageTrack("g", expected)[:2]
    assert (found.reason is not None) == (expected is T.UNKNOWN)


# Resets ------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_reset_is_told_through_every_broker(stage: Stage) -> None:
    """One without a member is passed by; with none anywhere the caller must store the offsets."""
    first, second = await two_brokers(stage)
    first.answers(R.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetBody({queue_at(0): 3}), OFFLINE)
    second.answers(R.INVOKE_BROKER_TO_RESET_OFFSET, OFFLINE, OFFLINE, BROKEN)
    async with stage.admin() as admin:
        assert await admin.reset_offsets("g", TOPIC, 17) == {queue_at(0): 3}
        assert await admin.reset_offsets("g", TOPIC) is None
        with pytest.raises(RequestRefused, match="so says the test"):
            await admin.reset_offsets("g", TOPIC)
