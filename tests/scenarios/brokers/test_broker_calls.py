"""An administrator asks a consumer through its broker: running info, a reset of offsets, one message directly."""

from typing import Any

from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    MessageExt,
)
from lockstep.order import Cause
from lockstep.protocol.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
)
from lockstep.protocol.bodies.codec import WireBody, decode_body
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster
from tests.scenarios.scenario import scenario

R, S, C = RequestCode, ConsumeOrderlyStatus, ConsumeConcurrentlyStatus
QUEUE = MessageQueue(TOPIC, BROKER, 0)
RETRY_QUEUE = MessageQueue(f"%RETRY%{GROUP}", BROKER, 0)


async def ask(cluster: Cluster, body_class: type[WireBody], code: int, header: tuple[Any, ...]) -> Any:
    reply = await cluster.call("admin", code, header)
    assert reply.code == 0, reply.remark
    return decode_body(body_class, reply.body, reply.serialize_type)


# Reset ------------------------------------------------------------------------------------------------------------


async def reset(cluster: Cluster, timestamp: int) -> None:
    reply = await cluster.call(
        "admin", R.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(TOPIC, GROUP, timestamp, True)
    )
    assert reply.code == 0, reply.remark


@scenario()
async def test_a_reset_goes_back_and_everything_is_handled_again(cluster: Cluster) -> None:
    """Each member resets its own queues. It handles their messages again from the first, in order, and keeps the
    lock."""
    cluster.expected.duplicates = {Cause.RESET}
    await cluster.broker_and_producer(queues=4)
    await cluster.consumer("c1")
    await cluster.consumer("c2")
    await cluster.at(45_000)
    await cluster.send(80)
    await cluster.all_seen()
    await cluster.at(60_000)
    owners = [cluster.owner(queue_id) for queue_id in range(4)]
    assert sum(cluster.committed(queue_id) for queue_id in range(4)) == 80
    await reset(cluster, 0)
    await cluster.world.until(lambda: len(cluster.seen.all) == 160, timeout_ms=30_000)
    assert [cluster.owner(queue_id) for queue_id in range(4)] == owners
    again = cluster.seen.of(since_ms=60_000)
    for queue_id in range(4):
        assert [call.offset for call in again if call.queue.queue_id == queue_id] == list(
            range(len(cluster.stored(queue_id)))
        )


