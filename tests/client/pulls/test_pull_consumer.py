"""PullConsumer (wire.md 12.10): pulls at the caller's offset, topics, stored offsets, queries."""

import asyncio
from typing import Any

import pytest

from lockstep.client import (
    ConsumerError,
    MessageModel,
    PullConsumer,
    PullConsumerConfig,
    PullStatus,
    TopicNotFoundError,
)
from lockstep.client.consumer.offsets.local_file import LocalOffsets
from lockstep.client.hooks import ConsumeMessageContext
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.client import ConsumerRunningInfo
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import ConsumeType
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.filter import FilterError
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    SendMessageBackRequestHeader,
    ViewMessageRequestHeader,
)
from lockstep.protocol.headers.messaging import (
    NotifyConsumerIdsChangedRequestHeader,
    OffsetResponseHeader,
    PullMessageResponseHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
)
from lockstep.protocol.messages.ids import encode_offset_message_id, pack_host
from lockstep.remoting.errors import RequestRefused, RequestTimeout
from tests.client.messages import Panic, message_at, stored_bytes
from tests.client.pulls.pull_stage import beats, stored_offsets
from tests.client.pulls.slaves import pulls_of, serves
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at

R = RequestCode


async def pull_consumer(stage: Stage, *, queues: int = 2, **settings: Any) -> tuple[PullConsumer, FakeBroker]:
    """Started, and alone in its group; its broker serves offsets 0 to 99 of each queue."""
    broker = await stage.broker(queues=queues)
    config = PullConsumerConfig(**settings)
    consumer = PullConsumer("tower", name_server=broker.name_server, config=config, runtime=stage.client, log=stage.log)
    serves(broker, 3, last=100)
    broker.answers(R.UPDATE_CONSUMER_OFFSET, 0)
    await consumer.start()
    broker.answers(R.GET_CONSUMER_LIST_BY_GROUP, ConsumerIdList((consumer.client_id,)))
    return consumer, broker


@on_stage
async def test_a_pull_is_what_its_user_says(stage: Stage) -> None:
    """Flags 4: the subscription is sent, nothing is committed, and the broker does not wait; 6 when it shall wait, for
    at most 20 s."""
    consumer, broker = await pull_consumer(stage)
    result = await consumer.pull(queue_at(1), "TagA || TagB", 7, 32)
    assert (result.status, result.next_begin_offset, result.min_offset, result.max_offset) == (
        PullStatus.FOUND,
        10,
        0,
        100,
    )
    assert result.messages == [], "the broker matched hashes, but the text of these tags does not"
    result = await consumer.pull_block_if_not_found(queue_at(1), "*", 7, 1)
    assert [message.queue_offset for message in result.messages] == [7, 8, 9]
    first, second = pulls_of(broker)
    assert first[:6] == ("tower", TOPIC, 1, 7, 32, 4)
    assert (first.subscription, first.expression_type, first.sub_version) == ("TagA || TagB", "TAG", 0)
    assert (second.max_msg_nums, second.sys_flag, second.suspend_timeout_millis) == (1, 6, 20_000)
    await consumer.shutdown()


class Hook:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, list[int], bool, str]] = []

    def note(self, when: str, context: ConsumeMessageContext) -> None:
        offsets = [message.queue_offset for message in context.messages]
        self.seen.append((when, context.queue.topic, offsets, context.success, context.status))

    def before(self, context: ConsumeMessageContext) -> None:
        self.note("before", context)

    def after(self, context: ConsumeMessageContext) -> None:
        self.note("after", context)
        raise ValueError("a hook that fails")


@on_stage
async def test_hooks_hear_of_what_is_handed_out(stage: Stage) -> None:
    """As in RocketMQ pulled messages count as consumed; a hook that fails removes none of them."""
    consumer, _ = await pull_consumer(stage)
    hook = Hook()
    consumer.register_consume_message_hook(hook)
    result = await consumer.pull(queue_at(1), "*", 7, 32)
    assert [message.queue_offset for message in result.messages] == [7, 8, 9]
    assert hook.seen == [
        ("before", TOPIC, [7, 8, 9], False, ""),
        ("after", TOPIC, [7, 8, 9], True, "CONSUME_SUCCESS"),
    ]
    assert stage.events("error") == ["hook_failed"]
    await consumer.shutdown()


