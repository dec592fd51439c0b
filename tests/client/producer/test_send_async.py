"""Sends in the background: callbacks, repeats, and the same order as all other sends."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lockstep.client import Message, MessageQueue, ProducerConfig, SendError, SendOutcome, SendResult
from lockstep.client.errors import ClientError
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from tests.client.messages import Panic
from tests.client.producer.send_stage import SEND, STORED, header_of, producer_for, store
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

Heard = list[tuple[SendResult | None, BaseException | None]]


def listening(heard: Heard) -> Callable[[SendResult | None, BaseException | None], None]:
    return lambda result, error: heard.append((result, error))


@on_stage
async def test_the_callback_hears_the_result(stage: Stage) -> None:
    """A caller that awaits the task gets it too; awaiting is not necessary."""
    store(await stage.broker(queues=2))
    heard: Heard = []
    async with producer_for(stage) as producer:
        task = producer.send_async(Message(TOPIC, b"1"), listening(heard), sharding_key="k")
        assert not heard
        result = await task
        assert heard == [(result, None)]
        producer.send_async(Message(TOPIC, b"2"), listening(heard))
        await stage.world.sleep_ms(100)
    assert len(heard) == 2


@on_stage
async def test_the_callback_hears_errors(stage: Stage) -> None:
    """Of the network, of messages that must not be sent, and that the task was cancelled."""
    broker = await stage.broker(queues=1)
    broker.on[SEND] = lambda _command: None
    heard: Heard = []
    async with producer_for(stage) as producer:
        producer.send_async(Message(TOPIC, b"1"), listening(heard), timeout_ms=100)
        producer.send_async(Message(TOPIC, b""), listening(heard))
        producer.send_async(Message(TOPIC, b"3"), listening(heard)).cancel()
        await stage.world.sleep_ms(200)
        assert producer._starting == 0
    errors = {type(error) for _, error in heard}
    assert errors == {SendError, LocalProtocolError, ClientError}
    assert [result for result, _ in heard] == [None] * 3


@pytest.mark.parametrize("failure", [ValueError("mine"), Panic("mine"), asyncio.CancelledError("mine")])
def test_a_raising_callback_is_logged(failure: BaseException) -> None:
    def callback(_result: SendResult | None, _error: BaseException | None) -> None:
        raise failure

    @on_stage
    async def play(stage: Stage) -> None:
        store(await stage.broker(queues=1))
        async with producer_for(stage) as producer:
            await producer.send_async(Message(TOPIC, b"1"), callback)
            await stage.world.sleep_ms(1)
        [fields] = [fields for _, event, fields in stage.log.events if event == "send_callback_failed"]
        assert fields["error"] == f"{type(failure).__name__}: mine"
        assert fields["exc_info"].__traceback__.tb_next.tb_frame.f_code is callback.__code__

    play()


@on_stage
async def test_the_callback_hears_an_error_that_is_no_exception(stage: Stage) -> None:
    """Of a selector: it is the error of the send, for the callback too."""
    store(await stage.broker(queues=1))
    heard: Heard = []

    def select(_queues: Sequence[MessageQueue], _message: Message, _arg: Any) -> MessageQueue:
        raise Panic("mine")

    async with producer_for(stage) as producer:
        task = producer.send_async(Message(TOPIC, b"1"), listening(heard), selector=select)
        with pytest.raises(Panic) as raised:
            await task
    assert heard == [(None, raised.value)]


@on_stage
async def test_the_order_of_calls_holds_among_all_kinds_of_sends(stage: Stage) -> None:
    """Also while the topic's route is not known yet, and while a send that was called has not begun."""
    broker = await stage.broker(queues=1)
    stored = store(broker)
    called: list[bytes] = []

    def message(number: int) -> Message:
        called.append(b"%d" % number)
        return Message(TOPIC, called[-1])

    async with producer_for(stage) as producer:

        async def wait_for(number: int) -> None:
            await producer.send(message(number), queue=queue_at(0))

        async def tell(number: int) -> None:
            await producer.send_one_way(message(number), queue=queue_at(0))

        for first in (0, 60):  # without the route, and with it
            pending: list[asyncio.Future[Any]] = []
            for number in range(first, first + 60, 4):
                pending.append(producer.send_async(message(number), queue=queue_at(0)))
                pending.append(stage.client.create_task(wait_for(number + 1), name="wait"))
                pending.append(stage.client.create_task(tell(number + 2), name="tell"))
                pending.append(producer.send_async(message(number + 3), queue=queue_at(0)))
                if number % 3:
                    await stage.world.sleep_ms(0)
            await asyncio.gather(*pending)
        await stage.world.sleep_ms(10)
    assert stored == called
    assert called != sorted(called, key=int), "sends that were called from tasks came after those before them"


