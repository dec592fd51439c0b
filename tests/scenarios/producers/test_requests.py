"""Requests with answers: a producer waits for the answer that the consumer of its message sends."""

import asyncio

import pytest

from lockstep.client import (
    ClientError,
    ConsumeOrderlyContext,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    RequestTimeoutError,
    SendError,
    reply_message,
)
from lockstep.protocol.messages.message import MessageExt as Answer
from tests.scenarios.cluster import BROKER, TOPIC, Cluster
from tests.scenarios.scenario import scenario

CALLER, SERVER, REPLIES = "caller", "server", "DefaultCluster_REPLY_TOPIC"
BIG = b"0123456789" * 2000


async def _caller(cluster: Cluster, name: str = CALLER) -> None:
    await cluster.own_producer(name, "callers")


async def _server(cluster: Cluster, *, work_ms: int = 0) -> None:
    """Consumes the topic, and answers each message with its text in capitals; with a producer of its own."""
    await _caller(cluster, SERVER)
    producer = cluster.client(SERVER)
    assert isinstance(producer, Producer)

    async def answer(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
        await asyncio.sleep(work_ms / 1000)
        for message in messages:
            try:
                await producer.send(reply_message(message, message.body.upper()))
            except SendError:
                pass  # who asked is gone

    consumer = await cluster.own_consumer(f"{SERVER}-consumer", "servers", answer)
    await cluster.world.until(lambda: len(consumer.positions) > 3)


async def _request(cluster: Cluster, body: bytes, *, timeout_ms: int = 3000, key: str | None = None) -> Answer:
    producer = cluster.client(CALLER)
    assert isinstance(producer, Producer)
    return await cluster.world.host(CALLER).run(
        producer.request(Message(TOPIC, body, sharding_key=key), timeout_ms=timeout_ms)
    )


@scenario()
async def test_each_request_gets_its_own_answer(cluster: Cluster) -> None:
    """Many requests wait at once, to any queue or in order by a key."""
    await cluster.broker()
    await _server(cluster)
    await _caller(cluster)
    words = [b"alpha", b"bravo", b"charlie", b"delta"]
    answers = await asyncio.gather(
        *[_request(cluster, word, key=f"k{i % 3}" if i else None) for i, word in enumerate(words)]
    )
    assert [answer.body for answer in answers] == [word.upper() for word in words]
    assert answers[0].topic == REPLIES
    assert {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "PUSH_REPLY_TIME", "ARRIVE_TIME"} <= set(answers[0].properties)
    (asked, *_) = [message for queue_id in range(4) for message in cluster.stored(queue_id)]
    assert asked.properties["REPLY_TO_CLIENT"] == answers[0].properties["REPLY_TO_CLIENT"]
    await cluster.world.until(lambda: len(cluster.stored(topic=REPLIES)) == len(words))
    assert sorted(message.body for message in cluster.stored(topic=REPLIES)) == sorted(word.upper() for word in words)


@scenario()
async def test_large_answers_are_compressed_on_the_way(cluster: Cluster) -> None:
    await cluster.broker()
    await _server(cluster)
    await _caller(cluster)
    answer = await _request(cluster, b"small " + BIG)
    assert answer.body == b"SMALL " + BIG
    assert answer.sys_flag & 0x301 == 0x301
    await cluster.world.until(lambda: cluster.stored(topic=REPLIES))
    (kept,) = cluster.stored(topic=REPLIES)
    assert kept.stored_bytes < len(BIG) // 10


@scenario()
async def test_no_answer_in_time(cluster: Cluster) -> None:
    """The error has RocketMQ's text. The late answer has no effect, and the next request gets its own answer."""
    await cluster.broker()
    await _server(cluster, work_ms=800)
    await _caller(cluster)
    begin_ms = cluster.world.elapsed_ms
    with pytest.raises(RequestTimeoutError) as raised:
        await _request(cluster, b"slow", timeout_ms=500)
    assert cluster.world.elapsed_ms - begin_ms == 500
    assert str(raised.value) == (f"send request message to <{TOPIC}> OK, but wait reply message timeout, 500 ms.")
    await cluster.world.until(lambda: cluster.events("reply_unexpected", host=CALLER))
    assert (await _request(cluster, b"again")).body == b"AGAIN"


@scenario()
async def test_a_request_that_is_not_sent(cluster: Cluster) -> None:
    """The caller gets the error of the send, not of the missing answer."""
    await cluster.broker()
    await _caller(cluster)
    cluster.world.partition(CALLER, BROKER)
    with pytest.raises(ClientError) as raised:
        await _request(cluster, b"x", timeout_ms=500)
    assert not isinstance(raised.value, RequestTimeoutError)


@scenario()
async def test_an_answer_to_a_caller_that_died(cluster: Cluster) -> None:
    """The broker refuses to pass the answer on and names the caller; the answer is stored in the reply topic."""
    await cluster.broker()
    await _server(cluster, work_ms=500)
    await _caller(cluster)
    sending = cluster.world.start(_request(cluster, b"orphan"), name="request")
    await cluster.world.until(lambda: any(cluster.stored(queue_id) for queue_id in range(4)))
    cluster.crash(CALLER)
    with pytest.raises(Exception, match="has crashed"):
        await sending
    await cluster.world.until(lambda: cluster.stored(topic=REPLIES))
    assert {message.body for message in cluster.stored(topic=REPLIES)} == {b"ORPHAN"}


@scenario()
async def test_nobody_waits_for_an_answer_to_a_plain_message(cluster: Cluster) -> None:
    await cluster.broker()
    await _caller(cluster)
    producer = cluster.client(CALLER)
    assert isinstance(producer, Producer)
    await cluster.world.host(CALLER).run(producer.send(Message(TOPIC, b"plain")))
    (message,) = [message for queue_id in range(4) for message in cluster.stored(queue_id)]
    with pytest.raises(ClientError, match=r"requestMessage error, property\[CORRELATION_ID\] is null"):
        reply_message(message, b"hello?")


@scenario()
async def test_a_dead_broker_does_not_cost_the_request(cluster: Cluster) -> None:
    """A client first sends a heartbeat to all brokers of the topic. One that does not answer takes at most half of the
    time, and the request still gets its answer through the other."""
    await cluster.broker()
    await cluster.broker("broker-b")
    await _server(cluster)
    await _caller(cluster)
    cluster.world.partition(CALLER, "broker-b")
    producer = cluster.client(CALLER)
    assert isinstance(producer, Producer)
    asking = producer.request(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, BROKER, 0), timeout_ms=3000)
    begin_ms = cluster.world.elapsed_ms
    assert (await cluster.world.host(CALLER).run(asking)).body == b"X"
    assert cluster.world.elapsed_ms - begin_ms < 2000
    cluster.world.repair(CALLER, "broker-b")
