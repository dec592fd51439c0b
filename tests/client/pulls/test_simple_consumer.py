"""SimpleConsumer (docs/wire.md 18) at real brokers on virtual time: receive and acknowledge, with and without order."""

import asyncio
from typing import Any

import pytest

from lockstep.client import (
    ConsumerError,
    Delivery,
    Message,
    MessageQueue,
    PullConsumerConfig,
    SerializeType,
    SimpleConsumer,
    StaleDeliveryError,
    TopicNotFoundError,
)
from lockstep.protocol.codes import PopResponseCode, RequestCode, ResponseCode
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.pop import PopResponseHeader
from lockstep.remoting.errors import RemotingError, RequestRefused, RequestTimeout
from lockstep.remoting.settings import SettingError
from lockstep.simulation.lab.cluster import BROKER
from tests.client.messages import stored_bytes
from tests.client.pulls.pop_stage import WAIT_MS, Pops, on_pops, texts
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage
from tests.rows import by_row

R = RequestCode


@on_pops()
async def test_what_is_acknowledged_is_over_and_the_rest_comes_again(pops: Pops) -> None:
    """Without order from the retry topic, after its invisible time, once more; then with its receipt in it."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(3)
    consumer = await pops.simple()
    deliveries = await pops.on("c1", consumer.receive(16, 2000))
    assert (texts(deliveries), [one.times_before for one in deliveries]) == (["0", "1", "2"], [0, 0, 0])
    await pops.on("c1", consumer.ack(deliveries[0]))
    await pops.on("c1", consumer.ack(deliveries[2]))
    (again,) = await pops.on("c1", consumer.receive(16, 2000))
    assert (again.message.body, again.message.topic, again.times_before) == (b"1", pops.topic, 1)
    assert again.receipt.topic_kind == 1
    await pops.on("c1", consumer.ack(again))
    assert await pops.on("c1", consumer.receive()) == []
    assert pops.core().catalog.offsets.query(pops.consumer_group, pops.topic, 0) == 3
    assert pops.members() == (consumer.client_id,), "it is a member of its group"
    await pops.on("c1", consumer.shutdown())
    assert pops.members() == ()


@on_pops()
async def test_an_iteration_acknowledges_what_its_body_got_through(pops: Pops) -> None:
    """An exception leaves the message to its invisible time; a message that was given back comes at once."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(3)
    consumer = await pops.simple(in_order=True, invisible_ms=3000)
    seen: list[tuple[str, int]] = []

    async def work() -> None:
        try:
            async for delivery in consumer:
                seen.append((texts([delivery])[0], delivery.times_before))
                if seen[-1] == ("1", 0):
                    raise ValueError
        except ValueError:
            pass
        async for delivery in consumer:
            seen.append((texts([delivery])[0], delivery.times_before))
            if seen[-1] == ("2", 0):
                await consumer.change_invisible(delivery, 0)
            elif seen[-1][0] == "2":
                await consumer.shutdown()

    began_ms = pops.world.elapsed_ms
    await pops.on("c1", work())
    assert seen == [("0", 0), ("1", 0), ("1", 1), ("2", 0), ("2", 1)]
    assert 3000 <= pops.world.elapsed_ms - began_ms < 3000 + WAIT_MS
    assert pops.core().catalog.offsets.query(pops.consumer_group, pops.topic, 0) == 2


