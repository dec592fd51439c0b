"""Sends that leave together: which do, which do not, and what comes of each (docs/order.md 2)."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.client import Message, MessageQueue, Producer, ProducerConfig, SendError, SendOutcome
from lockstep.client.hooks import SendMessageContext
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.together import SendTogetherRequestHeader
from lockstep.protocol.messages.together import PROPERTIES_MAX
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.simulation import World, simulate
from lockstep.simulation.lab.cluster import BROKER, PRODUCER, Cluster

TOGETHER, ALONE, BATCH = RequestCode.SEND_TOGETHER, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
SENDS = (TOGETHER, ALONE, BATCH)


class Seen:
    """The sends that arrive at a broker: (code, how many messages). `broken`: their answers are not sent."""

    def __init__(self) -> None:
        self.sends: list[tuple[int, int]] = []
        self.endpoint: Endpoint | None = None  # of the last request
        self.change: Callable[[RemotingCommand, RemotingCommand], RemotingCommand | None] = lambda _, reply: reply

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        return factory

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def seen(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            reply = on_request(endpoint, command)
            if command.code in SENDS:
                self.endpoint = endpoint
                count = 1
                if command.code == TOGETHER:
                    count = command.decode_header(SendTogetherRequestHeader).message_count
                self.sends.append((command.code, count))
                return self.change(command, reply) if reply is not None else None
            return reply

        return seen


def play(test: Callable[[Cluster, Producer, Seen], Any], **settings: Any) -> None:
    """With a producer that has sent one message."""

    async def scenario(world: World) -> None:
        seen = Seen()
        cluster = Cluster(world, tap=lambda _: seen)
        await cluster.broker(queues=2)
        producer = await cluster.producer(**settings)

        async def run() -> None:
            await producer.send(message("first"), sharding_key="k")
            seen.sends.clear()
            await test(cluster, producer, seen)

        await world.host(PRODUCER).run(run())
        await cluster.shut_down()

    simulate(scenario)


def playing(**settings: Any) -> Callable[[Callable[[Cluster, Producer, Seen], Any]], Callable[[], None]]:
    """The test is what such a producer does."""

    def decorate(test: Callable[[Cluster, Producer, Seen], Any]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            play(test, **settings)

        del run.__wrapped__  # pytest would look for fixtures
        return run

    return decorate


def message(text: str, **fields: Any) -> Message:
    return Message("orders", text.encode(), **fields)


async def outcomes(sends: "list[Any]") -> list[Any]:
    return await asyncio.gather(*sends, return_exceptions=True)


def stored(cluster: Cluster) -> list[str]:
    return [one.body.decode() for queue_id in range(2) for one in cluster.stored(queue_id)]


@playing()
async def test_the_first_leaves_at_once_and_the_others_of_its_turn_in_two_frames(
    cluster: Cluster, producer: Producer, seen: Seen
) -> None:
    """With results as single sends have them; a send that is alone leaves alone."""
    results = await outcomes([producer.send(message(str(i)), sharding_key="k") for i in range(20)])
    assert seen.sends == [(ALONE, 1), (TOGETHER, 9), (TOGETHER, 10)]
    assert [result.queue_offset for result in results] == list(range(1, 21))
    ids = {one.offset_message_id for queue_id in range(2) for one in cluster.stored(queue_id)}
    assert {result.offset_msg_id for result in results} < ids
    await producer.send(message("alone"))
    await producer.send(message("alone too"))
    assert seen.sends[3:] == [(ALONE, 1)] * 2


@pytest.mark.parametrize(
    ("count", "expected"), [(2, [1, 1]), (3, [1, 1, 1]), (4, [1, 1, 2]), (5, [1, 2, 2]), (8, [1, 3, 4])]
)
def test_a_burst_is_halved_once(count: int, expected: list[int]) -> None:
    """The first send leaves alone. A half is not halved again, also when the first one is a single request."""

    async def test(cluster: Cluster, producer: Producer, seen: Seen) -> None:
        await outcomes([producer.send(message(str(i)), sharding_key="k") for i in range(count)])
        assert [number for _, number in seen.sends] == expected

    play(test)


@playing(send_together_bytes_max=1800)
async def test_a_second_half_and_what_is_called_meanwhile_keep_the_bound(
    cluster: Cluster, producer: Producer, seen: Seen
) -> None:
    """Of bytes: eight messages of 100 bytes, with their properties."""
    queue = MessageQueue("orders", BROKER, 0)
    calls = [producer.send_async(message("x" * 100), queue=queue) for _ in range(9)]
    for _ in range(2):  # one leaves alone; then the first half leaves, and others are called
        await asyncio.sleep(0)
        calls += [producer.send_async(message("x" * 100), queue=queue) for _ in range(10)]
    await outcomes(calls)
    assert sum(number for _, number in seen.sends) == len(calls)
    assert max(number for _, number in seen.sends) == 8


@pytest.mark.parametrize("auto_batch", [False, True])
def test_sends_to_any_queue_go_together_too(auto_batch: bool) -> None:
    """Also those of tasks, of other queues and topics, and where batches are allowed to RocketMQ's brokers."""

    async def test(cluster: Cluster, producer: Producer, seen: Seen) -> None:
        await producer.send(Message("another", b"x"))
        seen.sends.clear()
        tasks = [producer.send_async(message(str(i))) for i in range(4)]
        await outcomes([*tasks, producer.send(Message("another", b"x")), producer.send(message("k"), sharding_key="k")])
        assert seen.sends == [(ALONE, 1), (TOGETHER, 2), (TOGETHER, 3)]

    play(test, auto_batch=auto_batch)


