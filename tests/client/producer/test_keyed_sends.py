"""Keyed sends with scripted brokers: one queue, call order, one attempt or repeats in place."""

import asyncio

import pytest

from lockstep.client import Message, ProducerConfig, SendError, SendOutcome, select_by_hash
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.messages.properties import decode_properties
from tests.client.producer.send_stage import SEND, STORED, header_of, msg_id_of, outcome_of, producer_for, store
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

FIND, BATCH = RequestCode.FIND_SENT, RequestCode.SEND_BATCH_MESSAGE

# Keyed -------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_keyed_send_goes_to_its_keys_queue(stage: Stage) -> None:
    """By the key here or on the message; by a selector with its argument; or to a queue that is given."""
    broker = await stage.broker(queues=4)
    store(broker)
    async with producer_for(stage) as producer:
        by_key = [
            await producer.send(Message(TOPIC, b"1"), sharding_key="hello"),
            await producer.send(Message(TOPIC, b"2", sharding_key="hello")),
            await producer.send(Message(TOPIC, b"3", sharding_key="other"), sharding_key="hello"),
        ]
        assert [result.queue_id for result in by_key] == [99162322 % 4] * 3
        by_selector = await producer.send(Message(TOPIC, b"4"), selector=lambda queues, _, arg: queues[arg], arg=3)
        assert by_selector.queue_id == 3
        assert (await producer.send(Message(TOPIC, b"5"), queue=queue_at(1))).queue_id == 1
    sent = broker.requests(SEND)
    keys = [decode_properties(header_of(command).properties or "").get("__SHARDINGKEY") for command in sent]
    assert keys == ["hello", "hello", "hello", None, None]


@on_stage
async def test_a_key_keeps_its_queue(stage: Stage) -> None:
    """Whichever brokers are connected, and while a send of the key waits to be repeated."""
    brokers = [await stage.broker(name) for name in ("broker-a", "broker-b")]
    stage.route_to({"broker-a": 2, "broker-b": 2})
    for broker in brokers:
        store(broker)
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        queues = await producer.queues(TOPIC)
        for key in ("k0", "k1", "k2", "k3", "k4"):
            result = await producer.send(Message(TOPIC, b"x"), sharding_key=key)
            assert result.queue == select_by_hash(queues, None, key)
        (of_key,) = [broker for broker in brokers if broker.name == result.queue.broker_name]
        of_key.answers(SEND, ResponseCode.SYSTEM_BUSY, STORED, STORED)
        first = asyncio.ensure_future(producer.send(Message(TOPIC, b"first"), sharding_key=key))
        await asyncio.sleep(0.05)
        assert not first.done()
        await asyncio.gather(first, producer.send(Message(TOPIC, b"second"), sharding_key=key))
    attempts = [command for command in of_key.requests(SEND) if command.body != b"x"]
    assert [command.body for command in attempts] == [b"first", b"first", b"second"]
    assert {header_of(command).queue_id for command in attempts} == {result.queue_id}


@on_stage
async def test_an_argument_without_a_selector_names_no_queue(stage: Stage) -> None:
    """Such a message may go to any queue, as without the argument: queues take turns."""
    broker = await stage.broker(queues=4)
    store(broker)
    async with producer_for(stage) as producer:
        for arg in (3, object()):
            results = [await producer.send(Message(TOPIC, b"x"), arg=arg) for _ in range(4)]
            assert sorted(result.queue_id for result in results) == [0, 1, 2, 3]


@on_stage
async def test_the_first_send_may_name_its_queue(stage: Stage) -> None:
    """The route is fetched for it: a queue says which broker, not where that is."""
    store(await stage.broker(queues=4))
    async with producer_for(stage) as producer:
        assert (await producer.send(Message(TOPIC, b"1"), queue=queue_at(2))).queue_id == 2