@on_stage
async def test_pulls_that_cannot_be(stage: Stage) -> None:
    """A negative offset, no messages at all, a broken expression, a topic without a route; nothing is asked."""
    consumer, broker = await pull_consumer(stage)
    with pytest.raises(ConsumerError, match="0 or more, not -1"):
        await consumer.pull(queue_at(0), "*", -1, 1)
    with pytest.raises(ConsumerError, match="max_nums must be at least 1"):
        await consumer.pull_block_if_not_found(queue_at(0), "*", 0, 0)
    with pytest.raises(FilterError):
        await consumer.pull(queue_at(0), "||", 0, 1)
    with pytest.raises(TopicNotFoundError, match="'Nowhere' has no queue"):
        await consumer.fetch_subscribe_message_queues("Nowhere")
    with pytest.raises(LocalProtocolError):
        consumer.register_topic("no topic")
    assert pulls_of(broker) == []
    await consumer.shutdown()
    with pytest.raises(ConsumerError, match="SHUTDOWN_ALREADY"):
        await consumer.pull(queue_at(0), "*", 0, 1)


@on_stage
async def test_how_long_an_answer_may_take(stage: Stage) -> None:
    """10 s, or the caller's timeout; 30 s for a pull that waits."""
    consumer, broker = await pull_consumer(stage)
    await consumer.pull(queue_at(0), "*", 0, 1)
    broker.answers(R.PULL_MESSAGE, None)
    for timeout_ms, waited_ms in ((None, 10_000), (700, 700)):
        began_ms = stage.world.elapsed_ms
        with pytest.raises(RequestTimeout):
            await consumer.pull(queue_at(0), "*", 0, 1, timeout_ms)
        assert waited_ms <= stage.world.elapsed_ms - began_ms <= waited_ms + 10
    began_ms = stage.world.elapsed_ms
    with pytest.raises(RequestTimeout):
        await consumer.pull_block_if_not_found(queue_at(0), "*", 0, 1)
    assert 30_000 <= stage.world.elapsed_ms - began_ms <= 30_010
    await consumer.shutdown()


@on_stage
async def test_a_topic_is_joined_when_it_is_first_used(stage: Stage) -> None:
    """A heartbeat tells brokers of the topic before its first pull, once; it names the consumer a pulling one."""
    consumer, broker = await pull_consumer(stage)
    assert beats(broker) == []
    await consumer.pull(queue_at(0), "*", 0, 1)
    await consumer.pull(queue_at(0), "*", 0, 1)
    kinds = [command.code for command in broker.seen if command.code in (R.HEART_BEAT, R.PULL_MESSAGE)]
    assert kinds.index(R.PULL_MESSAGE) > kinds.index(R.HEART_BEAT)
    assert beats(broker)[0].consume_type is ConsumeType.CONSUME_ACTIVELY
    assert [data.topic for data in beats(broker)[0].subscriptions] == [TOPIC]
    assert await consumer.fetch_message_queues_in_balance(TOPIC) == [queue_at(0), queue_at(1)]
    await consumer.shutdown()


@on_stage
async def test_changes_of_its_queues(stage: Stage) -> None:
    """The listener gets all queues and the consumer's own; its exceptions have no effect; no pull is needed for it."""
    consumer, broker = await pull_consumer(stage)
    heard: list[tuple[str, int, int]] = []

    def hear(topic: str, everything: list[Any], mine: list[Any]) -> None:
        heard.append((topic, len(everything), len(mine)))
        raise Panic("deaf")

    consumer.register_message_queue_listener(TOPIC, hear)
    await stage.world.until(lambda: heard)
    broker.answers(R.GET_CONSUMER_LIST_BY_GROUP, ConsumerIdList(("0-first", consumer.client_id)))
    broker.tell(RemotingCommand(R.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader("tower")))
    await stage.world.until(lambda: len(heard) == 2)
    assert heard == [(TOPIC, 2, 2), (TOPIC, 2, 1)]
    assert stage.events("error") == ["queue_listener_failed"] * 2
    assert await consumer.fetch_message_queues_in_balance(TOPIC) == [queue_at(1)]
    assert pulls_of(broker) == []
    await consumer.shutdown()


@on_stage
async def test_an_offset_that_no_broker_can_store(stage: Stage) -> None:
    """It is refused when it is set, and the others are stored."""
    consumer, _ = await pull_consumer(stage)
    for queue_id, offset in ((1 << 31, 1), (-1, 1), (0, 1 << 63), (0, -2)):
        with pytest.raises(ValueError, match="a queue's number has 31 bits, an offset 63, or is -1"):
            consumer.update_consume_offset(queue_at(0)._replace(queue_id=queue_id), offset)
    consumer.update_consume_offset(queue_at(0), 9)
    assert await consumer.fetch_consume_offset(queue_at(0)) == 9
    await consumer.shutdown()


