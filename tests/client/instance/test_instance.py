"""Every client: its id, heartbeats, and answers to requests of brokers (wire.md 9, 12.1)."""

import asyncio

import pytest

from lockstep.client import ConsumeFromWhere
from lockstep.client.config import ClientConfig
from lockstep.client.errors import NoRouteError
from lockstep.protocol.bodies.broker import BrokerData, QueueData, TopicRouteData
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import ConsumerData, ConsumeType, HeartbeatData, MessageModel, SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    NotifyConsumerIdsChangedRequestHeader,
    QueueRequestHeader,
    UnregisterClientRequestHeader,
)
from lockstep.remoting.connections.endpoint import Endpoint
from tests.client.stage import TOPIC, Stage, on_stage

BEAT = RequestCode.HEART_BEAT


def consumer_data() -> ConsumerData:
    return ConsumerData(
        "tower",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        (SubscriptionData.parse(TOPIC, "*"),),
    )


def heartbeat(command: RemotingCommand) -> HeartbeatData:
    return decode_body(HeartbeatData, command.body, command.serialize_type)


@on_stage
async def test_two_clients_of_one_process_differ(stage: Stage) -> None:
    """ip@pid#nanoTime as Java's, never equal."""
    await stage.broker()
    first, second = stage.instance(), stage.instance()
    assert first.client_id != second.client_id
    host, _, rest = first.client_id.partition("@")
    assert host == stage.client.address
    assert [part.isdigit() for part in rest.split("#")] == [True, True]


@on_stage
async def test_heartbeats(stage: Stage) -> None:
    """After 1 s to every broker of the known routes, then each 30 s; the first one is the connection's greeting."""
    broker = await stage.broker(queues=1)
    instance = stage.instance(consumer_data=consumer_data)
    await instance.routes.fetch(TOPIC)
    instance.start()
    await stage.world.sleep_ms(900)
    assert broker.requests(BEAT) == []
    await stage.world.sleep_ms(200)
    assert [heartbeat(command) for command in broker.requests(BEAT)] == [
        HeartbeatData(instance.client_id, (), (consumer_data(),))
    ]
    await stage.world.sleep_ms(60_000)
    assert len(broker.requests(BEAT)) == 3
    assert [command.serialize_type for command in broker.requests(BEAT)] == [
        SerializeType.JSON,
        SerializeType.MSGPACK,
        SerializeType.MSGPACK,
    ]


@on_stage
async def test_consumers_tell_slaves_too(stage: Stage) -> None:
    """A consumer is known to every broker address, a producer to masters only (wire.md 12.1)."""
    master, slave = await stage.broker("broker-a"), await stage.broker("slave")
    addresses = {0: master.address, 1: slave.address}
    master.routes[TOPIC] = TopicRouteData((QueueData("broker-a", 1, 1, 6),), (BrokerData("broker-a", "c", addresses),))
    for kwargs in ({"producer_group": "pilots"}, {"consumer_data": consumer_data}):
        instance = stage.instance(**kwargs)
        await instance.routes.fetch(TOPIC)
        await instance.heartbeat_all()
    assert [bool(heartbeat(command).consumer_data_set) for command in master.requests(BEAT)] == [False, True]
    assert [bool(heartbeat(command).consumer_data_set) for command in slave.requests(BEAT)] == [True]


@on_stage
async def test_a_broker_that_refuses_the_heartbeat(stage: Stage) -> None:
    """The connection is of no use; the refusal is logged, and the next round tries again."""
    broker = await stage.broker(queues=1)
    broker.answers(BEAT, ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS)
    instance = stage.instance(consumer_data=consumer_data)
    await instance.routes.fetch(TOPIC)
    await instance.heartbeat_all()
    assert stage.events("warning") == ["heartbeat_failed"]
    assert instance.dialer.open_endpoint(broker.address) is None
    await instance.heartbeat_all()
    assert instance.dialer.open_endpoint(broker.address) is not None


@on_stage
async def test_name_servers_and_strangers_are_not_greeted(stage: Stage) -> None:
    """A name server gets no heartbeat, nor does a broker from a client that is neither producer nor consumer."""
    broker = await stage.broker(queues=1)
    consumer, nobody = stage.instance(consumer_data=consumer_data), stage.instance()
    await consumer.routes.fetch(TOPIC)
    await nobody.routes.fetch(TOPIC)
    await nobody.call("broker-a", RequestCode.GET_MAX_OFFSET, QueueRequestHeader(TOPIC, 0))
    assert broker.requests(BEAT) == []


@on_stage
async def test_a_new_connection_is_told_of_before_anybody_uses_it(stage: Stage) -> None:
    """`on_broker_connected` runs after the heartbeat, and calls wait until it has ended."""
    broker = await stage.broker(queues=1)
    order: list[str] = []

    async def connected(address: str, endpoint: Endpoint) -> None:
        assert address == broker.address
        assert endpoint.agreed
        order.append(f"connected after {len(broker.requests(BEAT))}")
        await stage.world.sleep_ms(50)
        order.append("ready")

    instance = stage.instance(consumer_data=consumer_data, on_broker_connected=connected)
    await instance.routes.fetch(TOPIC)
    await instance.call("broker-a", RequestCode.GET_MAX_OFFSET, QueueRequestHeader(TOPIC, 0))
    order.append("called")
    assert order == ["connected after 1", "ready", "called"]


