"""`auto_batch`: sends that wait for one queue of a RocketMQ broker leave in one batch (docs/order.md 2)."""

import asyncio
import json
from typing import Any

import pytest

from lockstep.client import Message, Producer, ProducerConfig, SendForbiddenError, SendOutcome, SendResult
from lockstep.client.hooks import SendMessageContext
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.messages.properties import decode_properties
from lockstep.protocol.signature import Credentials
from tests.client.messages import Panic
from tests.client.producer.batch_stage import ALLOWED, RocketMQ, ends, message, sends, with_batches
from tests.client.producer.send_stage import header_of, producer_for
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

BATCH = RequestCode.SEND_BATCH_MESSAGE
NOT_SENT, REFUSED, UNKNOWN = SendOutcome.NOT_SENT, SendOutcome.REFUSED, SendOutcome.UNKNOWN


@with_batches()
async def test_what_waits_for_an_answer_leaves_in_one_batch(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """The first one leaves by itself. Each result has its own UNIQ_KEY, offset and id."""
    results = await sends(p, "a", "b", "c", "d")
    assert rocketmq.sent == [["first"], ["a"], ["b", "c", "d"]]
    assert [result.queue_offset for result in results] == [1, 2, 3, 4]
    assert [result.offset_msg_id for result in results] == ["ID1", "ID2", "ID3", "ID4"]
    (batch,) = rocketmq.batches
    assert (header_of(batch).batch, header_of(batch).queue_id, header_of(batch).sender_id) == (True, 0, None)
    properties = [decode_properties(record.properties) for record in decode_batch(batch.body)]
    assert [one["UNIQ_KEY"] for one in properties] == [result.msg_id for result in results[1:]]
    assert {one["WAIT"] for one in properties} == {"true"}


@with_batches(ProducerConfig())
async def test_none_leaves_in_a_batch_by_default(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Without the setting each send is one request."""
    await sends(p, "a", "b", "c")
    assert rocketmq.sent == [["first"], ["a"], ["b"], ["c"]]


@with_batches(queues=2)
async def test_a_batch_has_one_queue(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Queues do not wait for each other."""
    await asyncio.gather(sends(p, "a", "b", "c", queue_id=0), sends(p, "k", "l", "m", queue_id=1))
    assert sorted(rocketmq.sent) == [["a"], ["b", "c"], ["first"], ["k"], ["l", "m"]]


@with_batches()
async def test_an_answer_with_one_id(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """A broker that stores a batch as one record has one id for all of its messages."""
    rocketmq.on_batch = lambda command: command.reply(0, SendMessageResponseHeader("ONE", 0, 7))
    results = await sends(p, "a", "b", "c")
    assert [(one.queue_offset, one.offset_msg_id) for one in results[1:]] == [(7, "ONE"), (8, "ONE")]


@pytest.mark.parametrize("what", ["delayed", "compressed", "batch", "one way", "start time", "timer", "other timeout"])
def test_what_no_batch_can_carry_overtakes_nothing(what: str) -> None:
    """It leaves by itself, behind what was called before it; what was called behind it leaves after it."""

    @with_batches()
    async def run(stage: Stage, rocketmq: RocketMQ, producer: Producer) -> None:
        queue = queue_at(0)
        special: Any = {
            "delayed": lambda: producer.send(message("x", delay_level=1), queue=queue),
            "compressed": lambda: producer.send(Message(TOPIC, b"x" * 5000), queue=queue),
            "batch": lambda: producer.send_batch([message("x"), message("x")], queue=queue),
            "one way": lambda: producer.send_one_way(message("x"), queue=queue),
            "timer": lambda: producer.send(message("x", properties={"TIMER_DELAY_SEC": "9"}), queue=queue),
            "start time": lambda: producer.send(message("x", properties={"__STARTDELIVERTIME": "99"}), queue=queue),
            "other timeout": lambda: producer.send(message("x"), queue=queue, timeout_ms=77),
        }[what]
        before, behind = ([producer.send(message(text), queue=queue) for text in texts] for texts in ("abc", "def"))
        results = await asyncio.gather(*before, special(), *behind)
        assert ends([*results[:3], *results[4:]]) == [None] * 6
        middle = ["x", "x"] if what == "batch" else ["x"]
        assert rocketmq.sent == [["first"], ["a"], ["b", "c"], middle, ["d", "e", "f"]]

    run()


@with_batches(ProducerConfig(auto_batch=True, send_together_max=3))
async def test_a_batch_has_so_many_messages(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """`send_together_max`."""
    await sends(p, *"abcdefgh")
    assert rocketmq.sent[1:] == [["a"], ["b", "c", "d"], ["e", "f", "g"], ["h"]]


@with_batches(ProducerConfig(auto_batch=True, send_together_max=1))
async def test_a_batch_of_one_is_none(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """`send_together_max=1` lets each send leave by itself."""
    await sends(p, "a", "b", "c")
    assert rocketmq.batches == []


@pytest.mark.parametrize("bound", ["send_together_bytes_max", "body_bytes_max"])
def test_a_batch_has_so_many_bytes(bound: str) -> None:
    """Its whole body, with the properties: RocketMQ's limit for a message is one for a batch too."""

    @with_batches(ProducerConfig(auto_batch=True, compress_msg_body_over_howmuch=0, **{bound: 2048}))  # type: ignore[arg-type]
    async def run(stage: Stage, rocketmq: RocketMQ, producer: Producer) -> None:
        texts = [str(number) * 500 for number in range(6)] + ["l" * 2000]
        await sends(producer, "a", *texts, "m", "n")
        assert rocketmq.sent[2:] == [texts[:3], texts[3:6], texts[6:], ["m", "n"]]
        assert all(len(batch.body) <= 2048 for batch in rocketmq.batches)

    run()


@with_batches()
async def test_a_refused_batch_is_sent_message_by_message(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Only the message that is illegal is refused as such; those behind it in the queue must not overtake it."""
    rocketmq.refused = "c"
    results = await sends(p, "a", "b", "c", "d", "e")
    assert rocketmq.sent[1:] == [["a"], ["b", "c", "d", "e"], ["b"], ["c"]]
    assert ends(results) == [None, None, REFUSED, NOT_SENT, NOT_SENT]
    assert results[2].code == ResponseCode.MESSAGE_ILLEGAL
    await sends(p, "f")
    assert rocketmq.stored == ["first", "a", "b", "f"]


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no batches here"),
        (ResponseCode.SYSTEM_ERROR, "java.lang.RuntimeException: message size exceeded, MessageExtEncoder.java:1"),
        (ResponseCode.SYSTEM_ERROR, "java.lang.RuntimeException: Properties size of messageExtBatch exceeded!, X:1"),
    ],
)
def test_a_broker_that_does_not_take_the_batch(code: int, remark: str) -> None:
    """It knows no batches, or counts more bytes than the client does: each message is stored by itself."""

    @with_batches()
    async def run(stage: Stage, rocketmq: RocketMQ, producer: Producer) -> None:
        rocketmq.on_batch = lambda command: command.reply(code, remark=remark)
        assert ends(await sends(producer, "a", "b", "c")) == [None] * 3
        assert rocketmq.stored == ["first", "a", "b", "c"]

    run()


@pytest.mark.parametrize(
    ("code", "outcome", "status"),
    [
        (ResponseCode.SYSTEM_BUSY, REFUSED, ""),
        (ResponseCode.SYSTEM_ERROR, REFUSED, ""),
        (ResponseCode.FLUSH_DISK_TIMEOUT, UNKNOWN, ""),
        (ResponseCode.SLAVE_NOT_AVAILABLE, None, "SLAVE_NOT_AVAILABLE"),
    ],
)
def test_the_answer_is_that_of_each_message(code: int, outcome: SendOutcome | None, status: str) -> None:
    """A batch is stored or refused as a whole."""

    @with_batches()
    async def run(stage: Stage, rocketmq: RocketMQ, producer: Producer) -> None:
        rocketmq.on_batch = lambda command: command.reply(code, SendMessageResponseHeader("A,B", 0, 2), remark="so")
        results = await sends(producer, "a", "b", "c")
        assert ends(results) == [None, outcome, outcome]
        assert [one.code if outcome else one.status for one in results[1:]] == [code if outcome else status] * 2

    run()


@with_batches()
async def test_an_answer_that_cannot_be_read(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """The outcome is unknown."""
    rocketmq.on_batch = lambda command: command.reply(0)
    assert ends(await sends(p, "a", "b", "c")) == [None, UNKNOWN, UNKNOWN]


@with_batches()
async def test_a_batch_without_an_answer(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Its messages are unknown, those that wait behind it are not sent, and later ones are stored."""
    rocketmq.on_batch = lambda _: None
    calls = asyncio.ensure_future(sends(p, "a", "b", "c"))
    await stage.world.until(lambda: len(rocketmq.sent) == 3)
    behind = await sends(p, "d", "e")
    assert (ends(await calls), ends(behind)) == ([None, UNKNOWN, UNKNOWN], [NOT_SENT, NOT_SENT])
    rocketmq.on_batch = None
    await sends(p, "f", "g", "h")
    assert rocketmq.stored == ["first", "a", "f", "g", "h"]


@with_batches(ProducerConfig(auto_batch=True, retry_keyed=True))
async def test_a_batch_is_repeated_in_its_place(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """With `retry_keyed`: the same messages with the same UNIQ_KEYs, before those that wait behind them."""
    rocketmq.on_batch = lambda _: None
    calls = asyncio.ensure_future(sends(p, "a", "b", "c"))
    await stage.world.until(lambda: len(rocketmq.sent) == 3)
    behind = asyncio.ensure_future(sends(p, "d", "e"))
    await stage.world.sleep_ms(100)
    rocketmq.broker.endpoints[-1].abort("the network fails")
    rocketmq.on_batch = None
    assert ends([*await calls, *await behind]) == [None] * 5
    assert rocketmq.stored == ["first", "a", "b", "c", "d", "e"]
    keys = [[decode_properties(one.properties)["UNIQ_KEY"] for one in decode_batch(batch.body)]
            for batch in rocketmq.batches]  # fmt: skip
    assert keys[1][:2] == keys[0]


@with_batches()
async def test_a_batch_goes_on_without_callers(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """The callers of its first and its second message are cancelled: all are stored, and the next waits for that."""
    held: list[RemotingCommand] = []
    rocketmq.on_batch = lambda command: held.append(command)
    calls = [asyncio.ensure_future(p.send(message(text), queue=queue_at(0))) for text in "abcd"]
    await stage.world.until(lambda: len(held) == 1)
    calls[1].cancel()
    calls[2].cancel()
    behind = asyncio.ensure_future(sends(p, "e"))
    await stage.world.sleep_ms(100)
    assert len(rocketmq.sent) == 3
    rocketmq.broker.endpoints[-1].reply(rocketmq.store(held[0]))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in results] == [SendResult, asyncio.CancelledError, asyncio.CancelledError, SendResult]
    assert ends(await behind) == [None]
    assert rocketmq.stored == ["first", "a", "b", "c", "d", "e"]


@with_batches()
async def test_a_message_that_is_cancelled_before_it_leaves(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """It is in no batch, and its neighbours are."""
    calls = [asyncio.ensure_future(p.send(message(text), queue=queue_at(0))) for text in "abcd"]
    await asyncio.sleep(0)
    calls[2].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert rocketmq.sent[1:] == [["a"], ["b", "d"]]


@with_batches()
async def test_hooks_are_called_for_each_message(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Before and after, with its own result; a message that one of them forbids is in no batch."""
    told: list[tuple[str, str, int]] = []

    class Hook:
        def before(self, context: SendMessageContext) -> None:
            told.append(("before", context.messages[0].body.decode(), 0))

        def after(self, context: SendMessageContext) -> None:
            assert context.result is not None
            told.append(("after", context.messages[0].body.decode(), context.result.queue_offset))

    class Forbid:
        def check_forbidden(self, context: SendMessageContext) -> None:
            if context.messages[0].body in (b"b", b"d"):
                raise ValueError("no") if context.messages[0].body == b"b" else Panic("no")

    p.register_send_message_hook(Hook())
    p.register_check_forbidden_hook(Forbid())
    results = await sends(p, "a", "b", "c", "d", "e")
    assert [type(one) for one in results] == [
        SendResult,
        SendForbiddenError,
        SendResult,
        SendForbiddenError,
        SendResult,
    ]
    assert rocketmq.sent[1:] == [["a"], ["c", "e"]]
    assert told[2:] == [("before", "c", 0), ("before", "e", 0), ("after", "c", 2), ("after", "e", 3)]


@with_batches()
async def test_all_of_a_batch_are_forbidden(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Nothing leaves, and the queue goes on."""

    class Forbid:
        def check_forbidden(self, context: SendMessageContext) -> None:
            if context.messages[0].body in (b"b", b"c"):
                raise ValueError("no")

    p.register_check_forbidden_hook(Forbid())
    results = await sends(p, "a", "b", "c")
    assert [type(one) for one in results] == [SendResult, SendForbiddenError, SendForbiddenError]
    await sends(p, "d")
    assert rocketmq.sent[1:] == [["a"], ["d"]]


@on_stage
async def test_each_message_leaves_its_trace(stage: Stage) -> None:
    """A record for each, as of single sends. All that waited for the connection leave in one batch."""
    rocketmq = RocketMQ(await stage.broker(agrees=False, queues=1))
    async with producer_for(stage, ALLOWED, "trace.jsonl") as producer:
        results = await sends(producer, "a", "b", "c")
    assert rocketmq.sent == [["a", "b", "c"]]
    records = [json.loads(line) for line in stage.client.disk.read("trace.jsonl").splitlines()]
    sent = [(record["offset"], record["msg_id"]) for record in records if record["event"] == "sent"]
    assert sorted(sent) == [(result.queue_offset, result.msg_id) for result in results]


@with_batches()
async def test_long_properties_leave_by_themselves(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """RocketMQ does not check their length in a batch, after it added the name of its cluster."""
    queue, long = queue_at(0), {"long": "x" * 32_000}
    texts: list[Message] = [message("a"), message("b"), message("c"), message("d", properties=long), message("e")]
    results = await asyncio.gather(*[p.send(one, queue=queue) for one in texts])
    assert ends(list(results)) == [None] * 5
    assert rocketmq.sent[1:] == [["a"], ["b", "c"], ["d"], ["e"]]


@with_batches()
async def test_a_flag_that_fits_no_batch(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """The message leaves by itself, and fails as it does without batches."""
    queue = queue_at(0)
    calls = [p.send(message("a"), queue=queue), p.send(message("b", flag=1 << 40), queue=queue)]
    assert ends(await asyncio.gather(*calls, return_exceptions=True)) == [None, REFUSED]


@with_batches(ProducerConfig(auto_batch=True, credentials=Credentials("account1", "secret-1234")))
async def test_a_batch_is_signed(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """As every request of an account."""
    await sends(p, "a", "b", "c")
    (batch,) = rocketmq.batches
    assert {"AccessKey", "Signature"} <= set(batch.ext_fields or ())


@with_batches()
async def test_a_forbidden_first_message_ends_no_turn(stage: Stage, rocketmq: RocketMQ, p: Producer) -> None:
    """Its batch leaves without it, and the next request waits for the answer, also when a caller is gone."""
    held: list[RemotingCommand] = []

    class Forbid:
        def check_forbidden(self, context: SendMessageContext) -> None:
            if context.messages[0].body == b"b":
                raise ValueError("no")

    p.register_check_forbidden_hook(Forbid())
    rocketmq.on_batch = lambda command: held.append(command)
    calls = [asyncio.ensure_future(p.send(message(text), queue=queue_at(0))) for text in "abcd"]
    await stage.world.until(lambda: len(held) == 1)
    behind = asyncio.ensure_future(sends(p, "e", "f"))
    await stage.world.sleep_ms(100)
    calls[2].cancel()
    await stage.world.sleep_ms(100)
    assert rocketmq.sent[1:] == [["a"], ["c", "d"]]
    rocketmq.broker.endpoints[-1].reply(rocketmq.store(held.pop()))
    await stage.world.until(lambda: len(held) == 1)
    rocketmq.broker.endpoints[-1].reply(rocketmq.store(held.pop()))
    assert ends(await behind) == [None] * 2
    results = await asyncio.gather(*calls, return_exceptions=True)
    kinds = [SendResult, SendForbiddenError, asyncio.CancelledError, SendResult]
    assert [type(one) for one in results] == kinds
    assert rocketmq.stored == ["first", *"acdef"]
