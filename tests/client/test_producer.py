"""Producer against brokers that answer as a test says: which queue, how often, in which order, and what it raises."""

import asyncio
import json

import pytest

from lockstep.client import Message, NoRouteError, Producer, ProducerConfig, SendError, SendOutcome, SendResult
from lockstep.client.errors import ClientError
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader
from lockstep.protocol.message import decode_batch
from lockstep.protocol.properties import decode_properties
from lockstep.remoting.settings import SettingError
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at

SEND = RequestCode.SEND_MESSAGE_V2
STORED = SendMessageResponseHeader("OFFSETID", 0, 0)


def header_of(command: RemotingCommand) -> SendMessageRequestHeader:
    return command.decode_header(SendMessageRequestHeaderV2)


def msg_id_of(command: RemotingCommand) -> str:
    return decode_properties(header_of(command).properties or "")["UNIQ_KEY"]


def store(broker: FakeBroker) -> list[bytes]:
    """The broker stores every send; the bodies in order."""
    stored: list[bytes] = []

    def answer(command: RemotingCommand) -> RemotingCommand:
        stored.append(command.body)
        return command.reply(0, SendMessageResponseHeader("ID", header_of(command).queue_id, len(stored) - 1))

    broker.on[SEND] = broker.on[RequestCode.SEND_BATCH_MESSAGE] = answer
    return stored


def producer_for(stage: Stage, config: ProducerConfig | None = None, trace: str | None = None) -> Producer:
    return Producer(
        "pilots", name_server=stage.name_server, config=config, runtime=stage.client, trace=trace, log=stage.log
    )


async def outcome_of(send: "asyncio.Future[SendResult]") -> SendOutcome | None:
    try:
        await send
    except SendError as error:
        return error.outcome
    return None


# Keyed -------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_keyed_send_goes_to_its_keys_queue(stage: Stage) -> None:
    """By the key here or on the message; by a selector with its argument; or to a queue that is given."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 4})
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
    keys = [decode_properties(header_of(command).properties or "").get("__SHARDING_KEY") for command in sent]
    assert keys == ["hello", "hello", "hello", None, None]


@on_stage
async def test_the_first_send_may_name_its_queue(stage: Stage) -> None:
    """The route is fetched for it: a queue says which broker, not where that is."""
    store(await stage.broker())
    stage.route_to({"broker-a": 4})
    async with producer_for(stage) as producer:
        assert (await producer.send(Message(TOPIC, b"1"), queue=queue_at(2))).queue_id == 2


@on_stage
async def test_64_keyed_sends_in_flight_to_a_peer_that_agreed(stage: Stage) -> None:
    """All leave before the first answer, numbered in call order."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
    store(broker)
    async with producer_for(stage) as producer:
        await producer.send(Message(TOPIC, b"first"), sharding_key="k")
        held: list[RemotingCommand] = []
        broker.on[SEND] = lambda command: held.append(command)
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"%d" % i), sharding_key="k")) for i in range(64)]
        await stage.world.until(lambda: len(held) == 64)
        assert [command.body for command in held] == [b"%d" % i for i in range(64)]
        assert [header_of(command).lane_sequence for command in held] == list(range(1, 65))
        for i, command in enumerate(held):
            broker.endpoints[-1].reply(command.reply(0, STORED._replace(queue_offset=i)))
        results = await asyncio.gather(*sends)
        assert [result.queue_offset for result in results] == list(range(64))


@on_stage
async def test_one_keyed_send_at_a_time_to_any_other_peer(stage: Stage) -> None:
    """A queue's next send leaves when the one before was answered, and carries no number; queues do not wait
    for each other."""
    broker = await stage.broker(agrees=False)
    stage.route_to({"broker-a": 2})
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
    assert {header_of(command).lane_id for command in held} == {None}