@on_stage
async def test_what_a_broker_may_ask(stage: Stage) -> None:
    """Changed members are passed on, one-way; anything else is answered with "not supported"."""
    broker = await stage.broker(queues=1)
    changed: list[str] = []
    instance = stage.instance(consumer_data=consumer_data, on_ids_changed=changed.append)
    await instance.routes.fetch(TOPIC)
    await instance.heartbeat_all()
    notice = NotifyConsumerIdsChangedRequestHeader("tower")
    broker.tell(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, notice))
    await stage.world.until(lambda: changed)
    assert set(changed) == {"tower"}
    reply = await broker.endpoints[-1].request(RemotingCommand(9999), 1000)
    assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert reply.remark == "request code 9999 is not supported by this client"


@on_stage
async def test_the_end_of_a_client(stage: Stage) -> None:
    """It unregisters where it is connected, a silent broker costs 3 s and not the end, and nothing runs on."""
    silent, good = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 1, "broker-b": 1})
    silent.answers(RequestCode.UNREGISTER_CLIENT, None)
    instance = stage.instance(consumer_data=consumer_data)
    await instance.routes.fetch(TOPIC)
    instance.start()
    await stage.world.sleep_ms(2000)
    begin_ms = stage.world.elapsed_ms
    await instance.schedule.stop()
    await instance.leave("tower")
    instance.close()
    assert 3000 <= stage.world.elapsed_ms - begin_ms < 3100
    (command,) = good.requests(RequestCode.UNREGISTER_CLIENT)
    assert command.decode_header(UnregisterClientRequestHeader) == (instance.client_id, None, "tower")
    beats = len(good.requests(BEAT))
    await stage.world.sleep_ms(100_000)
    assert len(good.requests(BEAT)) == beats
    await instance.heartbeat_all()
    assert "heartbeat_failed" in stage.events("warning"), "logged, not raised"


@on_stage
async def test_who_stops_a_schedule_can_be_cancelled_himself(stage: Stage) -> None:
    """A time limit around a shutdown ends the shutdown: its cancellation is not mistaken for a round's."""
    await stage.broker()
    schedule = stage.instance(ClientConfig()).schedule

    async def work_on() -> None:
        try:
            await stage.world.sleep_ms(10_000)
        finally:
            await stage.world.sleep_ms(2_000)  # it cleans up

    schedule.every(1000, work_on, first_ms=0, name="work")
    await stage.world.sleep_ms(100)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(schedule.stop(), 1)
    assert stage.world.elapsed_ms < 1_500


@on_stage
async def test_rounds_of_a_schedule(stage: Stage) -> None:
    """First after its own time, then at a fixed rate however long the work takes; an error does not end it."""
    await stage.broker()
    schedule = stage.instance(ClientConfig()).schedule
    times: list[int] = []

    async def work() -> None:
        times.append(stage.world.elapsed_ms)
        await stage.world.sleep_ms(300)
        if len(times) == 2:
            raise LookupError("once")

    schedule.every(1000, work, first_ms=100, name="work")
    await stage.world.sleep_ms(4000)
    assert times == [100, 1100, 2100, 3100]
    [fields] = [fields for level, event, fields in stage.log.events if (level, event) == ("error", "task_failed")]
    assert isinstance(fields["exc_info"], LookupError), "what was not expected is shown with its traceback"
    stage.world.pause("client")
    resume_at = stage.world.elapsed_ms + 10_000
    stage.world.loop.call_later(10, stage.world.resume, "client", context=stage.world.loop.ground)
    await stage.world.sleep_ms(1500)
    assert [at for at in times[4:] if at >= resume_at] == times[4:]
    assert len(times) <= 7, "rounds that were missed are not made up for"


@pytest.mark.parametrize(("vip", "port"), [(False, 10911), (True, 10909)])
@on_stage
async def test_messages_go_to_the_vip_channel_when_that_is_on(stage: Stage, vip: bool, port: int) -> None:
    """Two ports below the broker's; other calls stay where they are (wire.md 1.1)."""
    server = await stage.broker()
    host = server.runtime.address
    server._listening.append(await server.runtime.create_server(server._accept, host, 10909))
    stage.route_to({"broker-a": 1})
    instance = stage.instance(ClientConfig(vip_channel_enabled=vip))
    with pytest.raises(NoRouteError):
        await instance.sender("broker-a")
    assert instance.open_sender("broker-a") is None
    await instance.routes.fetch(TOPIC)
    assert instance.open_sender("broker-a") is None
    endpoint = await instance.sender("broker-a")
    assert endpoint.address == f"{host}:{port}"
    assert instance.open_sender("broker-a") is endpoint
    assert instance.address_of("broker-a") == f"{host}:10911"
