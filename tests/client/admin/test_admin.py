"""AdminClient: its requests, its results, and its errors."""

import pytest

from lockstep.client import AdminClient, NoRouteError, NotLockstepError, TopicNotFoundError
from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.broker import ConsumerGroupList, ConsumerIdList, TopicList
from lockstep.protocol.bodies.lock_changes import LockChange, LockChangesBody
from lockstep.protocol.bodies.locks import LockTableBody, LockTableRow
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers.messaging import (
    CreateTopicRequestHeader,
    ListLockChangesRequestHeader,
    ListLocksRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.remoting.errors import RequestRefused
from tests.client.messages import stored_bytes
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at
from tests.rows import by_row

LOCKS, GROUPS = RequestCode.LIST_LOCKS, RequestCode.LIST_CONSUMER_GROUPS
IDS = RequestCode.GET_CONSUMER_LIST_BY_GROUP


async def two_brokers(stage: Stage) -> tuple[FakeBroker, FakeBroker]:
    brokers = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 2, "broker-b": 2})
    return brokers


def row(group: str, queue_id: int, broker: str) -> LockTableRow:
    return LockTableRow(group, queue_at(queue_id, broker), "c", 1, 2, 3)


@on_stage
async def test_topics(stage: Stage) -> None:
    """The list is sorted; a route is returned; an unknown topic is an error with its own type."""
    first, _ = await two_brokers(stage)
    first.answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(("b", "a")))
    async with stage.admin() as admin:
        assert await admin.topics() == ["a", "b"]
        assert len((await admin.route(TOPIC)).readable_queues(TOPIC)) == 4
        with pytest.raises(TopicNotFoundError, match="'Nowhere' does not exist"):
            await admin.route("Nowhere")


@on_stage
async def test_creating_a_topic(stage: Stage) -> None:
    """On every broker, or on the named one; a wrong name or number is refused before any request."""
    first, second = await two_brokers(stage)
    for broker in (first, second):
        broker.answers(RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SUCCESS)
    async with stage.admin() as admin:
        await admin.create_topic("New", 8)
        await admin.create_topic("Only", 1, broker_name="broker-b")
        with pytest.raises(NoRouteError, match="no broker named 'broker-z'"):
            await admin.create_topic("New", broker_name="broker-z")
        with pytest.raises(LocalProtocolError):
            await admin.create_topic("not a topic")
        with pytest.raises(ClientError, match="at least one queue"):
            await admin.create_topic("New", 0)
    made = [
        [command.decode_header(CreateTopicRequestHeader)[:5] for command in broker.requests(17)]
        for broker in (first, second)
    ]
    assert made[0] == [("New", "TBW102", 8, 8, 6)]
    assert made[1] == [("New", "TBW102", 8, 8, 6), ("Only", "TBW102", 1, 1, 6)]


@on_stage
async def test_offsets(stage: Stage) -> None:
    """Of a queue and of a group; a group without an offset has None; a refusal is raised."""
    broker, _ = await two_brokers(stage)
    broker.answers(RequestCode.GET_MAX_OFFSET, OffsetResponseHeader(9))
    broker.answers(RequestCode.GET_MIN_OFFSET, OffsetResponseHeader(2))
    broker.answers(
        RequestCode.QUERY_CONSUMER_OFFSET,
        OffsetResponseHeader(7),
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.SYSTEM_ERROR,
    )
    broker.answers(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SUCCESS)
    async with stage.admin() as admin:
        queue = queue_at(1)
        assert (await admin.max_offset(queue), await admin.min_offset(queue)) == (9, 2)
        assert await admin.consumer_offset("g", queue) == 7
        assert await admin.consumer_offset("g", queue) is None
        with pytest.raises(RequestRefused, match="so says the test"):
            await admin.consumer_offset("g", queue)
        await admin.update_consumer_offset("g", queue, 3)
    update = broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)[0]
    assert update.decode_header(UpdateConsumerOffsetRequestHeader)[:4] == ("g", TOPIC, 1, 3)


