"""A producer's sends to any queue, its routes, its states and its trace."""

import asyncio
import json

import pytest

from lockstep.client import Message, NoRouteError, Producer, ProducerConfig, SendError, SendOutcome
from lockstep.client.errors import ClientError
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.remoting.settings import SettingError
from tests.client.producer.send_stage import SEND, msg_id_of, producer_for, store
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

# Anywhere ----------------------------------------------------------------------------------------------------


@on_stage
async def test_queues_take_turns(stage: Stage) -> None:
    """Of all brokers, each as often as the others."""
    for name in ("broker-a", "broker-b"):
        store(await stage.broker(name))
    stage.route_to({"broker-a": 2, "broker-b": 2})
    async with producer_for(stage) as producer:
        results = [await producer.send(Message(TOPIC, b"x")) for _ in range(12)]
    queues = [result.queue for result in results]
    assert queues[:4] == queues[4:8] == queues[8:]
    assert sorted(queues[:4]) == [queue_at(i, name) for name in ("broker-a", "broker-b") for i in range(2)]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    ],
)
@on_stage
async def test_codes_that_are_tried_on_another_broker(stage: Stage, code: ResponseCode) -> None:
    """wire.md 12.11: the next attempt goes to the other broker, with the same id."""
    bad, good = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 4, "broker-b": 4})
    bad.answers(SEND, code)
    stored = store(good)
    async with producer_for(stage) as producer:
        for i in range(8):
            await producer.send(Message(TOPIC, b"%d" % i))
    assert stored == [b"%d" % i for i in range(8)]
    tried = {msg_id_of(command) for command in bad.requests(SEND)}
    assert tried
    assert tried <= {msg_id_of(command) for command in good.requests(SEND)}
    assert len(tried) == len(bad.requests(SEND)), "never twice on the broker that failed"


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
)
@on_stage
async def test_codes_that_are_final(stage: Stage, code: ResponseCode) -> None:
    """SYSTEM_BUSY is not retried either (wire.md 12.11): one attempt, and its code."""
    brokers = [await stage.broker("broker-a"), await stage.broker("broker-b")]
    stage.route_to({"broker-a": 4, "broker-b": 4})
    for broker in brokers:
        broker.answers(SEND, code)
    async with producer_for(stage) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"))
    assert (caught.value.code, caught.value.outcome) == (code, SendOutcome.REFUSED)
    assert sum(len(broker.requests(SEND)) for broker in brokers) == 1


@on_stage
async def test_three_attempts_and_no_more(stage: Stage) -> None:
    """1 + retryTimesWhenSendFailed; the last refusal is raised."""
    broker = await stage.broker(queues=4)
    broker.answers(SEND, ResponseCode.SYSTEM_ERROR)
    async with producer_for(stage) as producer:
        with pytest.raises(SendError, match="SYSTEM_ERROR"):
            await producer.send(Message(TOPIC, b"x"))
    assert len(broker.requests(SEND)) == 3


@on_stage
async def test_a_dead_broker_is_passed_over(stage: Stage) -> None:
    """A refused connection costs an attempt, not the message."""
    dead, good = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 4, "broker-b": 4})
    stored = store(good)
    dead.stop()
    producer = Producer("pilots", name_server=good.name_server, runtime=stage.client, log=stage.log)
    async with producer:
        for i in range(8):
            await producer.send(Message(TOPIC, b"%d" % i))
    assert stored == [b"%d" % i for i in range(8)]


@on_stage
async def test_all_attempts_share_the_time(stage: Stage) -> None:
    """Silence of one broker uses the 3000 ms up; the outcome is unknown."""
    broker = await stage.broker(queues=4)
    broker.answers(SEND, None)
    async with producer_for(stage) as producer:
        await producer.queues(TOPIC)
        begin_ms = stage.world.elapsed_ms
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert caught.value.outcome is SendOutcome.UNKNOWN
        assert 3000 <= stage.world.elapsed_ms - begin_ms <= 3050
    assert len(broker.requests(SEND)) == 1


@on_stage
async def test_unknown_then_refused_is_unknown(stage: Stage) -> None:
    """A lost connection, then two refusals by other brokers: the first attempt may have been stored."""
    first, second = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 1, "broker-b": 1})

    def cut(_: RemotingCommand) -> None:
        for broker in (first, second):
            broker.answers(SEND, ResponseCode.SYSTEM_ERROR)
            for endpoint in broker.endpoints:
                endpoint.abort("cut")

    first.on[SEND] = second.on[SEND] = cut
    async with producer_for(stage) as producer:
        await producer.queues(TOPIC)
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"))
    assert (caught.value.outcome, caught.value.code) == (SendOutcome.UNKNOWN, ResponseCode.SYSTEM_ERROR)


# Routes, life, traces ----------------------------------------------------------------------------------------