@on_stage
async def test_offsets_are_kept_for_the_user(stage: Stage) -> None:
    """Stored 10 s after the start, every 5 s from then on and at the shutdown, or when asked; reading the stored one
    does not undo an update."""
    consumer, broker = await pull_consumer(stage)
    started_ms = stage.world.elapsed_ms
    broker.answers(R.QUERY_CONSUMER_OFFSET, ResponseCode.QUERY_NOT_FOUND, OffsetResponseHeader(3))
    await consumer.pull(queue_at(0), "*", 0, 1)
    assert await consumer.fetch_consume_offset(queue_at(0)) == -1
    consumer.update_consume_offset(queue_at(0), 9)
    assert await consumer.fetch_consume_offset(queue_at(0)) == 9
    assert await consumer.fetch_consume_offset(queue_at(0), from_store=True) == 3
    await stage.world.sleep_ms(started_ms + 9_999 - stage.world.elapsed_ms)
    assert stored_offsets(broker) == []
    await stage.world.sleep_ms(20)
    assert stored_offsets(broker) == [(0, 9)]
    await stage.world.sleep_ms(5000)
    assert stored_offsets(broker) == [(0, 9)] * 2
    consumer.update_consume_offset(queue_at(1), 4)
    await consumer.persist(queue_at(1))
    assert stored_offsets(broker)[2:] == [(1, 4)]
    await consumer.shutdown()
    assert sorted(stored_offsets(broker)[3:]) == [(0, 9), (1, 4)]


@pytest.mark.parametrize("from_store", [True, False])
@on_stage
async def test_an_update_while_the_stored_offset_is_on_its_way(stage: Stage, from_store: bool) -> None:
    """The answer is the stored offset, and the update made meanwhile is stored next."""
    consumer, broker = await pull_consumer(stage)
    broker.answers(R.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(3))
    await consumer.pull(queue_at(0), "*", 0, 1)
    if from_store:
        consumer.update_consume_offset(queue_at(0), 5)
    asking = asyncio.ensure_future(consumer.fetch_consume_offset(queue_at(0), from_store=from_store))
    await asyncio.sleep(0)
    assert not asking.done()
    consumer.update_consume_offset(queue_at(0), 9)
    assert await asking == 3
    await consumer.persist(queue_at(0))
    assert stored_offsets(broker) == [(0, 9)]
    await consumer.shutdown()


@on_stage
async def test_a_broadcasting_one_waits_for_its_file(stage: Stage) -> None:
    """`persist` returns when the file is written."""
    await stage.broker(queues=1)
    config = PullConsumerConfig(local_offset_folder="/offsets")
    consumer = PullConsumer(
        "tower",
        name_server=stage.name_server,
        config=config,
        message_model=MessageModel.BROADCASTING,
        runtime=stage.client,
        log=stage.log,
    )
    await consumer.start()
    consumer.update_consume_offset(queue_at(0), 9)
    await consumer.persist(queue_at(0))
    path = f"/offsets/{consumer.client_id}/tower/offsets.json"
    content = stage.client.disk.read(path)
    assert decode_body(LocalOffsets, content, SerializeType.JSON).offset_table == {queue_at(0): 9}
    await consumer.shutdown()


@on_stage
async def test_an_offset_set_before_the_queue_is_its_own(stage: Stage) -> None:
    """It is stored when the rebalance gives the queue."""
    consumer, broker = await pull_consumer(stage)
    consumer.update_consume_offset(queue_at(0), 9)
    await consumer.fetch_message_queues_in_balance(TOPIC)
    await consumer.shutdown()
    assert stored_offsets(broker) == [(0, 9)]


@on_stage
async def test_a_queue_that_goes_is_stored_once_more_and_then_left_alone(stage: Stage) -> None:
    """Its offset belongs to the next owner."""
    consumer, broker = await pull_consumer(stage)
    await consumer.pull(queue_at(0), "*", 0, 1)
    consumer.update_consume_offset(queue_at(0), 9)
    broker.answers(R.GET_CONSUMER_LIST_BY_GROUP, ConsumerIdList(("0-first", consumer.client_id)))
    broker.tell(RemotingCommand(R.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader("tower")))
    await stage.world.until(lambda: stored_offsets(broker) == [(0, 9)])
    await stage.world.sleep_ms(20_000)
    await consumer.shutdown()
    assert stored_offsets(broker) == [(0, 9)]