@on_stage
async def test_a_refusal_in_the_middle(stage: Stage) -> None:
    """Of ten sends in flight the fourth is refused: all later ones of that queue fail, none of them is stored,
    other queues are not concerned, and a send called afterwards is stored."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 2})
    stored = store(broker)
    take = broker.on[SEND]
    broken = False

    def refuse_the_fourth(command: RemotingCommand) -> RemotingCommand | None:
        nonlocal broken
        if command.body == b"3":
            broken = True
            return command.reply(ResponseCode.SYSTEM_BUSY, remark="busy")
        if broken and header_of(command).lane_generation == 0 and header_of(command).queue_id == 0:
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
    """As in RocketMQ: no repeat of a send whose place in the order is taken."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
    broker.answers(SEND, ResponseCode.SYSTEM_BUSY, STORED)
    async with producer_for(stage) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message(TOPIC, b"x"), sharding_key="k")
    assert (caught.value.outcome, caught.value.code) == (SendOutcome.REFUSED, ResponseCode.SYSTEM_BUSY)
    assert len(broker.requests(SEND)) == 1


@on_stage
async def test_retry_keyed_repeats_with_the_same_id(stage: Stage) -> None:
    """After a time-out and a refusal of the kind that may pass, in the same place, with the same UNIQ_KEY."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
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


@on_stage
async def test_an_unanswered_attempt_makes_the_whole_unknown(stage: Stage) -> None:
    """First the connection is lost, then the repeat is refused: the first attempt may be stored all the same."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})

    def cut(_: RemotingCommand) -> None:
        broker.answers(SEND, ResponseCode.MESSAGE_ILLEGAL)
        broker.endpoints[-1].abort("cut")

    broker.on[SEND] = cut
    async with producer_for(stage, ProducerConfig(retry_keyed=True)) as producer:
        with pytest.raises(SendError, match="after an attempt without an answer") as caught:
            await producer.send(Message(TOPIC, b"x"), sharding_key="k")
    assert (caught.value.outcome, caught.value.code) == (SendOutcome.UNKNOWN, ResponseCode.MESSAGE_ILLEGAL)


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
def test_codes_that_are_tried_on_another_broker(code: ResponseCode) -> None:
    """wire.md 12.11: the next attempt goes to the other broker, with the same id."""

    @on_stage
    async def play(stage: Stage) -> None:
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

    play()


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
)
def test_codes_that_are_final(code: ResponseCode) -> None:
    """SYSTEM_BUSY is not retried either (wire.md 12.11): one attempt, and its code."""

    @on_stage
    async def play(stage: Stage) -> None:
        brokers = [await stage.broker("broker-a"), await stage.broker("broker-b")]
        stage.route_to({"broker-a": 4, "broker-b": 4})
        for broker in brokers:
            broker.answers(SEND, code)
        async with producer_for(stage) as producer:
            with pytest.raises(SendError) as caught:
                await producer.send(Message(TOPIC, b"x"))
        assert (caught.value.code, caught.value.outcome) == (code, SendOutcome.REFUSED)
        assert sum(len(broker.requests(SEND)) for broker in brokers) == 1

    play()


@on_stage
async def test_three_attempts_and_no_more(stage: Stage) -> None:
    """1 + retryTimesWhenSendFailed; the last refusal is raised."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 4})
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
    broker = await stage.broker()
    stage.route_to({"broker-a": 4})
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
    """A lost connection, then two refusals elsewhere: nobody knows of the first attempt."""
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


# Batches and one-way -----------------------------------------------------------------------------------------


@on_stage
async def test_a_batch_goes_to_the_queue_of_its_key(stage: Stage) -> None:
    """Whether the key is given or on every message; without one queues take turns."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 4})
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
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
    stored = store(broker)
    async with producer_for(stage) as producer:
        await producer.send(Message(TOPIC, b"0"), sharding_key="k")
        await producer.send_one_way(Message(TOPIC, b"1"), sharding_key="k")
        await producer.send(Message(TOPIC, b"2"), sharding_key="k")
        await producer.send_one_way(Message(TOPIC, b"3"), queue=queue_at(0))
        await producer.send_one_way(Message(TOPIC, b"4"))
        await producer.send(Message(TOPIC, b"5"), sharding_key="k")
    assert stored == [b"%d" % i for i in range(6)]
    numbers = [(header_of(c).lane_generation, header_of(c).lane_sequence) for c in broker.requests(SEND)]
    assert numbers == [(0, 0), (None, None), (0, 1), (None, None), (None, None), (0, 2)]