@on_stage
async def test_64_keyed_sends_in_flight_to_a_peer_that_agreed(stage: Stage) -> None:
    """All leave before the first answer, numbered in call order."""
    broker = await stage.broker(queues=1)
    store(broker)
    async with producer_for(stage) as producer:
        await producer.send(Message(TOPIC, b"first"), sharding_key="k")
        held: list[RemotingCommand] = []
        broker.on[SEND] = lambda command: held.append(command)
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"%d" % i), sharding_key="k")) for i in range(64)]
        await stage.world.until(lambda: len(held) == 64)
        assert [command.body for command in held] == [b"%d" % i for i in range(64)]
        assert [header_of(command).send_sequence for command in held] == list(range(1, 65))
        for i, command in enumerate(held):
            broker.endpoints[-1].reply(command.reply(0, STORED._replace(queue_offset=i)))
        results = await asyncio.gather(*sends)
        assert [result.queue_offset for result in results] == list(range(64))


@on_stage
async def test_one_keyed_send_at_a_time_to_any_other_peer(stage: Stage) -> None:
    """A queue's next send leaves when the one before was answered, and carries no number; queues do not wait
    for each other."""
    broker = await stage.broker(agrees=False, queues=2)
    held: list[RemotingCommand] = []
    broker.on[SEND] = lambda command: held.append(command)
    async with producer_for(stage) as producer:
        sends = [
            asyncio.ensure_future(producer.send(Message(TOPIC, b"%d" % i), queue=queue_at(i % 2))) for i in range(8)
        ]
        for answered in range(8):
            await stage.world.until(lambda answered=answered: len(held) == min(answered + 2, 8))  # type: ignore[misc]
            await stage.world.sleep_ms(50)
            assert len(held) == min(answered + 2, 8)
            broker.endpoints[-1].reply(held[answered].reply(0, STORED))
        await asyncio.gather(*sends)
    assert [command.body for command in held] == [b"%d" % i for i in range(8)]
    assert {header_of(command).sender_id for command in held} == {None}


@on_stage
async def test_a_refusal_in_the_middle(stage: Stage) -> None:
    """Of ten sends in flight the fourth is refused: all later ones of that queue fail, none of them is stored,
    other queues are not concerned, and a send called afterwards is stored."""
    broker = await stage.broker(queues=2)
    stored = store(broker)
    take = broker.on[SEND]
    broken = False

    def refuse_the_fourth(command: RemotingCommand) -> RemotingCommand | None:
        nonlocal broken
        if command.body == b"3":
            broken = True
            return command.reply(ResponseCode.SYSTEM_BUSY, remark="busy")
        if broken and header_of(command).send_generation == 0 and header_of(command).queue_id == 0:
            return command.reply(ResponseCode.SEND_OUT_OF_SEQUENCE, remark="would overtake")
        return take(command)

    broker.on[SEND] = refuse_the_fourth
    async with producer_for(stage) as producer:
        await producer.queues(TOPIC)
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"%d" % i), queue=queue_at(0))) for i in range(10)]
        other = asyncio.ensure_future(producer.send(Message(TOPIC, b"other"), queue=queue_at(1)))
        outcomes = [await outcome_of(send) for send in sends]
        assert outcomes[:3] == [None] * 3
        assert set(outcomes[3:]) <= {SendOutcome.REFUSED, SendOutcome.NOT_SENT}
        await other
        await producer.send(Message(TOPIC, b"after"), queue=queue_at(0))
    assert [body for body in stored if body != b"other"] == [b"0", b"1", b"2", b"after"]


@on_stage
async def test_keyed_sends_are_tried_once(stage: Stage) -> None:
    """As in RocketMQ: a send is not repeated, because later ones may have been stored."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, ResponseCode.SYSTEM_BUSY, STORED)
    async with producer_for(stage) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"), sharding_key="k")
    assert (caught.value.outcome, caught.value.code) == (SendOutcome.REFUSED, ResponseCode.SYSTEM_BUSY)
    assert len(broker.requests(SEND)) == 1


@on_stage
async def test_retry_keyed_repeats_with_the_same_id(stage: Stage) -> None:
    """After a time-out and a refusal of the kind that may pass, in the same place, with the same UNIQ_KEY."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, None, ResponseCode.SYSTEM_BUSY, STORED)
    async with producer_for(stage, ProducerConfig(retry_keyed=True, send_timeout_ms=3000)) as producer:
        sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"x"), sharding_key="k", timeout_ms=1000))
        with pytest.raises(SendError) as caught:
            await sending
        assert caught.value.outcome is SendOutcome.UNKNOWN, "the time for it is over with its first attempt"
        broker.answers(SEND, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY, STORED)
        result = await producer.send(Message(TOPIC, b"y"), sharding_key="k")
    repeats = [command for command in broker.requests(SEND) if command.body == b"y"]
    assert [msg_id_of(command) for command in repeats] == [result.msg_id] * 3