@scenario()
async def test_a_reset_to_the_end_skips_what_waits(cluster: Cluster) -> None:
    """The running call ends first; cached messages are skipped, and the next new message is handled."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", works_ms={"3": 5_000})
    await cluster.at(25_000)
    await cluster.send(3, queue_id=0)
    await cluster.all_seen()
    await cluster.at(35_000)
    await cluster.send(7, queue_id=0)
    await cluster.at(36_000)
    await reset(cluster, -1)
    await cluster.at(39_000)
    assert cluster.seen.texts() == ["0", "1", "2", "3"]
    assert cluster.committed() == 3  # nothing is stored while a listener works
    await cluster.at(50_000)
    assert cluster.committed() == 10
    await cluster.send(1, queue_id=0)
    await cluster.at(60_000)
    assert cluster.seen.texts() == ["0", "1", "2", "3", "10"]
    report = await cluster.end()
    assert ["skipped", "by", "a", "reset", "6"] in [line.split() for line in report.lines()]


# Questions --------------------------------------------------------------------------------------------------------


@scenario()
async def test_running_info(cluster: Cluster) -> None:
    """Settings under RocketMQ's names, subscriptions, each queue with its lock and messages, rates, and stacks."""
    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1", work_ms=100)
    await cluster.at(25_000)
    await cluster.send(200, queue_id=0)
    await cluster.at(40_000)
    header = GetConsumerRunningInfoRequestHeader(GROUP, consumer.client_id)
    info = await ask(cluster, ConsumerRunningInfo, R.GET_CONSUMER_RUNNING_INFO, header)
    names = {"PROP_CONSUMEORDERLY": "true", "PROP_CLIENT_VERSION": "V4_9_8", "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
             "PROP_NAMESERVER_ADDR": cluster.name_server, "PROP_THREADPOOL_CORE_SIZE": "20", "pullBatchSize": "32",
             "consumerGroup": GROUP, "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
             "consumeThreadMin": "20", "consumeThreadMax": "20", "consumeTimeout": "15",
             "pullThresholdSizeForQueue": "100", "pullThresholdSizeForTopic": "-1"}  # fmt: skip
    assert {name: info.properties.get(name) for name in names} == names
    assert [data.topic for data in info.subscription_set] == [RETRY_QUEUE.topic, TOPIC]
    assert list(info.mq_table) == [RETRY_QUEUE, QUEUE]
    queue = info.mq_table[QUEUE]
    handled = len([call for call in cluster.seen.all if call.good])
    assert (queue.locked, queue.dropped, queue.transaction_msg_count) == (True, False, 1)
    assert abs(queue.commit_offset - handled) <= 1
    assert queue.cached_msg_count + 1 == 200 - queue.commit_offset
    assert (queue.transaction_msg_min_offset, queue.cached_msg_max_offset) == (queue.commit_offset, 199)
    assert 0 <= cluster.world.now_ms - queue.last_consume_timestamp <= 200
    status = info.status_table[TOPIC]
    assert 95 <= status.consume_rt <= 105
    assert 0 < status.consume_ok_tps <= 10
    assert status.consume_failed_msgs == 0
    assert info.jstack is None
    info = await ask(cluster, ConsumerRunningInfo, R.GET_CONSUMER_RUNNING_INFO, header._replace(jstack_enable=True))
    assert f"pull {QUEUE}" in info.jstack
    await cluster.all_seen()