@on_stage
async def test_a_topic_that_is_made_by_sending(stage: Stage) -> None:
    """It uses the queues of TBW102, four at most, until the topic has its own route."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 8}, "TBW102", perm=7)
    store(broker)
    config = ProducerConfig(poll_name_server_interval_ms=30_000)
    async with producer_for(stage, config) as producer:
        assert await producer.queues(TOPIC) == [queue_at(i) for i in range(4)]
        await producer.send(Message(TOPIC, b"x"), sharding_key="k")
        stage.route_to({"broker-a": 8})
        await stage.world.sleep_ms(31_000)
        assert await producer.queues(TOPIC) == [queue_at(i) for i in range(8)]


@on_stage
async def test_a_topic_that_nobody_knows(stage: Stage) -> None:
    """No route and no TBW102: said at once, and asked anew by the next send."""
    broker = await stage.broker()
    store(broker)
    async with producer_for(stage) as producer:
        for key in (None, "k"):
            with pytest.raises(NoRouteError, match=TOPIC):
                await producer.send(Message(TOPIC, b"x"), sharding_key=key)
        stage.route_to({"broker-a": 1})
        await producer.send(Message(TOPIC, b"x"), sharding_key="k")


@on_stage
async def test_a_topic_without_write_permission(stage: Stage) -> None:
    """Read-only queues are no place for a message."""
    await stage.broker()
    stage.route_to({"broker-a": 4}, perm=4)
    async with producer_for(stage) as producer:
        with pytest.raises(NoRouteError, match="no writable queue"):
            await producer.send(Message(TOPIC, b"x"))


@on_stage
async def test_a_changed_route_changes_the_queues(stage: Stage) -> None:
    """Within the 30 s in which routes are asked for again."""
    store(await stage.broker(queues=2))
    async with producer_for(stage) as producer:
        assert len(await producer.queues(TOPIC)) == 2
        stage.route_to({"broker-a": 6})
        await stage.world.sleep_ms(30_100)
        assert len(await producer.queues(TOPIC)) == 6


@on_stage
async def test_a_producer_registers_before_it_sends(stage: Stage) -> None:
    """The first thing on a connection to a broker is its heartbeat; at its end it unregisters."""
    broker = await stage.broker(queues=1)
    store(broker)
    producer = producer_for(stage)
    async with producer:
        await producer.send(Message(TOPIC, b"x"))
        with pytest.raises(ClientError, match="started before"):
            await producer.start()
    codes = [command.code for command in broker.seen if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC]
    assert codes == [RequestCode.HEART_BEAT, SEND, RequestCode.UNREGISTER_CLIENT]
    with pytest.raises(ClientError, match="SHUTDOWN_ALREADY"):
        await producer.send(Message(TOPIC, b"y"), sharding_key="k")
    await producer.shutdown()  # a second end is none


def test_what_is_no_producer() -> None:
    """Group names and name servers are checked before anything starts."""
    with pytest.raises(LocalProtocolError, match="placeholder"):
        Producer("DEFAULT_PRODUCER", name_server="127.0.0.1:9876")
    with pytest.raises(SettingError, match="write host:port"):
        Producer("g", name_server="nonsense")


def test_the_name_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """NAMESRV_ADDR as every RocketMQ client reads it; without either, the error names both ways."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SettingError, match="give name_server='host:port' or set NAMESRV_ADDR"):
        Producer("g")
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    Producer("g")


@on_stage
async def test_every_send_is_in_the_trace(stage: Stage) -> None:
    """A broker may store a message whose send was cancelled, or waits when the trace is closed: outcome unknown."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, None)
    async with producer_for(stage, trace="trace.jsonl") as producer:
        cancelled = asyncio.ensure_future(producer.send(Message(TOPIC, b"0"), sharding_key="k"))
        await stage.world.until(lambda: broker.seen and broker.seen[-1].body == b"0")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        waits = asyncio.ensure_future(producer.send(Message(TOPIC, b"1")))
        await stage.world.until(lambda: broker.seen[-1].body == b"1")
        assert producer._parts is not None
        assert producer._parts.trace is not None
        producer._parts.trace.close()
    with pytest.raises(SendError):
        await waits
    records = [json.loads(line) for line in stage.client.disk.read("trace.jsonl").splitlines()]
    assert [(r["event"], r.get("key"), r.get("outcome")) for r in records] == [
        ("send_failed", "k", "unknown"),
        ("send_failed", None, "unknown"),
        ("closed", None, None),
    ]


@on_stage
async def test_the_trace_of_a_producer(stage: Stage) -> None:
    """A record for every message sent, with its offset, or failed, with its outcome; also of sends that were cut
    short by the end."""
    broker = await stage.broker(queues=1)
    store(broker)
    async with producer_for(stage, trace="trace.jsonl") as producer:
        await producer.send(Message(TOPIC, b"0"), sharding_key="k")
        await producer.send(Message(TOPIC, b"1"))
        broker.answers(SEND, ResponseCode.MESSAGE_ILLEGAL)
        for key in ("k", None):
            with pytest.raises(SendError):
                await producer.send(Message(TOPIC, b"2"), sharding_key=key)
        broker.answers(SEND, None)
        cut_short = asyncio.ensure_future(producer.send(Message(TOPIC, b"3"), sharding_key="k"))
        await stage.world.until(lambda: broker.seen[-1].body == b"3")
    with pytest.raises(SendError):
        await cut_short
    records = [json.loads(line) for line in stage.client.disk.read("trace.jsonl").splitlines()]
    assert records.pop()["event"] == "closed"
    told = [(record["event"], record["key"], record.get("offset", record.get("outcome"))) for record in records]
    assert told == [
        ("sent", "k", 0),
        ("sent", None, 1),
        ("send_failed", "k", "refused"),
        ("send_failed", None, "refused"),
        ("send_failed", "k", "unknown"),
    ]