@by_row(
    "asked, found",
    [
        (0, 2),  # before the first: the first that can be read
        (20, 3),  # the broker answers with any message of that millisecond
        (29, 5),  # here with the nearer, and 21 with the earlier
        (21, 5),
        (40, 6),
        (41, 7),  # after the last: the broker answers with the last one
        (10**12, 7),
    ],
)
def test_a_time_finds_the_first_message_from_then_on(asked: int, found: int) -> None:
    """RocketMQ's search may find an older one or a later one of the same millisecond: store times are looked at."""
    times = {2: 10, 3: 20, 4: 20, 5: 30, 6: 40}
    answers = {0: 2, 20: 4, 29: 5, 21: 4}

    @on_stage
    async def play(stage: Stage) -> None:
        broker, _ = await two_brokers(stage)

        def pull(command: RemotingCommand) -> RemotingCommand:
            offset = command.decode_header(PullMessageRequestHeader).queue_offset
            return command.reply(
                ResponseCode.SUCCESS,
                PullMessageResponseHeader(0, offset + 1, 2, 7),
                stored_bytes(offset, topic=TOPIC, store_timestamp=times[offset]),
            )

        broker.on[RequestCode.PULL_MESSAGE] = pull
        broker.answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, OffsetResponseHeader(answers.get(asked, 6)))
        async with stage.admin() as admin:
            assert await admin.search_offset(queue_at(1), asked) == found
        (search,) = broker.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
        assert search.decode_header(SearchOffsetRequestHeader) == (TOPIC, 1, asked)

    play()


@by_row("status, low, high, found", [("PULL_NOT_FOUND", 0, 0, 0), ("PULL_OFFSET_MOVED", 9, 9, 9)])
@on_stage
async def test_a_time_in_an_empty_queue_is_its_end(stage: Stage, status: str, low: int, high: int, found: int) -> None:
    """A new one, and one whose messages have all expired."""
    broker, _ = await two_brokers(stage)
    bounds = PullMessageResponseHeader(0, high, low, high)
    broker.on[RequestCode.PULL_MESSAGE] = lambda command: command.reply(ResponseCode[status], bounds)
    broker.answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, OffsetResponseHeader(0))
    async with stage.admin() as admin:
        assert await admin.search_offset(queue_at(1), 77) == found


@on_stage
async def test_members_of_all_brokers(stage: Stage) -> None:
    """Each member once, sorted; a broker without members answers with an error code."""
    first, second = await two_brokers(stage)
    first.answers(IDS, ConsumerIdList(("c2", "c1")), ResponseCode.SYSTEM_ERROR)
    second.answers(IDS, ConsumerIdList(("c3", "c2")), ResponseCode.SYSTEM_ERROR)
    async with stage.admin() as admin:
        assert await admin.consumer_ids("g") == ["c1", "c2", "c3"]
        assert await admin.consumer_ids("g") == []


@on_stage
async def test_groups_and_locks_of_all_brokers(stage: Stage) -> None:
    """Merged and sorted; asked only after the peer has agreed, and with the group that was named."""
    first, second = await two_brokers(stage)
    first.answers(GROUPS, ConsumerGroupList({"g2": ("T2",), "g1": ("T1",)}))
    second.answers(GROUPS, ConsumerGroupList({"g2": ("T1",)}))
    first.answers(LOCKS, LockTableBody((row("g2", 1, "broker-a"), row("g1", 0, "broker-a"))))
    second.answers(LOCKS, LockTableBody((row("g1", 0, "broker-b"),)))
    async with stage.admin() as admin:
        assert await admin.groups() == {"g1": ["T1"], "g2": ["T1", "T2"]}
        rows = await admin.list_locks("g")
    assert rows == [row("g1", 0, "broker-a"), row("g1", 0, "broker-b"), row("g2", 1, "broker-a")]
    assert first.requests(LOCKS)[0].decode_header(ListLocksRequestHeader).consumer_group == "g"
    codes = [command.code for command in second.seen]
    assert codes == [IDS, GROUPS, LOCKS], "one harmless question settled what the peer is"