@playing()
async def test_one_refused_message_is_refused_by_itself(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """Its neighbours are stored; those behind it in its queue are not, and say why."""
    wrong = MessageQueue("orders", BROKER, 7)
    sends = [producer.send(message(text), sharding_key="k") for text in ("a", "b")]
    sends += [producer.send(message(text), queue=wrong) for text in ("c", "d")]
    results = await outcomes([*sends, producer.send(message("e"), sharding_key="k")])
    assert [type(result) for result in results[2:4]] == [SendError] * 2
    codes = [(result.code, result.outcome) for result in results[2:4]]
    refused = SendOutcome.REFUSED
    assert codes == [(ResponseCode.SYSTEM_ERROR, refused), (ResponseCode.SEND_OUT_OF_SEQUENCE, refused)]
    assert [result.queue_offset for result in (results[0], results[1], results[4])] == [1, 2, 3]


@pytest.mark.parametrize("what", ["delayed", "batch", "one way", "large"])
def test_what_leaves_by_itself_overtakes_nothing(what: str) -> None:
    """It leaves behind what waits, and what is called later leaves behind it."""

    async def test(cluster: Cluster, producer: Producer, seen: Seen) -> None:
        queue = MessageQueue("orders", BROKER, 0)
        special: Any = {
            "delayed": lambda: producer.send(message("special", delay_level=1), queue=queue),
            "batch": lambda: producer.send_batch([message("special")], queue=queue),
            "one way": lambda: producer.send_one_way(message("special"), queue=queue),
            "large": lambda: producer.send(message("special" + "x" * 2000), queue=queue),
        }[what]
        before = [producer.send(message(f"before {i}"), queue=queue) for i in range(3)]
        behind = [producer.send(message(f"behind {i}"), queue=queue) for i in range(3)]
        results = await outcomes([*before, special(), *behind])
        assert [result for result in results if isinstance(result, BaseException)] == []
        texts = [one.body.decode().rstrip("x") for one in cluster.stored(0) if one.body != b"first"]
        expected = [*[f"before {i}" for i in range(3)], "special", *[f"behind {i}" for i in range(3)]]
        assert texts == [text for text in expected if what != "delayed" or text != "special"]
        if what != "one way":
            assert seen.sends[:2] == [(ALONE, 1), (TOGETHER, 2)]
            assert seen.sends[2] == (BATCH if what == "batch" else ALONE, 1)
        assert (TOGETHER, 2) in seen.sends

    play(test, send_together_bytes_max=1024, compress_msg_body_over_howmuch=0)


@playing(send_together_max=4, send_together_bytes_max=1024)
async def test_bounds_of_a_frame(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """At most so many messages, and so many bytes."""
    await outcomes([producer.send(message(str(i))) for i in range(12)])
    assert seen.sends == [(ALONE, 1), (TOGETHER, 4), (TOGETHER, 4), (TOGETHER, 3)]
    seen.sends.clear()
    await outcomes([producer.send(message("x" * 300)) for i in range(4)])
    assert seen.sends == [(ALONE, 1), (TOGETHER, 2), (ALONE, 1)]


@playing(send_together_max=1)
async def test_none_leaves_together_when_the_setting_says_so(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """`send_together_max=1`."""
    await outcomes([producer.send(message(str(i))) for i in range(5)])
    assert seen.sends == [(ALONE, 1)] * 5


@pytest.mark.parametrize(
    ("queue_id", "flag", "code"),
    [(1 << 40, 0, ResponseCode.SYSTEM_ERROR), (0, 1 << 40, ResponseCode.SYSTEM_ERROR), (0, 1 << 70, None), (-1, 0, 0)],
)
def test_a_message_that_fits_no_frame_leaves_alone(queue_id: int, flag: int, code: int | None) -> None:
    """With the result that it has when no other is under way, and its neighbours are stored."""

    async def test(cluster: Cluster, producer: Producer, seen: Seen) -> None:
        odd = MessageQueue("orders", BROKER, queue_id)
        sends = [producer.send(message(text), sharding_key="k") for text in ("a", "b")]
        sends += [producer.send(message("odd", flag=flag), queue=odd)]
        first, second, of_odd, third = await outcomes([*sends, producer.send(message("c"), sharding_key="k")])
        assert [result.queue_offset for result in (first, second)] == [1, 2]
        assert third.queue_offset > 2
        if code == 0:
            assert of_odd.queue.queue_id in (0, 1)
        else:
            expected = SendOutcome.NOT_SENT if code is None else SendOutcome.REFUSED
            assert (of_odd.outcome, of_odd.code) == (expected, code)
        await producer.send(message("d"), queue=MessageQueue("orders", BROKER, 0))

    play(test)


@playing(linger_ms=50, send_together_max=3)
async def test_linger_waits_for_others(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """A send waits for its time, or until the frame is full; the time counts towards its timeout."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    one = producer.send_async(message("0"))
    await asyncio.sleep(0.02)
    await outcomes([one, producer.send(message("1"))])
    assert seen.sends == [(TOGETHER, 2)]
    assert 0.05 <= loop.time() - began < 0.07
    began = loop.time()
    await outcomes([producer.send(message(str(i))) for i in range(4)])
    assert seen.sends[1:] == [(TOGETHER, 3), (ALONE, 1)]


@playing(linger_ms=20000, retry_times_when_send_async_failed=0)
async def test_what_lingers_fails_with_its_connection(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """At once, and not when its time is over; nothing was sent, so it may be sent again."""
    began = asyncio.get_running_loop().time()
    lingering = [producer.send_async(message(str(i)), timeout_ms=60_000) for i in range(3)]
    await asyncio.sleep(0.02)
    assert seen.endpoint is not None
    seen.endpoint.abort("the cable is cut")
    errors = await outcomes(lingering)
    assert [error.outcome for error in errors] == [SendOutcome.NOT_SENT] * 3
    assert asyncio.get_running_loop().time() - began < 1
    assert seen.sends == []


@playing(linger_ms=200)
async def test_what_lingered_is_sent_again_over_a_new_connection(
    cluster: Cluster, producer: Producer, seen: Seen
) -> None:
    """With retries no send is lost, and none is stored twice."""
    lingering = [producer.send_async(message(str(i))) for i in range(3)]
    await asyncio.sleep(0.02)
    assert seen.endpoint is not None
    seen.endpoint.abort("the cable is cut")
    await asyncio.gather(*lingering)
    assert sorted(stored(cluster)) == ["0", "1", "2", "first"]


@playing()
async def test_a_message_with_many_properties_leaves_alone(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """A broker refuses it in a frame; alone it is stored."""
    many = {f"name-{number}": "value" for number in range(PROPERTIES_MAX + 1)}
    await outcomes([producer.send(message(str(i), properties=many if i == 2 else {})) for i in range(7)])
    assert seen.sends == [(ALONE, 1), (ALONE, 1), (ALONE, 1), (TOGETHER, 2), (TOGETHER, 2)]
    assert len(stored(cluster)) == 8


@playing(compress_msg_body_over_howmuch=0)
async def test_long_properties_make_no_delayed_message_one_of_a_frame(
    cluster: Cluster, producer: Producer, seen: Seen
) -> None:
    """Neither many properties nor long ones change that it leaves alone; a plain message with a long one need not."""
    long = {"name": "v" * 4 * PROPERTIES_MAX}
    plain = [producer.send(message(str(i), properties=long)) for i in range(5)]
    await outcomes([*plain, producer.send(message("late", properties=long, delay_level=1))])
    assert seen.sends == [(ALONE, 1), (TOGETHER, 4), (ALONE, 1)]


@playing(linger_ms=5000, send_together_max=3)
async def test_a_short_timeout_leaves_time_for_the_answer(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """A send lingers for half of its timeout at most, also when a timer of a longer wait is set."""
    loop = asyncio.get_running_loop()
    full = [producer.send_async(message(str(i))) for i in range(3)]
    began = loop.time()
    await producer.send(message("late"), timeout_ms=100)
    assert loop.time() - began < 0.1
    await asyncio.gather(*full)
    assert seen.sends == [(TOGETHER, 3), (ALONE, 1)]


@playing(credentials=Credentials("account1", "secret-1234"))
async def test_with_an_account_a_frame_has_one_topic(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """A broker with ACL refuses a frame as a whole, and a topic without permission must not cost others anything."""
    await producer.send(Message("another", b"x"))
    seen.sends.clear()
    topics = ["orders", "orders", "orders", "another", "another", "another", "orders"]
    await outcomes([producer.send(Message(topic, b"x")) for topic in topics])
    assert seen.sends == [(ALONE, 1), (TOGETHER, 2), (TOGETHER, 3), (ALONE, 1)]


@playing(retry_times_when_send_async_failed=0)
async def test_a_frame_without_an_answer_is_unknown_and_the_next_does_not_wait_for_it(
    cluster: Cluster, producer: Producer, seen: Seen
) -> None:
    """A send that waits for an answer leaves after 10 ms without it."""
    lost: list[Any] = []
    seen.change = lambda command, reply: None if command.code == TOGETHER and len(seen.sends) < 4 else reply
    for _ in range(3):
        lost += [producer.send_async(message("x"), timeout_ms=500) for _ in range(5)]
        for _ in range(3):
            await asyncio.sleep(0)
    results = await outcomes(lost)
    assert sum(code == TOGETHER for code, _ in seen.sends) >= 2
    errors = [result for result in results if isinstance(result, SendError)]
    assert {error.outcome for error in errors} <= {SendOutcome.UNKNOWN, SendOutcome.REFUSED}
    assert any(error.outcome is SendOutcome.UNKNOWN for error in errors)


@playing()
async def test_a_frame_that_is_refused_as_a_whole(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """Each of its messages is refused with the code and the reason."""
    seen.change = lambda command, reply: (
        command.reply(ResponseCode.SYSTEM_BUSY, remark="too much") if command.code == TOGETHER else reply
    )
    _, *results = await outcomes([producer.send(message(str(i)), sharding_key="k") for i in range(5)])
    assert [(result.code, result.outcome) for result in results] == [(2, SendOutcome.REFUSED)] * 4
    assert "too much" in str(results[0])


@playing()
async def test_an_answer_that_cannot_be_read(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """The outcome is unknown."""

    def cut(command: RemotingCommand, reply: RemotingCommand) -> RemotingCommand:
        reply.body = reply.body[:-1] if command.code == TOGETHER else reply.body
        return reply

    seen.change = cut
    _, *results = await outcomes([producer.send(message(str(i)), sharding_key="k") for i in range(5)])
    assert [result.outcome for result in results] == [SendOutcome.UNKNOWN] * 4


@playing()
async def test_hooks_are_called_for_each_message(cluster: Cluster, producer: Producer, seen: Seen) -> None:
    """Before and after, with the message and its own result."""
    told: list[tuple[str, str]] = []

    class Hook:
        def before(self, context: SendMessageContext) -> None:
            told.append(("before", context.messages[0].body.decode()))

        def after(self, context: SendMessageContext) -> None:
            assert context.result is not None
            told.append(("after", context.messages[0].body.decode()))

    producer.register_send_message_hook(Hook())
    await outcomes([producer.send(message(str(i)), sharding_key="k") for i in range(3)])
    texts = [str(i) for i in range(3)]
    assert told == [("before", text) for text in texts] + [("after", text) for text in texts]


def test_settings_are_checked() -> None:
    """Out of range."""
    for setting in ({"send_together_max": 0}, {"send_together_bytes_max": 1}, {"linger_ms": -1}):
        with pytest.raises(ValueError, match="must be from"):
            ProducerConfig(**setting)  # type: ignore[arg-type]
