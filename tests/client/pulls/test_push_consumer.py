"""PushConsumer itself: what it needs to start, a failed start, subscriptions."""

from typing import Any

import pytest

from lockstep.client import ConsumerConfig, ConsumerError, NoRouteError, PushConsumer
from lockstep.protocol.bodies.client import ConsumerRunningInfo
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, HeartbeatData, MessageModel
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.filter import FilterError
from lockstep.protocol.headers.admin import GetConsumerRunningInfoRequestHeader
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage


def listen(messages: list[Any], context: Any) -> None:
    pass


def consumer_for(stage: Stage, **kwargs: Any) -> PushConsumer:
    return PushConsumer("tower", name_server=stage.name_server, runtime=stage.client, log=stage.log, **kwargs)


def consumer_data(broker: FakeBroker) -> list[ConsumerData]:
    commands = broker.requests(RequestCode.HEART_BEAT)
    beats = [decode_body(HeartbeatData, command.body, command.serialize_type) for command in commands]
    return [data for beat in beats for data in beat.consumer_data_set]


@on_stage
async def test_what_a_start_needs(stage: Stage) -> None:
    """A listener and a subscription, each missed with the call that gives it; and it starts once."""
    await stage.broker(queues=1)
    consumer = consumer_for(stage)
    with pytest.raises(ConsumerError, match="register_listener"):
        await consumer.start()
    consumer.register_listener(listen)
    with pytest.raises(ConsumerError, match="subscribe"):
        await consumer.start()
    consumer.subscribe(TOPIC)
    with pytest.raises(ConsumerError, match="not started"):
        _ = consumer.client_id
    assert consumer.assigned_queues == []
    await consumer.shutdown()  # before the start: nothing to end
    async with consumer:
        with pytest.raises(ConsumerError, match="started before"):
            await consumer.start()


def test_names_are_checked_at_once() -> None:
    """Group, topic and tag expression, before anything is started."""
    with pytest.raises(LocalProtocolError, match="placeholder"):
        PushConsumer("DEFAULT_CONSUMER", name_server="127.0.0.1:1")
    consumer = PushConsumer("g", name_server="127.0.0.1:1")
    with pytest.raises(LocalProtocolError, match="may hold only"):
        consumer.subscribe("no topic")
    with pytest.raises(FilterError):
        consumer.subscribe("T", "||")


@on_stage
async def test_a_start_that_fails_leaves_nothing_running(stage: Stage) -> None:
    """No name server answers: the error says so, the trace is closed, and no task or connection is left."""
    server = await stage.broker()
    server.answers(RequestCode.GET_ROUTEINFO_BY_TOPIC, None)
    consumer = consumer_for(stage, listener=listen, trace="trace", config=ConsumerConfig(request_timeout_ms=500))
    consumer.subscribe(TOPIC)
    with pytest.raises(NoRouteError, match="no name server answered"):
        async with consumer:
            raise AssertionError("it must not start")
    assert consumer._member is not None
    trace = consumer._member.membership.trace
    assert trace is not None
    with pytest.raises(ValueError, match="closed file"):
        trace._file.write(b"x")
    await consumer.shutdown()


@on_stage
async def test_what_a_consumer_tells_its_brokers(stage: Stage) -> None:
    """Its group and kind, where it begins, and its subscriptions, the retry topic's among them."""
    broker = await stage.broker(queues=1)
    config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = consumer_for(stage, listener=listen, config=config)
    consumer.subscribe(TOPIC, "TagA || TagB")
    consumer.subscribe("Gone")
    consumer.unsubscribe("Gone")
    started_ms = stage.client.now_ms()
    async with consumer:
        await stage.world.sleep_ms(100)
    data = consumer_data(broker)[0]
    assert (data.group_name, data.consume_type, data.message_model, data.consume_from_where) == (
        "tower",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    told = [(s.topic, s.sub_string, s.tags_set, s.sub_version) for s in data.subscriptions]
    assert told == [(TOPIC, "TagA || TagB", ("TagA", "TagB"), started_ms), ("%RETRY%tower", "*", (), started_ms)]


@on_stage
async def test_the_model_and_the_unit_of_the_settings(stage: Stage) -> None:
    """Arguments of the consumer win over its config."""
    broker = await stage.broker(queues=1)
    config = ConsumerConfig(message_model=MessageModel.BROADCASTING, unit_mode=True)
    for given in ({}, {"message_model": MessageModel.CLUSTERING}):
        consumer = consumer_for(stage, listener=listen, config=config, **given)
        consumer.subscribe(TOPIC)
        async with consumer:
            await stage.world.sleep_ms(100)
    told = {(data.message_model, data.unit_mode) for data in consumer_data(broker)}
    assert told == {(MessageModel.BROADCASTING, True), (MessageModel.CLUSTERING, True)}


def test_an_ordering_that_there_is_not() -> None:
    """Named with those that there are."""
    with pytest.raises(ConsumerError, match="ordering must be one of 'queue', 'key', 'none', not 'nome'"):
        PushConsumer("g", name_server="127.0.0.1:1", ordering="nome")  # type: ignore[arg-type]


@on_stage
async def test_what_is_steered_while_it_runs(stage: Stage) -> None:
    """Only while it runs and within limits; running info has the new number of threads."""
    broker = await stage.broker(queues=1)
    consumer = consumer_for(stage, listener=listen, ordering="none")
    consumer.subscribe(TOPIC)
    for steer in (consumer.suspend, consumer.resume, lambda: consumer.set_consume_thread_count(3)):
        with pytest.raises(ConsumerError, match="not started"):
            steer()
    async with consumer:
        consumer.suspend()
        consumer.resume()
        for count in (0, 1001):
            with pytest.raises(ConsumerError, match=f"from 1 to 1000, not {count}"):
                consumer.set_consume_thread_count(count)
        consumer.set_consume_thread_count(7)
        assert consumer.message_accumulation == 0
        header = GetConsumerRunningInfoRequestHeader("tower", consumer.client_id)
        reply = await broker.endpoints[-1].request(RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, header), 1000)
        info = decode_body(ConsumerRunningInfo, reply.body, reply.serialize_type)
        assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    with pytest.raises(ConsumerError, match="shut down"):
        consumer.suspend()
