"""Offsets on the broker (wire.md 8.3), and where a queue's first pull begins (wire.md 12.3)."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from lockstep.client import ConsumeFromWhere, ConsumerConfig
from lockstep.client.config import Fenced
from lockstep.client.consumer.offsets.store import NO_OFFSET, RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.first_offset import FirstOffset
from lockstep.client.consumer.push_member import PushMember
from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.epochs import make_epoch
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.headers.together import CommitTogetherRequestHeader
from lockstep.protocol.messages.together import decode_commits
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from lockstep.protocol.signature import Credentials
from lockstep.remoting.errors import ConnectFailed, RemotingError, RequestRefused, RequestTimeout
from tests.client.periods import fenced, period
from tests.client.pulls.pulling import push_member
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at
from tests.rows import by_row

GROUP = "tower"
QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
MAX, SEARCH = RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
PULL = RequestCode.PULL_MESSAGE
NONE = ResponseCode.QUERY_NOT_FOUND

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


async def store_on(stage: Stage) -> tuple[FakeBroker, RemoteBrokerOffsetStore]:
    broker = await stage.broker(queues=4)
    instance = stage.instance()
    await instance.routes.fetch(TOPIC)
    return broker, RemoteBrokerOffsetStore(instance, GROUP)


@pytest.mark.parametrize("credentials", [None, Credentials("account1", "secret-1234")])
def test_with_an_account_a_frame_of_commits_has_one_topic(credentials: Credentials | None) -> None:
    """A broker with ACL refuses a frame as a whole, and a one-way refusal is lost."""
    sent: list[list[str]] = []

    def send_one_way(*commands: RemotingCommand) -> None:
        for command in commands:
            count = command.decode_header(CommitTogetherRequestHeader).commit_count
            sent.append([commit.topic for commit in decode_commits(command.body, count)])

    endpoint = Mock(together=True, send_one_way=send_one_way)
    instance = SimpleNamespace(
        config=ConsumerConfig(credentials=credentials),
        routes=SimpleNamespace(master_address=lambda name: name),
        dialer=SimpleNamespace(open_endpoint=lambda address: endpoint),
    )
    offsets = RemoteBrokerOffsetStore(cast("Any", instance), GROUP)
    queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in (0, 1) for topic in ("T", "U")]
    for queue in queues:
        offsets.update(queue, 5, increase_only=False)
    offsets.persist(queues, lambda _: None)
    assert sent == ([["T", "U", "T", "U"]] if credentials is None else [["T", "T"], ["U", "U"]])


# The store ---------------------------------------------------------------------------------------------------


def test_each_round_sends_the_offsets_of_that_round() -> None:
    """A frame whose offsets did not change since the last round of its broker is the same again; any other is new."""
    sent: dict[str, list[list[tuple[str, int, int]]]] = {"a": [], "b": []}

    def endpoint_of(broker_name: str) -> Mock:
        def send_one_way(*commands: RemotingCommand) -> None:
            for command in commands:
                count = command.decode_header(CommitTogetherRequestHeader).commit_count
                sent[broker_name].append([commit[:3] for commit in decode_commits(command.body, count)])

        return Mock(together=True, address=f"{broker_name}:1", send_one_way=send_one_way)

    endpoints = {f"{name}:1": endpoint_of(name) for name in sent}
    instance = Mock(config=ConsumerConfig())
    instance.routes.master_address = lambda broker_name: f"{broker_name}:1"
    instance.dialer.open_endpoint = endpoints.__getitem__
    store = RemoteBrokerOffsetStore(instance, "G")
    queues = [MessageQueue("T", name, queue_id) for name in sent for queue_id in (0, 1)]
    for queue in queues:
        store.update(queue, 5)
    store.persist(queues, lambda _: None)
    store.persist(queues, lambda _: None)
    store.update(queues[0], 6)
    store.persist(queues, lambda _: None)
    store.update(queues[0], 5)
    store.persist(queues[:2], lambda _: None)
    first, second = [("T", 0, 5), ("T", 1, 5)], [("T", 0, 6), ("T", 1, 5)]
    assert sent == {"a": [first, first, second, first], "b": [first, first, first]}


@on_stage
async def test_memory_is_memory(stage: Stage) -> None:
    """An update sets the offset, also to a lower one unless `increase_only`; an unknown or forgotten offset is -1."""
    _, offsets = await store_on(stage)
    assert offsets.in_memory(queue_at(0)) == NO_OFFSET
    offsets.update(queue_at(0), 7)
    offsets.update(queue_at(0), 5)
    assert offsets.in_memory(queue_at(0)) == 5
    offsets.update(queue_at(0), 4, increase_only=True)
    offsets.update(queue_at(1), 0, increase_only=True)
    assert (offsets.in_memory(queue_at(0)), offsets.in_memory(queue_at(1))) == (5, 0)
    offsets.forget(queue_at(0))
    offsets.forget(queue_at(3))
    assert offsets.in_memory(queue_at(0)) == NO_OFFSET


@on_stage
async def test_reading_from_the_broker(stage: Stage) -> None:
    """The stored offset, remembered; QUERY_NOT_FOUND alone means that there is none."""
    broker, offsets = await store_on(stage)
    broker.answers(QUERY, OffsetResponseHeader(41), NONE)
    assert await offsets.read(queue_at(2)) == 41
    assert offsets.in_memory(queue_at(2)) == 41
    assert await offsets.read(queue_at(3)) == NO_OFFSET
    assert offsets.in_memory(queue_at(3)) == NO_OFFSET
    asked = broker.requests(QUERY)[0].decode_header(QueryConsumerOffsetRequestHeader)
    assert asked == (GROUP, TOPIC, 2)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.TOPIC_NOT_EXIST])
@on_stage
async def test_other_codes_are_errors(stage: Stage, code: ResponseCode) -> None:
    """Java takes any error code for "no offset", and jumps to the end when a broker is busy (wire.md 8.3)."""
    broker, offsets = await store_on(stage)
    broker.answers(QUERY, code)
    with pytest.raises(RequestRefused):
        await offsets.read(queue_at(0))


@on_stage
async def test_a_silent_and_an_absent_broker_are_errors(stage: Stage) -> None:
    """After the 5 s that this one request is given (wire.md 12.3), or at once."""
    broker, offsets = await store_on(stage)
    broker.answers(QUERY, None)
    began_ms = stage.world.elapsed_ms
    with pytest.raises(RequestTimeout):
        await offsets.read(queue_at(0))
    assert 5000 <= stage.world.elapsed_ms - began_ms <= 5005
    broker.stop()
    await stage.world.sleep_ms(10)
    with pytest.raises(ConnectFailed):
        await offsets.read(queue_at(0))


@on_stage
async def test_persist_tells_the_broker_one_way(stage: Stage) -> None:
    """Of those asked for the known ones, announced before they are sent."""
    broker, offsets = await store_on(stage)
    broker.answers(QUERY, NONE)
    await offsets.read(queue_at(0))
    for queue_id in range(3):
        offsets.update(queue_at(queue_id), 10 + queue_id)
    told: dict[MessageQueue, int] = {}
    offsets.persist([queue_at(0), queue_at(2), queue_at(3)], told.update)
    await stage.world.until(lambda: len(broker.requests(UPDATE)) == 2)
    updates = [command.decode_header(UpdateConsumerOffsetRequestHeader)[:4] for command in broker.requests(UPDATE)]
    assert updates == [(GROUP, TOPIC, 0, 10), (GROUP, TOPIC, 2, 12)]
    assert all(command.is_one_way for command in broker.requests(UPDATE))
    assert told == {queue_at(0): 10, queue_at(2): 12}


@on_stage
async def test_what_cannot_be_sent_is_not_called_committed(stage: Stage) -> None:
    """Without a connection nothing is sent and no hook is called; the next round sends it."""
    broker, offsets = await store_on(stage)
    told: dict[MessageQueue, int] = {}
    offsets.update(queue_at(0), 10)
    offsets.persist([queue_at(0)], told.update)
    assert not told
    assert broker.requests(UPDATE) == []


# The first offset --------------------------------------------------------------------------------------------


async def first_offset(stage: Stage, queue: MessageQueue, config: ConsumerConfig) -> tuple[int, FakeBroker]:
    broker = stage.brokers[0]
    instance = stage.instance()
    await instance.routes.fetch(TOPIC)
    placing = FirstOffset(instance, GROUP, config, RemoteBrokerOffsetStore(instance, GROUP))
    return await placing(period(queue)), broker


@by_row(
    "where, retry, code, offset",
    [
        (LAST, False, MAX, 900),
        (LAST, True, None, 0),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST, False, MAX, 900),
        (ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET, False, MAX, 900),
        (ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET, True, None, 0),
        (FIRST, False, None, 0),
        (FIRST, True, None, 0),
        (TIMESTAMP, False, SEARCH, 500),
        (TIMESTAMP, True, MAX, 900),
    ],
)
def test_the_table_of_first_offsets(where: ConsumeFromWhere, retry: bool, code: int | None, offset: int) -> None:
    """wire.md 12.3, row by row, where nothing is stored; and a stored offset wins in every row."""
    queue = MessageQueue(retry_topic(GROUP) if retry else TOPIC, "broker-a", 0)

    @on_stage
    async def play(stage: Stage) -> None:
        broker = await stage.broker(queues=4)
        broker.answers(MAX, OffsetResponseHeader(900))
        broker.answers(SEARCH, OffsetResponseHeader(500))
        broker.answers(PULL, PullMessageResponseHeader(0, 500, 500, 900))
        broker.answers(QUERY, NONE, OffsetResponseHeader(0), OffsetResponseHeader(123))
        config = ConsumerConfig(consume_from_where=where)
        assert (await first_offset(stage, queue, config))[0] == offset
        asked = [command.code for command in broker.seen if command.code in (MAX, SEARCH)]
        assert asked == ([] if code is None else [code])
        assert (await first_offset(stage, queue, config))[0] == 0
        assert (await first_offset(stage, queue, config))[0] == 123
        assert [command.code for command in broker.seen if command.code in (MAX, SEARCH)] == asked

    play()


@on_stage
async def test_the_time_to_consume_from(stage: Stage) -> None:
    """As configured, or 30 minutes before the consumer began."""
    broker = await stage.broker(queues=4)
    broker.answers(QUERY, NONE)
    broker.answers(SEARCH, OffsetResponseHeader(5))
    broker.answers(PULL, PullMessageResponseHeader(0, 5, 5, 9))
    begin_ms = stage.client.now_ms()
    await first_offset(stage, queue_at(1), ConsumerConfig(consume_from_where=TIMESTAMP))
    await first_offset(stage, queue_at(1), ConsumerConfig(consume_from_where=TIMESTAMP, consume_timestamp_ms=77))
    default, given = [command.decode_header(SearchOffsetRequestHeader) for command in broker.requests(SEARCH)]
    assert begin_ms - 1_800_000 <= default.timestamp <= begin_ms - 1_800_000 + 100
    assert given == (TOPIC, 1, 77)
    # Read under the group's own name: its account may have the right to no other.
    assert {pull.decode_header(PullMessageRequestHeader).consumer_group for pull in broker.requests(PULL)} == {GROUP}


@pytest.mark.parametrize(("stored", "end", "offset"), [(-1, 7, 7), (-1, -1, None), (-2, 7, None), (-1, -(2**40), None)])
@on_stage
async def test_a_negative_first_offset_is_an_error(stage: Stage, stored: int, end: int, offset: int | None) -> None:
    """Article 2: such a queue is not pulled. A stored -1 is none stored, as in RocketMQ; the end decides then."""
    broker = await stage.broker(queues=4)
    broker.answers(QUERY, OffsetResponseHeader(stored))
    broker.answers(MAX, OffsetResponseHeader(end))
    if offset is None:
        with pytest.raises(ClientError, match=r"Aircraft@broker-a:0 begins at -\d+; an offset must not be below 0"):
            await first_offset(stage, queue_at(0), ConsumerConfig())
    else:
        assert (await first_offset(stage, queue_at(0), ConsumerConfig()))[0] == offset


@pytest.mark.parametrize("asked", [QUERY, MAX])
@on_stage
async def test_an_error_is_no_offset(stage: Stage, asked: RequestCode) -> None:
    """Neither a failed query nor a failed second question may make a consumer begin somewhere."""
    broker = await stage.broker(queues=4)
    broker.answers(QUERY, NONE)
    broker.answers(MAX, OffsetResponseHeader(900))
    broker.answers(asked, ResponseCode.SYSTEM_ERROR)
    with pytest.raises(RemotingError):
        await first_offset(stage, queue_at(0), ConsumerConfig())


@on_stage
async def test_the_end_is_asked_of_the_queue(stage: Stage) -> None:
    """GET_MAX_OFFSET names topic and queue."""
    broker = await stage.broker(queues=4)
    broker.answers(QUERY, NONE)
    broker.answers(MAX, OffsetResponseHeader(900))
    await first_offset(stage, queue_at(3), ConsumerConfig())
    assert broker.requests(MAX)[0].decode_header(QueueRequestHeader) == (TOPIC, 3)


async def owner_of_two(stage: Stage, fenced: Fenced = Fenced.NO) -> tuple[FakeBroker, PushMember]:
    """A member with two locked queues, in each of which 7 is the next offset."""
    broker = await stage.broker(queues=2)
    broker.answers(UPDATE, ResponseCode.SUCCESS)
    member = push_member(stage, ConsumerConfig(), {TOPIC: SubscriptionData.parse(TOPIC, "*")}, fenced=fenced)
    await member.instance.routes.fetch(TOPIC)
    await member.instance.dialer.endpoint(broker.address)
    now_ms = stage.client.now_ms()
    for queue in (queue_at(0), queue_at(1)):
        member.table[queue] = period(queue, now_ms)
        member.offsets.update(queue, 7)
    return broker, member


def updates(broker: FakeBroker) -> list[tuple[int, int]]:
    headers = [command.decode_header(UpdateConsumerOffsetRequestHeader) for command in broker.requests(UPDATE)]
    return [(header.queue_id, header.commit_offset) for header in headers]


@on_stage
async def test_a_dropped_queue_is_committed_no_more(stage: Stage) -> None:
    """While its reset waits for a listener, the round of commits must not store what was handled over the reset."""
    broker, member = await owner_of_two(stage)
    member.table[queue_at(0)].life.dropped = True
    member._persist_all()
    await stage.world.sleep_ms(100)
    assert updates(broker) == [(1, 7)]


@on_stage
async def test_the_last_commits_without_a_fence(stage: Stage) -> None:
    """A consumer that takes fenced locks "if the broker can" leaves a queue to its next owner whose lock ran out."""
    broker, member = await owner_of_two(stage, Fenced.IF_THE_BROKER_CAN)
    member.table[queue_at(0)].hold.last_lock_ms -= member.config.lock_max_live_time_ms + 1
    await member._persist_last()
    await stage.world.sleep_ms(100)
    assert updates(broker) == [(1, 7)]


@on_stage
async def test_the_last_commits_under_a_fence(stage: Stage) -> None:
    """A shutdown waits for their answers, and sends them again if none comes; then it may unlock."""
    broker, member = await owner_of_two(stage, Fenced.IF_THE_BROKER_CAN)
    epoch = make_epoch(1_700_000_000_000, 1)
    member.table[queue_at(0)] = fenced(queue_at(0), stage.client.now_ms(), epoch, 60_000)
    del member.table[queue_at(1)]
    broker.answers(UPDATE, None, ResponseCode.SUCCESS)
    await member._persist_last()
    assert updates(broker) == [(0, 7)] * 2