@on_stage
async def test_questions(stage: Stage) -> None:
    """Ends, times and messages of queues, from the broker that has them."""
    consumer, broker = await pull_consumer(stage)
    broker.answers(R.GET_MAX_OFFSET, OffsetResponseHeader(100))
    broker.answers(R.GET_MIN_OFFSET, OffsetResponseHeader(4))
    broker.answers(R.SEARCH_OFFSET_BY_TIMESTAMP, OffsetResponseHeader(50))
    broker.answers(R.PULL_MESSAGE, PullMessageResponseHeader(0, 50, 50, 100))
    broker.answers(R.GET_EARLIEST_MSG_STORETIME, TimestampResponseHeader(1_700_000_000_000))
    assert await consumer.max_offset(queue_at(0)) == 100
    assert await consumer.min_offset(queue_at(0)) == 4
    assert await consumer.search_offset(queue_at(0), 123) == 50
    (asked,) = broker.requests(R.SEARCH_OFFSET_BY_TIMESTAMP)
    assert asked.decode_header(SearchOffsetRequestHeader).timestamp == 123
    assert await consumer.earliest_msg_store_time_ms(queue_at(0)) == 1_700_000_000_000
    assert await consumer.fetch_subscribe_message_queues(TOPIC) == [queue_at(0), queue_at(1)]
    broker.answers(R.GET_MAX_OFFSET, ResponseCode.SYSTEM_ERROR)
    with pytest.raises(RequestRefused, match="GET_MAX_OFFSET"):
        await consumer.max_offset(queue_at(0))
    await consumer.shutdown()


@on_stage
async def test_one_message_by_its_id(stage: Stage) -> None:
    """The id names broker and place; any other text is refused at once."""
    consumer, broker = await pull_consumer(stage)
    await consumer.fetch_subscribe_message_queues(TOPIC)
    broker.on[R.VIEW_MESSAGE_BY_ID] = lambda command: command.reply(ResponseCode.SUCCESS, body=stored_bytes(7))
    message_id = encode_offset_message_id(pack_host(broker.runtime.address), 10911, 7000)
    message = await consumer.view_message(message_id)
    assert (message.queue_offset, message.broker_name) == (7, "broker-a")
    (asked,) = broker.requests(R.VIEW_MESSAGE_BY_ID)
    assert asked.decode_header(ViewMessageRequestHeader).offset == 7000
    with pytest.raises(ValueError, match="hex"):
        await consumer.view_message("no id")
    await consumer.shutdown()


@on_stage
async def test_sending_back(stage: Stage) -> None:
    """The broker of the message puts it into the retry topic; when none takes it, that is said."""
    consumer, broker = await pull_consumer(stage)
    await consumer.fetch_subscribe_message_queues(TOPIC)
    broker.answers(R.CONSUMER_SEND_MSG_BACK, 0, ResponseCode.SYSTEM_ERROR)
    await consumer.send_message_back(message_at(7), 3)
    (sent,) = broker.requests(R.CONSUMER_SEND_MSG_BACK)
    header = sent.decode_header(SendMessageBackRequestHeader)
    assert (header.offset, header.group, header.delay_level) == (7000, "tower", 3)
    with pytest.raises(ConsumerError, match="no broker took message"):
        await consumer.send_message_back(message_at(7), 3)
    await consumer.shutdown()


@on_stage
async def test_what_brokers_ask(stage: Stage) -> None:
    """Running info with its queues; a message to consume directly it has no listener for, as in RocketMQ."""
    consumer, broker = await pull_consumer(stage)
    await consumer.pull(queue_at(0), "*", 0, 1)
    endpoint = broker.endpoints[-1]
    question = RemotingCommand(R.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("tower", "c"))
    reply = await endpoint.request(question, 1000)
    info = decode_body(ConsumerRunningInfo, reply.body, reply.serialize_type)
    assert sorted(info.mq_table) == [queue_at(0), queue_at(1)]
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    header = ConsumeMessageDirectlyRequestHeader("tower", "c")
    reply = await endpoint.request(RemotingCommand(R.CONSUME_MESSAGE_DIRECTLY, header, stored_bytes(7)), 1000)
    assert (reply.code, reply.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The Consumer Group <tower> not exist in this consumer",
    )
    await consumer.shutdown()