@pytest.mark.parametrize(("failures", "retries", "sent"), [(2, 2, 3), (2, 1, 2), (1, 0, 1)])
@on_stage
async def test_it_is_repeated_after_the_network_failed(stage: Stage, failures: int, retries: int, sent: int) -> None:
    """retryTimesWhenSendAsyncFailed times; `retry_times` is for synchronous sends."""
    broker = await stage.broker(queues=1)
    left = [None] * failures

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        if left:
            left.pop()
            broker.endpoints[-1].abort("the test cuts it")
            return None
        return command.reply(0, STORED)

    broker.on[SEND] = answer
    config = ProducerConfig(retry_times_when_send_async_failed=retries, retry_times=7)
    async with producer_for(stage, config) as producer:
        task = producer.send_async(Message(TOPIC, b"x"))
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, SendResult) == (retries >= failures)
    if isinstance(outcome, SendError):
        assert outcome.outcome is SendOutcome.UNKNOWN
    assert len(broker.requests(SEND)) == sent


@on_stage
async def test_a_refusal_is_final(stage: Stage) -> None:
    """Even one that a waiting send would try elsewhere."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, ResponseCode.SERVICE_NOT_AVAILABLE)
    async with producer_for(stage) as producer:
        with pytest.raises(SendError) as raised:
            await producer.send_async(Message(TOPIC, b"x"))
    assert raised.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(broker.requests(SEND)) == 1


@pytest.mark.parametrize("another", [True, False])
@on_stage
async def test_stored_but_not_everywhere(stage: Stage, another: bool) -> None:
    """retryAnotherBrokerWhenNotStoreOK: another broker is tried, and when none does better, the last one's word
    counts; by default a stored message is a stored message."""
    for name in ("broker-a", "broker-b"):
        broker = await stage.broker(name)
        broker.on[SEND] = lambda command: command.reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, STORED)
    stage.route_to({"broker-a": 1, "broker-b": 1})
    config = ProducerConfig(retry_another_broker_when_not_store_ok=another)
    async with producer_for(stage, config) as producer:
        result = await producer.send(Message(TOPIC, b"x"))
    assert result.status == "FLUSH_SLAVE_TIMEOUT"
    tried = [broker.name for broker in stage.brokers for _ in broker.requests(SEND)]
    assert len(tried) == (3 if another else 1)
    assert len(set(tried)) == (2 if another else 1)


@pytest.mark.parametrize("another", [True, False])
@on_stage
async def test_what_may_not_be_on_a_disk_is_sent_again_only_when_told(stage: Stage, another: bool) -> None:
    """It may be stored twice then; its outcome stays unknown until a broker has it on its disk."""
    brokers = [await stage.broker(name) for name in ("broker-a", "broker-b")]
    for broker in brokers:
        broker.on[SEND] = lambda command: command.reply(ResponseCode.FLUSH_DISK_TIMEOUT, STORED)
    stage.route_to({"broker-a": 1, "broker-b": 1})
    config = ProducerConfig(retry_another_broker_when_not_store_ok=another)
    async with producer_for(stage, config) as producer:
        with pytest.raises(SendError) as raised:
            await producer.send(Message(TOPIC, b"x"))
    assert (raised.value.outcome, raised.value.code) == (SendOutcome.UNKNOWN, ResponseCode.FLUSH_DISK_TIMEOUT)
    assert sum(len(broker.requests(SEND)) for broker in brokers) == (3 if another else 1)


@on_stage
async def test_the_topic_that_makes_topics(stage: Stage) -> None:
    """createTopicKey names the route whose queues an unknown topic uses, and every send carries it."""
    store(await stage.broker())
    stage.route_to({"broker-a": 8}, topic="TEMPLATE")
    async with producer_for(stage, ProducerConfig(create_topic_key="TEMPLATE")) as producer:
        assert len(await producer.queues("New")) == 4
        await producer.send(Message("New", b"x"))
    (command,) = stage.brokers[0].requests(SEND)
    assert header_of(command).default_topic == "TEMPLATE"