@on_stage
async def test_lock_changes_are_read_on(stage: Stage) -> None:
    """Until a broker has no more; the next call begins there, and at the beginning when the broker started anew."""
    broker = await stage.broker(queues=1)
    code = RequestCode.LIST_LOCK_CHANGES
    one, two, anew = (LockChange(number, 1, "g", queue_at(0), None, "c1", None, "granted") for number in (0, 1, 0))
    broker.answers(
        code,
        LockChangesBody(5, 9, 0, 1, (one,)),
        LockChangesBody(5, 9, 0, 1, ()),
        LockChangesBody(5, 9, 0, 2, (two,)),
        LockChangesBody(5, 9, 0, 2, ()),
        LockChangesBody(6, 9, 0, 1, ()),
        LockChangesBody(6, 9, 0, 1, (anew,)),
        LockChangesBody(6, 9, 0, 1, ()),
    )
    async with stage.admin() as admin:
        found, cursors = await admin.list_lock_changes({})
        assert list(found.values()) == [[one]]
        found, cursors = await admin.list_lock_changes(cursors, "g")
        assert list(found.values()) == [[two]]
        found, cursors = await admin.list_lock_changes(cursors)
        assert list(found.values()) == [[anew]]
    asked = [command.decode_header(ListLockChangesRequestHeader) for command in broker.requests(code)]
    assert [header.cursor for header in asked] == [0, 1, 1, 2, 2, 0, 1]
    assert [header.consumer_group for header in asked] == [None, None, "g", "g", None, None, None]


@on_stage
async def test_changes_that_come_faster_than_they_are_read(stage: Stage) -> None:
    """A call ends all the same; the next one goes on behind what was read."""
    broker = await stage.broker(queues=1)
    code = RequestCode.LIST_LOCK_CHANGES
    changes = [LockChange(number, 1, "g", queue_at(0), None, "c1", None, "granted") for number in range(1000)]
    broker.answers(code, *(LockChangesBody(5, 9, 0, change.number + 1, (change,)) for change in changes))
    async with stage.admin() as admin:
        found, cursors = await admin.list_lock_changes({})
        (read,) = found.values()
        assert 10 <= len(read) <= 100
        found, _ = await admin.list_lock_changes(cursors)
        assert next(iter(found.values()))[0].number == len(read)


@on_stage
async def test_changes_that_the_broker_forgot(stage: Stage) -> None:
    """A cursor says how many changes were gone before they were read; the first read of a broker misses none."""
    broker = await stage.broker(queues=1)
    code = RequestCode.LIST_LOCK_CHANGES
    late = LockChange(8, 1, "g", queue_at(0), None, "c1", None, "granted")
    broker.answers(
        code,
        LockChangesBody(5, 9, 3, 5, ()),
        LockChangesBody(5, 9, 8, 9, (late,)),
        LockChangesBody(5, 9, 8, 9, ()),
    )
    async with stage.admin() as admin:
        _, cursors = await admin.list_lock_changes({})
        assert [cursor.lost for cursor in cursors.values()] == [0]
        found, cursors = await admin.list_lock_changes(cursors)
        assert list(found.values()) == [[late]]
        assert [cursor.lost for cursor in cursors.values()] == [3], "numbers 5 to 7"
        _, cursors = await admin.list_lock_changes(cursors)
        assert [cursor.lost for cursor in cursors.values()] == [0]


@on_stage
async def test_a_broker_that_is_not_ours(stage: Stage) -> None:
    """It gets no request that it does not know; the error says in one line that it has no such call."""
    stranger = await stage.broker(agrees=False, queues=1)
    async with stage.admin() as admin:
        for ask in (admin.list_locks, admin.groups, lambda: admin.list_deliveries("g")):
            with pytest.raises(NotLockstepError, match="is not a Lockstep broker and has no such call"):
                await ask()
    assert {command.code for command in stranger.seen} == {RequestCode.GET_BROKER_CLUSTER_INFO, IDS}


async def test_an_admin_client_that_was_not_started() -> None:
    """The error says in one line what to do; closing the client is no error."""
    admin = AdminClient(name_server="127.0.0.1:9876")
    with pytest.raises(ClientError, match="is not started"):
        await admin.topics()
    await admin.shutdown()