@on_pops()
async def test_in_order_a_queue_waits_for_what_is_not_acknowledged(pops: Pops) -> None:
    """A longer invisible time holds the queue for longer; the group's next member gets it after that."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(2, keys=1)
    first, second = await pops.simple("c1", in_order=True), await pops.simple("c2", in_order=True)
    (held,) = await pops.on("c1", first.receive(1, 1000))
    began_ms = pops.world.elapsed_ms
    await pops.on("c1", first.change_invisible(held, 4000))
    (again,) = await pops.on("c2", second.receive(1, 1000))
    assert (texts([again]), again.times_before) == (["0"], 1)
    assert 4000 <= pops.world.elapsed_ms - began_ms < 5000
    await pops.on("c2", second.ack(again))
    assert texts(await pops.on("c2", second.receive())) == ["1"]
    for name, consumer in (("c1", first), ("c2", second)):
        await pops.on(name, consumer.shutdown())


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_lost_answer_is_asked_for_again(cancelled: bool) -> None:
    """In order, with the same attempt id: the messages come at once, and their counts stay."""

    @on_pops()
    async def story(pops: Pops) -> None:
        await pops.broker(queues=1)
        await pops.producer()
        await pops.send(2)
        consumer = await pops.simple(in_order=True, invisible_ms=600_000)
        pops.tap.deaf[R.POP_MESSAGE] = 1

        async def fail() -> None:
            async with asyncio.timeout(1 if cancelled else None):
                await consumer.receive()

        with pytest.raises(TimeoutError if cancelled else RequestTimeout):
            await pops.on("c1", fail())
        deliveries = await pops.on("c1", consumer.receive())
        assert (texts(deliveries), [one.times_before for one in deliveries]) == (["0", "1"], [0, 0])
        for delivery in deliveries:
            await pops.on("c1", consumer.ack(delivery))
        assert await pops.on("c1", consumer.receive()) == []
        lost, again, *later = [header.attempt_id for header in pops.tap.pops]
        assert lost == again
        assert lost not in later
        await pops.on("c1", consumer.shutdown())

    story()


@on_pops()
async def test_a_shutdown_gives_back_what_is_on_its_way(pops: Pops) -> None:
    """The receive that is under way brings nothing; another member has the message at once."""
    await pops.broker(queues=1)
    await pops.producer()
    leaving, other = await pops.simple("c1", in_order=True), await pops.simple("c2", in_order=True)
    slow = pops.fault("slow c1-broker+3s=300ms")
    receiving = pops.world.start(pops.on("c1", leaving.receive()), name="receive")
    await pops.world.until(lambda: bool(len(pops.core().messages.pops.held)))
    await pops.send(1)
    await pops.on("c1", leaving.shutdown())
    began_ms = pops.world.elapsed_ms
    assert texts(await pops.on("c2", other.receive())) == ["0"]
    assert pops.world.elapsed_ms - began_ms < 1000
    assert await receiving == []
    await pops.on("c2", other.shutdown())
    await slow


@on_pops(fenced=True)
async def test_a_stale_acknowledgement_is_refused(pops: Pops) -> None:
    """Another client has the message since; the error says so, and an iteration logs it and goes on."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(2, keys=1)
    slow, quick = await pops.simple("c1", in_order=True, invisible_ms=1000), await pops.simple("c2", in_order=True)
    got: list[str] = []

    async def work() -> None:
        async for delivery in slow:
            got.extend(texts([delivery]))
            if len(got) == 2:
                await slow.shutdown()
                continue
            (taken,) = await pops.on("c2", quick.receive(1))
            with pytest.raises(StaleDeliveryError, match=delivery.message.msg_id):
                await slow.change_invisible(delivery, 1000)
            await pops.on("c2", quick.ack(taken))

    await pops.on("c1", work())
    assert got == ["0", "1"]
    assert [(line.event, line.fields["call"]) for line in pops.log if line.event == "pop_call_failed"] == [
        ("pop_call_failed", "ack")
    ]
    await pops.on("c2", quick.shutdown())


@on_pops()
async def test_a_broker_that_starts_again(pops: Pops) -> None:
    """Calls fail while it is away; an iteration goes on by itself, and gets what was not acknowledged."""
    settings: dict[str, Any] = {"queues": 1, "data_dir": "store"}
    await pops.broker(**settings)
    await pops.producer()
    await pops.send(2)
    consumer = await pops.simple(in_order=True, invisible_ms=2000)
    seen: list[str] = []

    async def work() -> None:
        async for delivery in consumer:
            seen.extend(texts([delivery]))
            if len(seen) == 1:
                continue
            if seen[-1] == "2":
                await consumer.ack(delivery)
                break

    working = pops.world.start(pops.on("c1", work()), name="work")
    await pops.world.until(lambda: seen == ["0", "1"])
    await pops.run_for(3000)
    await pops.stop_broker()
    with pytest.raises(RemotingError):
        await pops.on("c1", consumer.receive())
    await pops.broker(**settings)
    await pops.send(1)
    await working
    assert seen == ["0", "1", "2"]
    assert pops.core().catalog.offsets.query(pops.consumer_group, pops.topic, 0) == 3
    await pops.on("c1", consumer.shutdown())


@on_pops()
async def test_brokers_are_asked_in_turn(pops: Pops) -> None:
    """What one broker has does not wait for another one, and a message that comes while all wait is there in time."""
    await pops.start_name_server("names")
    await pops.broker(BROKER, queues=1)
    await pops.broker("broker2", queues=1)
    await pops.producer()
    consumer = await pops.simple()
    began_ms = pops.world.elapsed_ms
    assert await pops.on("c1", consumer.receive()) == []
    assert WAIT_MS <= pops.world.elapsed_ms - began_ms <= WAIT_MS + 100
    await pops.send(4, queue_id=0)
    began_ms = pops.world.elapsed_ms
    assert texts(await pops.on("c1", consumer.receive())) == ["0", "1", "2", "3"]
    assert pops.world.elapsed_ms - began_ms < 100
    await pops.on("c1", consumer.shutdown())