@scenario()
async def test_what_a_consumer_would_commit(cluster: Cluster) -> None:
    """Each member reports its own offsets of the topic, and nothing for a topic that it does not consume."""
    await cluster.broker_and_producer(queues=2)
    one, two = await cluster.consumer("c1"), await cluster.consumer("c2")
    await cluster.at(45_000)
    await cluster.send(20, keys=20)
    await cluster.all_seen()
    for topic, count in ((TOPIC, 1), ("Other", 0)):
        header = ConsumerStatusRequestHeader(topic, GROUP)
        body = await ask(cluster, GetConsumerStatusBody, R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        assert sorted(body.consumer_table) == sorted([one.client_id, two.client_id])
        assert [len(table) for table in body.consumer_table.values()] == [count, count]
        assert sum(sum(table.values()) for table in body.consumer_table.values()) == 20 * count


# Directly ---------------------------------------------------------------------------------------------------------


class FailedError(Exception):
    pass


@scenario()
async def test_a_message_consumed_directly(cluster: Cluster) -> None:
    """The listener's result comes back in RocketMQ's words, and no offset moves."""
    answers = {"0": None, "1": S.SUSPEND_CURRENT_QUEUE_A_MOMENT, "2": S.ROLLBACK}

    def answer(message: MessageExt, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        text = message.body.decode()
        if cluster.seen.texts().count(text) == 1:
            return None
        context.auto_commit = text != "2"
        if text not in answers:
            raise FailedError("no")
        return answers[text]

    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1", answer=answer)
    await cluster.at(25_000)
    await cluster.send(4, queue_id=0)
    await cluster.all_seen()
    await cluster.at(35_000)
    results = []
    for message in cluster.stored():
        header = ConsumeMessageDirectlyRequestHeader(GROUP, consumer.client_id, message.offset_message_id)
        results.append(await ask(cluster, ConsumeMessageDirectlyResult, R.CONSUME_MESSAGE_DIRECTLY, header))
    assert [result.consume_result for result in results] == [
        CMResult.CR_SUCCESS, CMResult.CR_LATER, CMResult.CR_ROLLBACK, CMResult.CR_THROW_EXCEPTION,
    ]  # fmt: skip
    assert [(result.order, result.auto_commit) for result in results] == [(True, text != 2) for text in range(4)]
    assert results[3].remark == "FailedError: no"
    await cluster.at(45_000)
    assert cluster.committed() == 4
    assert len(cluster.seen.all) == 8


@scenario()
async def test_a_message_consumed_directly_without_order(cluster: Cluster) -> None:
    """A concurrent listener's result likewise: None is no result, and the acknowledged part of a batch is ignored."""
    answers = {"0": C.CONSUME_SUCCESS, "1": C.RECONSUME_LATER, "2": None}

    def answer(message: MessageExt, context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus | None:
        text = message.body.decode()
        if cluster.seen.texts().count(text) == 1:
            return C.CONSUME_SUCCESS
        if text not in answers:
            raise FailedError("no")
        return answers[text]

    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1", answer=answer, ordering="none")
    await cluster.at(25_000)
    await cluster.send(4, queue_id=0)
    await cluster.at(35_000)
    assert sorted(cluster.seen.texts()) == ["0", "1", "2", "3"]
    results = []
    for message in cluster.stored():
        header = ConsumeMessageDirectlyRequestHeader(GROUP, consumer.client_id, message.offset_message_id)
        results.append(await ask(cluster, ConsumeMessageDirectlyResult, R.CONSUME_MESSAGE_DIRECTLY, header))
    assert [result.consume_result for result in results] == [
        CMResult.CR_SUCCESS, CMResult.CR_LATER, CMResult.CR_RETURN_NULL, CMResult.CR_THROW_EXCEPTION,
    ]  # fmt: skip
    assert {(result.order, result.auto_commit) for result in results} == {(False, True)}
    assert results[3].remark == "FailedError: no"
    question = GetConsumerRunningInfoRequestHeader(GROUP, consumer.client_id)
    info = await ask(cluster, ConsumerRunningInfo, R.GET_CONSUMER_RUNNING_INFO, question)
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert info.status_table[TOPIC].consume_failed_tps == 0.0, "what an administrator asked for is not counted"
    await cluster.at(60_000)
    assert cluster.committed() == 4
    assert len(cluster.seen.all) == 8


@scenario()
async def test_a_direct_message_waits_for_the_listener_and_no_longer(cluster: Cluster) -> None:
    """One process never runs two listeners on one queue: the direct call runs between two calls of a busy queue."""
    await cluster.broker_and_producer(queues=1)
    consumer = await cluster.consumer("c1", work_ms=1000)
    await cluster.at(25_000)
    await cluster.send(10, queue_id=0)
    await cluster.at(27_500)
    header = ConsumeMessageDirectlyRequestHeader(GROUP, consumer.client_id, cluster.stored()[9].offset_message_id)
    result = await ask(cluster, ConsumeMessageDirectlyResult, R.CONSUME_MESSAGE_DIRECTLY, header)
    assert (result.consume_result, result.spent_time_mills) == (CMResult.CR_SUCCESS, 1000)
    assert cluster.world.elapsed_ms < 27_500 + 2_500
    await cluster.at(45_000)
    texts = cluster.seen.texts()
    assert sorted(texts) == sorted([*map(str, range(10)), "9"])
    assert texts.index("9") < 5
    assert not cluster.seen.overlaps


@scenario()
async def test_strangers_are_told_so(cluster: Cluster) -> None:
    """An unknown client and an unknown message are errors with a text of the broker."""
    await cluster.broker(queues=1)
    consumer = await cluster.consumer("c1")
    for header in (
        ConsumeMessageDirectlyRequestHeader(GROUP, "nobody", "7F00000100002A9F0000000000000000"),
        ConsumeMessageDirectlyRequestHeader(GROUP, consumer.client_id, "7F00000100002A9F0000000000000000"),
    ):
        assert (await cluster.call("admin", R.CONSUME_MESSAGE_DIRECTLY, header)).code == 1
