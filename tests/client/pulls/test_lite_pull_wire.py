"""What brokers see of a LitePullConsumer (wire.md 12.10), and what they may ask of it."""

import pytest

from lockstep.client import ConsumerError
from lockstep.protocol.bodies.client import ConsumerRunningInfo
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import ConsumerData, ConsumeType
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import GetConsumerRunningInfoRequestHeader
from lockstep.protocol.headers.messaging import (
    NotifyConsumerIdsChangedRequestHeader,
    OffsetResponseHeader,
    PullMessageResponseHeader,
)
from lockstep.remoting.errors import RequestRefused
from tests.client.pulls.pull_stage import beats, lite, stored_offsets
from tests.client.pulls.slaves import pulls_of, route_to_replicas, serves
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

R = RequestCode


@on_stage
async def test_what_it_tells_its_broker(stage: Stage) -> None:
    """It pulls by itself, and it wants its topics: no retry topic among them."""
    it = await lite(stage)
    it.consumer.subscribe(TOPIC, "TagA || TagB")
    started_ms = stage.client.now_ms()
    await it.consumer.start()
    await it.consumer.shutdown()
    data: ConsumerData = beats(it.broker)[0]
    assert (data.group_name, data.consume_type) == ("tower", ConsumeType.CONSUME_ACTIVELY)
    assert [(s.topic, s.sub_string, s.sub_version) for s in data.subscriptions] == [(TOPIC, "TagA || TagB", started_ms)]


@on_stage
async def test_what_a_pull_says(stage: Stage) -> None:
    """RocketMQ's flags 22: the broker may hold it for 20 s, the subscription goes along, it is a lite pull; 10 messages
    at most and no commit."""
    it = await lite(stage)
    it.consumer.set_sub_expression_for_assign(TOPIC, "TagA")
    await it.assigned(0)
    await stage.world.sleep_ms(50)
    pull = it.pulls[0]
    assert (pull.sys_flag, pull.max_msg_nums, pull.suspend_timeout_millis, pull.commit_offset) == (22, 10, 20_000, 0)
    assert (pull.subscription, pull.expression_type, pull.sub_version) == ("TagA", "TAG", 0)
    with pytest.raises(ConsumerError, match="not started yet"):
        it.consumer.set_sub_expression_for_assign(TOPIC, "TagB")
    await it.consumer.shutdown()


@on_stage
async def test_running_info(stage: Stage) -> None:
    """Its queues, its settings under RocketMQ's names, and that it pulls by itself."""
    it = await (await lite(stage)).assigned(0)
    await it.poll()
    it.consumer.commit()
    question = RemotingCommand(R.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("tower", "c"))
    reply = await it.broker.endpoints[-1].request(question, 1000)
    info = decode_body(ConsumerRunningInfo, reply.body, reply.serialize_type)
    assert info.mq_table[queue_at(0)].commit_offset == 10
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    assert info.properties["autoCommitIntervalMillis"] == "5000"
    assert "PROP_CONSUMEORDERLY" not in info.properties
    await it.consumer.shutdown()


@on_stage
async def test_a_slave_is_read_as_the_broker_suggests(stage: Stage) -> None:
    """The same as for a push consumer."""
    it = await lite(stage)
    slave = await stage.broker("slave")
    route_to_replicas(stage, {0: it.broker, 1: slave})
    serves(it.broker, 10, suggests=1)
    serves(slave, 5, suggests=1, last=30)
    await it.assigned(0)
    assert [await it.poll() for _ in range(3)] == [list(range(10)), list(range(10, 15)), list(range(15, 20))]
    assert it.pulled() == [0]
    assert {pull.sys_flag for pull in pulls_of(slave)} == {22}
    await it.consumer.shutdown()


@on_stage
async def test_a_slave_serves_those_who_start_without_a_master(stage: Stage) -> None:
    """It knows the members and, somewhat late, their offsets; nothing is committed to it."""
    it = await lite(stage)
    route_to_replicas(stage, {1: it.broker})
    it.broker.answers(R.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(30))
    it.consumer.subscribe(TOPIC)
    await it.consumer.start()
    it.members()
    it.broker.tell(RemotingCommand(R.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader("tower")))
    assert await it.poll(5000) == list(range(30, 40))
    await it.consumer.shutdown()
    assert stored_offsets(it.broker) == []


@on_stage
async def test_a_broker_that_stores_nothing(stage: Stage) -> None:
    """commit_sync says so; the offset is kept for the next round."""
    it = await (await lite(stage)).assigned(0)
    await it.poll()
    it.broker.answers(R.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR)
    with pytest.raises(RequestRefused, match="UPDATE_CONSUMER_OFFSET"):
        await it.consumer.commit_sync()
    await it.consumer.shutdown()
    assert stored_offsets(it.broker)[-1] == (0, 10)


@on_stage
async def test_a_pull_with_an_earlier_expression_is_made_again(stage: Stage) -> None:
    """Its answer may have passed over messages that match the new expression."""
    it = await lite(stage)
    held: list[RemotingCommand] = []
    it.broker.on[R.PULL_MESSAGE] = lambda command: held.append(command)
    it.consumer.subscribe(TOPIC, "TagA")
    await it.consumer.start()
    it.members()
    it.broker.tell(RemotingCommand(R.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader("tower")))
    await stage.world.until(lambda: held)
    it.consumer.subscribe(TOPIC, "TagB")
    bounds = PullMessageResponseHeader(0, 50, 0, 100)
    it.broker.endpoints[-1].reply(held[0].reply(ResponseCode.PULL_RETRY_IMMEDIATELY, bounds))
    await stage.world.until(lambda: len(held) == 2)
    assert [(pull.queue_offset, pull.subscription) for pull in it.pulls] == [(0, "TagA"), (0, "TagB")]
    await it.consumer.shutdown()