FLOW_CONTROL = "[REJECTREQUEST]system busy, start flow control for a while"


@on_stage
async def test_retry_keyed_waits_for_flow_control(stage: Stage) -> None:
    """A refusal by flow control uses up no attempt: the sends wait longer each time, leave again in call order, and all
    are stored once."""
    broker = await stage.broker(queues=1)
    stored = store(broker)
    take = broker.on[SEND]
    tokens = [3]
    broken: set[int] = set()

    def limited(command: RemotingCommand) -> RemotingCommand | None:
        generation = header_of(command).send_generation or 0
        if generation in broken:
            return command.reply(ResponseCode.SEND_OUT_OF_SEQUENCE, remark="would overtake")
        if not tokens[0]:
            broken.add(generation)
            return command.reply(ResponseCode.SYSTEM_BUSY, remark=FLOW_CONTROL)
        tokens[0] -= 1
        return take(command)

    broker.on[SEND] = limited
    config = ProducerConfig(retry_keyed=True, retry_times=0, send_timeout_ms=20_000)
    async with producer_for(stage, config) as producer:
        await producer.queues(TOPIC)
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"%d" % i), queue=queue_at(0))) for i in range(8)]
        for _ in range(8):
            await asyncio.sleep(1.5)
            tokens[0] += 1
        assert [await outcome_of(send) for send in sends] == [None] * 8
    assert stored == [b"%d" % i for i in range(8)]
    assert 8 < len(broker.requests(SEND)) < 8 * 20, "it asks again, and not all the time"


@on_stage
async def test_flow_control_ends_a_send_at_its_timeout(stage: Stage) -> None:
    """It is refused, so it is not stored; without `retry_keyed` it is tried once, as in RocketMQ."""
    broker = await stage.broker(queues=1)
    broker.on[SEND] = lambda command: command.reply(ResponseCode.SYSTEM_BUSY, remark=FLOW_CONTROL)
    for retry, counts in ((False, {1}), (True, {5, 6})):  # after 0, 0.1, 0.3, 0.7, 1.5 and 2.5 s
        before = len(broker.requests(SEND))
        async with producer_for(stage, ProducerConfig(retry_keyed=retry, send_timeout_ms=2000)) as producer:
            with pytest.raises(SendError) as caught:
                await producer.send(Message(TOPIC, b"x"), sharding_key="k")
        assert (caught.value.outcome, caught.value.code) == (SendOutcome.REFUSED, ResponseCode.SYSTEM_BUSY)
        assert len(broker.requests(SEND)) - before in counts


@on_stage
async def test_an_unanswered_attempt_makes_the_whole_unknown(stage: Stage) -> None:
    """First the connection is lost, then the repeat is refused: the first attempt may be stored."""
    broker = await stage.broker(queues=1)

    def cut(_: RemotingCommand) -> None:
        broker.answers(SEND, ResponseCode.MESSAGE_ILLEGAL)
        broker.endpoints[-1].abort("cut")

    broker.on[SEND] = cut
    broker.answers(FIND, ResponseCode.QUERY_NOT_FOUND)
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        with pytest.raises(SendError, match="after an attempt without an answer") as caught:
            await producer.send(Message(TOPIC, b"x"), sharding_key="k")
    assert (caught.value.outcome, caught.value.code) == (SendOutcome.UNKNOWN, ResponseCode.MESSAGE_ILLEGAL)


# Batches and one-way -----------------------------------------------------------------------------------------


