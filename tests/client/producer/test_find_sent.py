"""A keyed send that had no answer: the producer asks the broker for it before it repeats it (docs/wire.md 17.3)."""

import asyncio

import pytest

from lockstep.client import Message, ProducerConfig, SendError, SendOutcome
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import FindSentRequestHeader, SendMessageResponseHeader
from tests.client.producer.send_stage import SEND, STORED, header_of, msg_id_of, producer_for
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage

FIND, BATCH = RequestCode.FIND_SENT, RequestCode.SEND_BATCH_MESSAGE


def found(broker: FakeBroker) -> list[FindSentRequestHeader]:
    return [command.decode_header(FindSentRequestHeader) for command in broker.requests(FIND)]


async def cut(stage: Stage, broker: FakeBroker, code: int, count: int) -> None:
    """The connection ends once so many requests of the code have come."""
    await stage.world.until(lambda: len(broker.requests(code)) == count)
    broker.endpoints[-1].abort("cut")


@on_stage
async def test_a_send_without_an_answer_is_asked_for(stage: Stage) -> None:
    """The broker has it: the caller gets its place, and nothing is sent again. What follows goes on behind it."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, SendMessageResponseHeader("ID0", 0, 40), None)
    broker.answers(FIND, SendMessageResponseHeader("ID1", 0, 41))
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        await producer.send(Message(TOPIC, b"first"), sharding_key="k")
        second = asyncio.ensure_future(producer.send(Message(TOPIC, b"second"), sharding_key="k"))
        await cut(stage, broker, SEND, 2)
        broker.answers(SEND, SendMessageResponseHeader("ID2", 0, 42))
        result = await second
        assert (result.queue_offset, result.offset_msg_id) == (41, "ID1")
        assert (await producer.send(Message(TOPIC, b"third"), sharding_key="k")).queue_offset == 42
    sent = broker.requests(SEND)
    assert [command.body for command in sent] == [b"first", b"second", b"third"]
    (asked,) = found(broker)
    assert (asked.topic, asked.queue_id, asked.begin_offset, asked.message_count) == (TOPIC, 0, 41, 1)
    assert (asked.message_id, result.msg_id) == (msg_id_of(sent[1]), msg_id_of(sent[1]))
    first, third = header_of(sent[0]), header_of(sent[2])
    assert asked.sender_id == first.sender_id
    assert first.send_generation == 0
    assert (asked.send_generation, asked.send_sequence) == (third.send_generation, third.send_sequence)
    assert asked.send_generation > 0


@on_stage
async def test_a_send_that_is_not_found_is_repeated_in_its_place(stage: Stage) -> None:
    """With the numbers of the question, before those that were called later. A later send was answered before the
    connection ended: then the first may be anywhere in the queue."""
    broker = await stage.broker(queues=1)
    places = [SendMessageResponseHeader(f"ID{offset}", 0, offset) for offset in (7, 8, 9)]
    broker.answers(SEND, None, *places)
    broker.answers(FIND, ResponseCode.QUERY_NOT_FOUND)
    async with producer_for(stage, ProducerConfig(retry_keyed=True, send_together_max=1)) as producer:
        one, two = [
            asyncio.ensure_future(producer.send(Message(TOPIC, text), sharding_key="k")) for text in (b"a", b"b")
        ]
        assert (await two).queue_offset == 7
        await cut(stage, broker, SEND, 2)
        three = producer.send(Message(TOPIC, b"c"), sharding_key="k")
        assert [result.queue_offset for result in await asyncio.gather(one, three)] == [8, 9]
    sent = broker.requests(SEND)
    assert [command.body for command in sent] == [b"a", b"b", b"a", b"c"]
    asked = found(broker)[0]
    assert asked.begin_offset == 0
    again = header_of(sent[2])
    assert (asked.send_generation, asked.send_sequence) == (again.send_generation, again.send_sequence)
    assert asked.message_id == msg_id_of(sent[0]) == msg_id_of(sent[2])


@on_stage
async def test_a_batch_without_an_answer_is_asked_for(stage: Stage) -> None:
    broker = await stage.broker(queues=1)
    broker.answers(BATCH, None)
    broker.answers(FIND, SendMessageResponseHeader("A,B", 0, 3))
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        messages = [Message(TOPIC, b"a"), Message(TOPIC, b"b")]
        send = asyncio.ensure_future(producer.send_batch(messages, sharding_key="k"))
        await cut(stage, broker, BATCH, 1)
        result = await send
    assert (result.queue_offset, result.offset_msg_id) == (3, "A,B")
    (asked,) = found(broker)
    assert (asked.message_id, asked.message_count) == (result.msg_id.split(",")[0], 2)


@on_stage
async def test_nobody_asks_after_a_refusal(stage: Stage) -> None:
    """Nothing is stored then."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, ResponseCode.SYSTEM_BUSY, STORED)
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        await producer.send(Message(TOPIC, b"x"), sharding_key="k")
    assert len(broker.requests(SEND)) == 2
    assert not broker.requests(FIND)