@on_stage
async def test_a_message_that_no_frame_can_carry_harms_nobody(stage: Stage) -> None:
    """It is refused here, and the sends before and behind it are stored."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
    stored = store(broker)
    huge = bytes(17 * 1024 * 1024)
    async with producer_for(stage, ProducerConfig(body_bytes_max=len(huge))) as producer:
        await producer.send(Message(TOPIC, b"0"), sharding_key="k")
        sends = [
            asyncio.ensure_future(producer.send(Message(TOPIC, body), sharding_key="k")) for body in (b"1", huge, b"2")
        ]
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(results[1], LocalProtocolError)
        assert stored == [b"0", b"1", b"2"]


# Routes, life, traces ----------------------------------------------------------------------------------------


@on_stage
async def test_a_topic_that_is_made_by_sending(stage: Stage) -> None:
    """Its queues are those of TBW102, four at most; once the topic has a route of its own, that one counts."""
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
    store(await stage.broker())
    stage.route_to({"broker-a": 2})
    async with producer_for(stage) as producer:
        assert len(await producer.queues(TOPIC)) == 2
        stage.route_to({"broker-a": 6})
        await stage.world.sleep_ms(30_100)
        assert len(await producer.queues(TOPIC)) == 6


@on_stage
async def test_a_producer_registers_before_it_sends(stage: Stage) -> None:
    """The first thing on a connection to a broker is its heartbeat; at its end it unregisters."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
    store(broker)
    producer = producer_for(stage)
    async with producer:
        await producer.send(Message(TOPIC, b"x"))
        with pytest.raises(ClientError, match="started before"):
            await producer.start()
    codes = [command.code for command in broker.seen if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC]
    assert codes == [RequestCode.HEART_BEAT, SEND, RequestCode.UNREGISTER_CLIENT]
    with pytest.raises(SendError, match="this client is shut down"):
        await producer.send(Message(TOPIC, b"y"), sharding_key="k")
    await producer.shutdown()  # a second end is none


def test_what_is_no_producer() -> None:
    """Group names and name servers are checked before anything starts."""
    with pytest.raises(LocalProtocolError, match="placeholder"):
        Producer("DEFAULT_PRODUCER", name_server="127.0.0.1:9876")
    with pytest.raises(SettingError, match="write host:port"):
        Producer("g", name_server="nonsense")


async def test_a_producer_that_was_not_started() -> None:
    """One line that says what to do."""
    producer = Producer("g", name_server="127.0.0.1:9876")
    with pytest.raises(ClientError, match="is not started"):
        await producer.send(Message("T", b"x"))
    await producer.shutdown()


def test_the_name_server_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """NAMESRV_ADDR as every RocketMQ client reads it; without either, the error names both ways."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SettingError, match="give name_server='host:port' or set NAMESRV_ADDR"):
        Producer("g")
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    Producer("g")


@on_stage
async def test_the_trace_of_a_producer(stage: Stage) -> None:
    """A record for every message sent, with its offset, or failed, with its outcome; also of sends that were cut
    short by the end."""
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
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
    told = [(record["event"], record["key"], record.get("offset", record.get("outcome"))) for record in records]
    assert told == [
        ("sent", "k", 0),
        ("sent", None, 1),
        ("send_failed", "k", "refused"),
        ("send_failed", None, "refused"),
    ]
