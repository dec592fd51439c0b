"""`auto_batch` for sends to any queue: a batch for each queue, by the rules of frames (docs/order.md 2)."""

import asyncio
from typing import Any

from lockstep.client import Message, Producer, ProducerConfig, SendOutcome
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.signature import Credentials
from tests.client.producer.batch_stage import RocketMQ, bodies_of, ends, message, sends, with_batches
from tests.client.producer.send_stage import header_of
from tests.client.stage import TOPIC, Stage

REFUSED = SendOutcome.REFUSED


async def any_queue(producer: Producer, *texts: str, **settings: Any) -> list[Any]:
    return await asyncio.gather(*[producer.send(message(text), **settings) for text in texts], return_exceptions=True)


@with_batches(queues=2)
async def test_sends_to_any_queue_leave_in_a_batch_a_queue(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """The first one leaves at once, those of its turn in batches; one that is alone in its queue leaves alone."""
    results = await any_queue(p, *"abcdefg")
    assert [len(texts) for texts in rocketmq.sent] == [1, 1, 3, 3]
    assert ends(results) == [None] * 7
    queue_ids = {text: one.queue_id for text, one in zip("abcdefg", results, strict=True)}
    for command in rocketmq.batches:
        assert {queue_ids[text] for text in bodies_of(command)} == {header_of(command).queue_id}
    assert [rocketmq.stored[one.queue_offset] for one in results] == list("abcdefg")
    del rocketmq.sent[:]
    await any_queue(p, "h", "i")
    assert sorted(rocketmq.sent) == [["h"], ["i"]]


@with_batches(queues=1)
async def test_sends_wait_for_an_answer_or_10_ms(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """While the batches of two moments are unanswered, others wait; the first answer lets them leave."""
    held: list[RemotingCommand] = []
    rocketmq.on_batch = lambda command: held.append(command)
    loop = asyncio.get_running_loop()
    calls = []
    for number in range(2):
        calls += [asyncio.ensure_future(any_queue(p, *(f"{text}{number}" for text in "abc")))]
        await stage.world.until(lambda count=number + 1: len(held) == count)  # type: ignore[misc]
    began = loop.time()
    calls += [asyncio.ensure_future(any_queue(p, *"xyz"))]
    await stage.world.until(lambda: len(held) == 3, poll_ms=1)
    assert 0.01 <= loop.time() - began < 0.02
    for command in held:
        rocketmq.broker.endpoints[-1].reply(rocketmq.store(command))
    assert [ends(results) for results in await asyncio.gather(*calls)] == [[None] * 3] * 3


@with_batches()
async def test_what_is_left_of_a_timeout_may_differ_a_little(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Sends that waited for a route have some ms more or less than their neighbours, and leave with them."""
    left_ms = [3000, 2999, 3001, 2998, 3000, 2990, 500, 501]
    calls = [p.send(message(text), timeout_ms=ms) for text, ms in zip("abcdefgh", left_ms, strict=True)]
    assert ends(await asyncio.gather(*calls)) == [None] * 8
    assert rocketmq.sent[1:] == [["a"], [*"bcdef"], ["g", "h"]]


@with_batches(ProducerConfig(auto_batch=True, credentials=Credentials("account1", "secret-1234")))
async def test_a_batch_has_one_topic(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Topics do not wait for each other, also with an account."""
    stage.route_to({"broker-a": 1}, "another")
    await p.send(Message("another", b"first"))
    del rocketmq.sent[:]
    topics = [TOPIC, TOPIC, "another", TOPIC, "another"]
    results = await asyncio.gather(*[p.send(Message(topic, b"%d" % n)) for n, topic in enumerate(topics)])
    assert sorted(rocketmq.sent) == [["0"], ["1", "3"], ["2", "4"]]
    assert [one.queue.topic for one in results] == topics


@with_batches()
async def test_a_compressed_message_to_any_queue(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """It leaves by itself, and its neighbours in batches."""
    results = await any_queue(p, "a", "b", "c", "x" * 5000, "d", "e")
    assert ends(results) == [None] * 6
    assert rocketmq.sent[1:] == [["a"], ["b", "c"], ["x"], ["d", "e"]]


@with_batches()
async def test_a_refused_batch_to_any_queue(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Each of its messages is sent by itself, and has its own end."""
    rocketmq.refused = "c"
    results = await any_queue(p, "a", "b", "c", "d")
    assert ends(results) == [None, None, REFUSED, None]
    assert rocketmq.sent[1:] == [["a"], ["b", "c", "d"], ["b"], ["c"], ["d"]]


@with_batches(ProducerConfig(auto_batch=True, retry_times=1))
async def test_a_lost_batch_to_any_queue_is_repeated(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Each message has its attempts, and leaves with others again."""
    rocketmq.on_batch = lambda _: None
    calls = asyncio.ensure_future(any_queue(p, "a", "b", "c", "d"))
    await stage.world.until(lambda: len(rocketmq.sent) == 3)
    rocketmq.on_batch = None
    rocketmq.broker.endpoints[-1].abort("the network fails")
    assert ends(await calls) == [None] * 4
    assert rocketmq.sent[1:3] == [["a"], ["b", "c", "d"]]
    assert sorted(text for texts in rocketmq.sent[3:] for text in texts) == ["b", "c", "d"]


@with_batches(ProducerConfig(auto_batch=True, linger_ms=50))
async def test_linger_waits_for_others_to_any_queue(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """A keyed send waits for the answer before its own alone."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert ends(await sends(p, "k")) == [None]
    assert loop.time() - began < 0.02
    one = p.send_async(message("a"))
    await asyncio.sleep(0.02)
    await asyncio.gather(one, p.send(message("b")))
    assert rocketmq.sent[1:] == [["k"], ["a", "b"]]