@on_stage
async def test_nobody_asks_a_broker_of_rocketmq(stage: Stage) -> None:
    """It does not know the question: the send is repeated."""
    broker = await stage.broker()
    broker.agrees = False
    stage.route_to({"broker-a": 1})
    broker.answers(SEND, None, STORED)
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        send = asyncio.ensure_future(producer.send(Message(TOPIC, b"x"), sharding_key="k"))
        await cut(stage, broker, SEND, 1)
        await send
    assert len(broker.requests(SEND)) == 2
    assert not broker.requests(FIND)


@on_stage
async def test_a_question_without_an_answer_uses_up_an_attempt(stage: Stage) -> None:
    """Or with a refusal. The send fails as unknown then, and the next one leaves."""
    broker = await stage.broker(queues=1)
    async with producer_for(stage, ProducerConfig(retry_keyed=True, retry_times=1)) as producer:
        for asked, answer in enumerate((None, ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION), 1):
            broker.answers(SEND, None, STORED)
            broker.answers(FIND, answer)
            send = asyncio.ensure_future(producer.send(Message(TOPIC, b"x"), sharding_key="k"))
            await cut(stage, broker, SEND, 2 * asked - 1)
            with pytest.raises(SendError) as caught:
                await send
            assert caught.value.outcome is SendOutcome.UNKNOWN
            assert len(found(broker)) == asked
            await producer.send(Message(TOPIC, b"y"), sharding_key="k")
    assert [command.body for command in broker.requests(SEND)] == [b"x", b"y"] * 3


@on_stage
async def test_a_caller_that_goes_away_while_it_is_asked(stage: Stage) -> None:
    """Later sends of its queue go on."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, None, STORED)
    broker.answers(FIND, None)
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        first = asyncio.ensure_future(producer.send(Message(TOPIC, b"x"), sharding_key="k"))
        await cut(stage, broker, SEND, 1)
        await stage.world.until(lambda: broker.requests(FIND))
        second = asyncio.ensure_future(producer.send(Message(TOPIC, b"y"), sharding_key="k"))
        await asyncio.sleep(0.05)
        assert len(broker.requests(SEND)) == 1
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first


@on_stage
async def test_a_question_out_of_sequence_begins_a_new_generation(stage: Stage) -> None:
    """The broker has forgotten the sequence: the next question has number 0 of a generation that it may take."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, None, STORED)
    broker.answers(FIND, ResponseCode.SEND_OUT_OF_SEQUENCE, SendMessageResponseHeader("ID", 0, 5))
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        send = asyncio.ensure_future(producer.send(Message(TOPIC, b"x"), sharding_key="k"))
        await cut(stage, broker, SEND, 1)
        assert (await send).queue_offset == 5
        await producer.send(Message(TOPIC, b"y"), sharding_key="k")
    first, second = found(broker)
    assert (first.send_sequence, second.send_sequence) == (0, 0)
    assert first.send_generation < second.send_generation