@on_stage
async def test_a_batch_goes_to_the_queue_of_its_key(stage: Stage) -> None:
    """Whether the key is given or on every message; without one queues take turns."""
    broker = await stage.broker(queues=4)
    store(broker)
    keyed = [Message(TOPIC, b"%d" % i, sharding_key="hello") for i in range(3)]
    async with producer_for(stage) as producer:
        on_messages = await producer.send_batch(keyed)
        given = await producer.send_batch([Message(TOPIC, b"x")], sharding_key="hello")
        to_queue = await producer.send_batch([*keyed, Message(TOPIC, b"y", sharding_key="other")], queue=queue_at(1))
        anywhere = [(await producer.send_batch([Message(TOPIC, b"x")])).queue_id for _ in range(4)]
        with pytest.raises(LocalProtocolError, match="a batch goes to one queue"):
            await producer.send_batch([*keyed, Message(TOPIC, b"y", sharding_key="other")])
    assert on_messages.queue_id == given.queue_id == 99162322 % 4
    assert to_queue.queue_id == 1
    assert sorted(anywhere) == [0, 1, 2, 3]
    first = broker.requests(RequestCode.SEND_BATCH_MESSAGE)[0]
    assert [record.body for record in decode_batch(first.body)] == [b"0", b"1", b"2"]
    assert on_messages.msg_id.count(",") == 2


@on_stage
async def test_one_way_sends_keep_their_place_and_take_no_number(stage: Stage) -> None:
    """Between keyed sends of the same queue they arrive in call order, and the later ones are stored."""
    broker = await stage.broker(queues=1)
    stored = store(broker)
    async with producer_for(stage) as producer:
        await producer.send(Message(TOPIC, b"0"), sharding_key="k")
        await producer.send_one_way(Message(TOPIC, b"1"), sharding_key="k")
        await producer.send(Message(TOPIC, b"2"), sharding_key="k")
        await producer.send_one_way(Message(TOPIC, b"3"), queue=queue_at(0))
        await producer.send_one_way(Message(TOPIC, b"4"))
        await producer.send(Message(TOPIC, b"5"), sharding_key="k")
    assert stored == [b"%d" % i for i in range(6)]
    numbers = [(header_of(c).send_generation, header_of(c).send_sequence) for c in broker.requests(SEND)]
    assert numbers == [(0, 0), (None, None), (0, 1), (None, None), (None, None), (0, 2)]


@on_stage
async def test_nothing_overtakes_a_one_way_send_that_could_not_leave(stage: Stage) -> None:
    """There is no connection: the sends that were called before its caller knew it fail too."""
    broker = await stage.broker(queues=1)
    stored = store(broker)
    async with producer_for(stage) as producer:
        await producer.queues(TOPIC)
        broker.stop()
        one_way = asyncio.ensure_future(producer.send_one_way(Message(TOPIC, b"1"), sharding_key="k"))
        later = asyncio.ensure_future(producer.send(Message(TOPIC, b"2"), sharding_key="k"))
        with pytest.raises(SendError):
            await one_way
        with pytest.raises(SendError, match="it must not overtake that one"):
            await later
    assert stored == []


@on_stage
async def test_nothing_overtakes_a_send_that_is_cancelled_between_two_attempts(stage: Stage) -> None:
    """It was refused and would be repeated in its place: those behind it, which have not left, fail."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, ResponseCode.SYSTEM_BUSY, STORED)
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        first = asyncio.ensure_future(producer.send(Message(TOPIC, b"1"), sharding_key="k"))
        await stage.world.until(lambda: len(broker.requests(SEND)) == 1)
        await asyncio.sleep(0.05)
        later = asyncio.ensure_future(producer.send(Message(TOPIC, b"2"), sharding_key="k"))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(SendError, match="it must not overtake that one"):
            await later
        assert (await producer.send(Message(TOPIC, b"3"), sharding_key="k")).queue_id == 0
    assert [command.body for command in broker.requests(SEND)] == [b"1", b"3"]


@on_stage
async def test_a_message_that_no_frame_can_carry_harms_nobody(stage: Stage) -> None:
    """It is refused here, and the sends before and behind it are stored."""
    broker = await stage.broker(queues=1)
    stored = store(broker)
    huge = bytes(17 * 1024 * 1024)
    async with producer_for(
        stage, ProducerConfig(body_bytes_max=len(huge), compress_msg_body_over_howmuch=0)
    ) as producer:
        await producer.send(Message(TOPIC, b"0"), sharding_key="k")
        sends = [
            asyncio.ensure_future(producer.send(Message(TOPIC, body), sharding_key="k")) for body in (b"1", huge, b"2")
        ]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(results[1], LocalProtocolError)
        assert stored == [b"0", b"1", b"2"]