@on_pops(tenant="acme%")
async def test_a_namespace(pops: Pops) -> None:
    """Brokers know the names with it, also of the retry topic; the user sees those without."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(1)
    consumer = await pops.simple(namespace="acme", invisible_ms=1000)
    for times_before in (0, 1):
        (delivery,) = await pops.on("c1", consumer.receive())
        assert (delivery.message.topic, delivery.times_before) == ("orders", times_before)
    await pops.on("c1", consumer.ack(delivery))
    assert await pops.on("c1", consumer.receive()) == []
    await pops.on("c1", consumer.shutdown())


@on_pops()
async def test_tags(pops: Pops) -> None:
    """The broker compares hashes, so "BB" brings "Aa" too: it is acknowledged, and not shown."""
    await pops.broker(queues=1)
    producer = await pops.producer()

    async def send() -> None:
        for tag in ("Aa", "BB", "other"):
            await producer.send(Message(pops.topic, tag.encode(), tags=tag), queue=MessageQueue(pops.topic, BROKER, 0))

    await pops.on("producer", send())
    consumer = await pops.simple(tags="BB", invisible_ms=1000)
    (delivery,) = await pops.on("c1", consumer.receive())
    assert delivery.message.body == b"BB"
    await pops.on("c1", consumer.ack(delivery))
    await pops.run_for(2000)
    assert await pops.on("c1", consumer.receive()) == []
    await pops.on("c1", consumer.shutdown())


# Answers that a test chooses --------------------------------------------------------------------------------------

NOW_MS = 1_700_000_000_000
FOUND = PopResponseHeader(NOW_MS, 30_000, 0, 0, "0 0 7", "0 0 7", "")


async def staged(stage: Stage, **arguments: Any) -> tuple[SimpleConsumer, FakeBroker]:
    broker = await stage.broker(queues=2)
    config = PullConsumerConfig(pull_suspend_ms=WAIT_MS)
    consumer = SimpleConsumer(
        "tower", name_server=broker.name_server, config=config, runtime=stage.client, log=stage.log, **arguments
    )
    consumer.subscribe(TOPIC)
    await consumer.start()
    stage.on_close.append(consumer.shutdown)
    return consumer, broker


def gives(broker: FakeBroker, header: PopResponseHeader, *bodies: bytes) -> None:
    broker.on[R.POP_MESSAGE] = lambda command: command.reply(ResponseCode.SUCCESS, header, b"".join(bodies))


@by_row(
    "fields",
    [
        {"start_offset_info": "0 0"},
        {"start_offset_info": "0 0 x"},
        {"start_offset_info": "0 0 -7"},
        {"start_offset_info": f"0 0 {1 << 63}"},
        {"start_offset_info": "0 0 7;0 0 7"},
        {"start_offset_info": "0 1 7"},
        {"start_offset_info": None, "msg_offset_info": None},
        {"msg_offset_info": "0 0 7,"},
        {"msg_offset_info": "0 0 8"},
        {"order_count_info": "0 qo0%7 many"},
    ],
)
@on_stage
async def test_an_answer_that_cannot_be_read(stage: Stage, fields: dict[str, Any]) -> None:
    """Nothing of it is handed out."""
    consumer, broker = await staged(stage)
    gives(broker, FOUND._replace(**fields), stored_bytes(7))
    with pytest.raises(BodyError):
        await consumer.receive()
    gives(broker, FOUND, stored_bytes(7))
    (delivery,) = await consumer.receive()
    assert delivery.receipt.encode() == f"7 {NOW_MS} 30000 0 0 broker-a 0 7"


@on_stage
async def test_the_receipt_in_a_message(stage: Stage) -> None:
    """It counts only for a message that the answer has of the retry topic: a producer may set the property, too."""
    consumer, broker = await staged(stage)
    both = FOUND._replace(start_offset_info="0 0 7;1 0 7", msg_offset_info="0 0 7,8,9;1 0 7")
    kept = f"7 {NOW_MS} 30000 5 1 broker-a 0 7"
    forged = ("8 1 1 5 1 broker-a 0 8", "no receipt")
    records = [stored_bytes(at, properties={"POP_CK": text}) for at, text in zip((8, 9), forged, strict=True)]
    gives(broker, both, stored_bytes(7), *records, stored_bytes(7, properties={"POP_CK": kept}, reconsume_times=2))
    deliveries = await consumer.receive()
    assert [one.receipt.topic_kind for one in deliveries] == [0, 0, 0, 1]
    assert (deliveries[3].receipt.encode(), deliveries[3].times_before) == (kept, 2)


@on_stage
async def test_a_count_of_the_queue_is_for_all_its_messages(stage: Stage) -> None:
    """As brokers write it that count queues alone."""
    consumer, broker = await staged(stage, in_order=True)
    header = FOUND._replace(msg_offset_info="0 0 7,8", order_count_info="0 qo0%8 5;0 0 3")
    gives(broker, header, stored_bytes(7), stored_bytes(8))
    assert [one.times_before for one in await consumer.receive()] == [3, 5]


@on_stage
async def test_refusals(stage: Stage) -> None:
    """A broker that holds too many calls is not asked again at once; 208 says that the delivery is over."""
    consumer, broker = await staged(stage)
    gives(broker, FOUND, stored_bytes(7))
    (delivery,) = await consumer.receive()
    broker.answers(R.ACK_MESSAGE, ResponseCode.NO_MESSAGE, ResponseCode.SYSTEM_ERROR)
    with pytest.raises(StaleDeliveryError, match="so says the test"):
        await consumer.ack(delivery)
    with pytest.raises(RequestRefused):
        await consumer.ack(delivery)
    assert not delivery.is_settled
    broker.answers(R.POP_MESSAGE, PopResponseCode.POLLING_FULL)
    before = len(broker.requests(R.POP_MESSAGE))
    assert await consumer.receive() == []
    assert len(broker.requests(R.POP_MESSAGE)) - before == WAIT_MS // 500
    broker.answers(R.POP_MESSAGE, ResponseCode.NO_PERMISSION)
    with pytest.raises(RequestRefused, match="so says the test"):
        await consumer.receive()


@on_stage
async def test_a_shutdown_ends_the_wait(stage: Stage) -> None:
    """Whoever waits for a message gets none; a later call is refused."""
    consumer, broker = await staged(stage)
    broker.answers(R.POP_MESSAGE, None)
    waiting = stage.client.create_task(consumer.receive(), name="receive")
    await stage.world.until(lambda: broker.requests(R.POP_MESSAGE))
    await consumer.shutdown()
    assert await waiting == []
    with pytest.raises(ConsumerError, match="SHUTDOWN_ALREADY"):
        await consumer.receive()


@on_stage
async def test_what_cannot_be(stage: Stage) -> None:
    """Wrong arguments, nothing subscribed, no such topic, a header that cannot carry the calls; nothing is asked."""
    consumer, broker = await staged(stage)
    for count in (0, 33):
        with pytest.raises(ConsumerError, match=f"from 1 to 32, not {count}"):
            await consumer.receive(count)
    with pytest.raises(ConsumerError, match="1 ms or more, not 0"):
        await consumer.receive(1, 0)
    broker.routes.clear()
    nowhere = SimpleConsumer("nowhere", name_server=broker.name_server, runtime=stage.client, log=stage.log)
    async with nowhere:
        with pytest.raises(ConsumerError, match="nothing is subscribed"):
            await nowhere.receive()
        nowhere.subscribe("Nowhere")
        with pytest.raises(TopicNotFoundError, match="'Nowhere'"):
            await nowhere.receive()
    assert broker.requests(R.POP_MESSAGE) == []
    with pytest.raises(SettingError, match="binary headers"):
        SimpleConsumer("tower", name_server="n:1", config=PullConsumerConfig(serialize_type=SerializeType.ROCKETMQ))


@pytest.mark.parametrize("fenced", [False, True])
def test_a_member_leaves_with_a_message(fenced: bool) -> None:
    """With fenced locks others get it a grace later; RocketMQ waits for the end of its invisible time."""

    @on_pops(fenced=fenced)
    async def story(pops: Pops) -> None:
        await pops.broker(queues=1)
        await pops.producer()
        await pops.send(1)
        first, second = await pops.simple("c1", in_order=True), await pops.simple("c2", in_order=True)
        await pops.on("c1", first.receive(1, 9000))
        await pops.on("c1", first.shutdown())
        began_ms, found = pops.world.elapsed_ms, list[Delivery]()
        while not found:
            found = await pops.on("c2", second.receive())
        wait_ms = pops.core().config.pop_grace_ms if fenced else 9000
        assert wait_ms - 100 <= pops.world.elapsed_ms - began_ms < wait_ms + 100
        await pops.on("c2", second.shutdown())

    story()
