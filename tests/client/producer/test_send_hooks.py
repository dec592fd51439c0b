"""Hooks around sends: once before and once after each attempt; a failing hook breaks no send."""

from dataclasses import replace

import pytest

from lockstep.client import (
    CommunicationMode,
    EndTransactionContext,
    HalfMessage,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageType,
    ProducerConfig,
    SendError,
    SendForbiddenError,
    SendMessageContext,
    TransactionProducer,
)
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from tests.client.messages import Panic
from tests.client.producer.send_stage import SEND, producer_for, store
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

SYNC, ASYNC, ONEWAY = CommunicationMode.SYNC, CommunicationMode.ASYNC, CommunicationMode.ONEWAY


class Recorder:
    """Contexts as they were when the hook was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, SendMessageContext]] = []

    def before(self, context: SendMessageContext) -> None:
        context.data["seen"] = len(self.calls)
        self.calls.append(("before", replace(context)))

    def after(self, context: SendMessageContext) -> None:
        assert context.data["seen"] <= len(self.calls)
        self.calls.append(("after", replace(context)))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.calls]


class Raising:
    def before(self, _context: SendMessageContext) -> None:
        raise ValueError("before")

    def after(self, _context: SendMessageContext) -> None:
        raise Panic("after")


class Forbidding:
    """Forbids what has the word in its body."""

    def check_forbidden(self, context: SendMessageContext) -> None:
        if any(b"secret" in message.body for message in context.messages):
            raise PermissionError("too secret")


@on_stage
async def test_one_call_before_and_after_each_kind_of_send(stage: Stage) -> None:
    """With the message, its real queue, the broker, the mode and the result."""
    broker = await stage.broker(queues=4)
    store(broker)
    hook, message = Recorder(), Message(TOPIC, b"x")
    async with producer_for(stage) as producer:
        producer.register_send_message_hook(hook)
        results = [
            await producer.send(message),
            await producer.send(message, sharding_key="hello"),
            await producer.send(message, queue=queue_at(3)),
            await producer.send_async(message, sharding_key="hello"),
            await producer.send_batch([message, message], queue=queue_at(2)),
        ]
        await producer.send_one_way(message, queue=queue_at(1))
    assert hook.kinds == ["before", "after"] * 6
    after = [context for kind, context in hook.calls if kind == "after"]
    assert [context.result for context in after] == [*results, None]
    assert [context.queue for context in after] == [*[result.queue for result in results], queue_at(1)]
    assert [context.mode for context in after] == [SYNC, SYNC, SYNC, ASYNC, SYNC, ONEWAY]
    assert [len(context.messages) for context in after] == [1, 1, 1, 1, 2, 1]
    assert all(context.messages[0] is message for context in after)
    assert {(context.broker_address, context.producer_group) for context in after} == {(broker.address, "pilots")}
    assert {context.error for context in after} == {None}


@on_stage
async def test_each_attempt_is_a_call_of_its_own(stage: Stage) -> None:
    """A repeat has a new context; the context of the failed attempt has its error."""
    broker = await stage.broker(queues=1)
    broker.answers(SEND, ResponseCode.SERVICE_NOT_AVAILABLE, SendMessageResponseHeader("ID", 0, 7))
    hook = Recorder()
    async with producer_for(stage) as producer:
        producer.register_send_message_hook(hook)
        await producer.send(Message(TOPIC, b"x"))
        broker.on[SEND] = lambda _command: None
        with pytest.raises(SendError):
            await producer.send(Message(TOPIC, b"x"), sharding_key="k", timeout_ms=200)
    assert hook.kinds == ["before", "after"] * 3
    failed, stored, unanswered = [context for kind, context in hook.calls if kind == "after"]
    assert isinstance(failed.error, SendError)
    assert failed.error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert stored.result is not None
    assert stored.result.queue_offset == 7
    assert unanswered.result is None
    assert "no reply" in str(unanswered.error)


@on_stage
async def test_a_raising_hook_is_logged_and_harms_nobody(stage: Stage) -> None:
    """Neither the send nor the hooks after it."""
    broker = await stage.broker(queues=1)
    stored = store(broker)
    hook = Recorder()
    async with producer_for(stage) as producer:
        producer.register_send_message_hook(Raising())
        producer.register_send_message_hook(hook)
        await producer.send(Message(TOPIC, b"1"))
        await producer.send(Message(TOPIC, b"2"), sharding_key="k")
        await producer.send_one_way(Message(TOPIC, b"3"))
        await stage.world.sleep_ms(10)
    assert stored == [b"1", b"2", b"3"]
    assert hook.kinds == ["before", "after"] * 3
    logged = [fields for level, event, fields in stage.log.events if (level, event) == ("error", "hook_failed")]
    assert [fields["error"] for fields in logged] == ["ValueError: before", "Panic: after"] * 3
    assert {fields["hook"] for fields in logged} == {"Raising.before", "Raising.after"}


@on_stage
async def test_a_forbidden_send_never_leaves(stage: Stage) -> None:
    """No attempt, no repeat, and no reason for others of its queue to fail."""
    broker = await stage.broker(queues=1)
    stored = store(broker)
    async with producer_for(stage) as producer:
        producer.register_check_forbidden_hook(Forbidding())
        await producer.send(Message(TOPIC, b"1"), sharding_key="k")
        for key in (None, "k"):
            with pytest.raises(SendForbiddenError, match=r"Forbidding: PermissionError: too secret"):
                await producer.send(Message(TOPIC, b"secret"), sharding_key=key)
        with pytest.raises(SendForbiddenError):
            await producer.send_one_way(Message(TOPIC, b"secret"))
        with pytest.raises(SendForbiddenError):
            await producer.send_batch([Message(TOPIC, b"open"), Message(TOPIC, b"secret")])
        await producer.send(Message(TOPIC, b"2"), sharding_key="k")
    assert stored == [b"1", b"2"]


@on_stage
async def test_types_of_messages(stage: Stage) -> None:
    """A delay by level or by ONS clients' property makes a delayed one."""
    broker = await stage.broker(queues=1)
    store(broker)
    hook = Recorder()
    async with producer_for(stage) as producer:
        producer.register_send_message_hook(hook)
        for message in (
            Message(TOPIC, b"x"),
            Message(TOPIC, b"x", delay_level=3),
            Message(TOPIC, b"x", properties={"__STARTDELIVERTIME": "1"}),
        ):
            await producer.send(message)
    kinds = [context.message_type for kind, context in hook.calls if kind == "before"]
    assert kinds == [MessageType.NORMAL, MessageType.DELAY, MessageType.DELAY]


class _Listener:
    async def execute_local_transaction(
        self, _message: HalfMessage, arg: LocalTransactionState
    ) -> LocalTransactionState:
        return arg

    async def check_local_transaction(self, _message: MessageExt) -> None:
        raise AssertionError("nobody asks")


class _Ends:
    def __init__(self) -> None:
        self.seen: list[EndTransactionContext] = []

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.seen.append(context)
        raise RuntimeError("harmless")


@on_stage
async def test_hooks_of_transactions(stage: Stage) -> None:
    """The half message is a send with its own type; the hook of the end runs before the request to the broker."""
    broker = await stage.broker(queues=1)
    id_of_offset_77 = "0A000001" + "00002A9F" + f"{77:016X}"
    broker.answers(SEND, SendMessageResponseHeader(id_of_offset_77, 0, 5))
    sends, ends = Recorder(), _Ends()
    producer = TransactionProducer(
        "pilots",
        listener=_Listener(),
        name_server=stage.name_server,
        config=ProducerConfig(),
        runtime=stage.client,
        log=stage.log,
    )
    async with producer:
        producer.register_send_message_hook(sends)
        producer.register_end_transaction_hook(ends)
        result = await producer.send_in_transaction(Message(TOPIC, b"x"), LocalTransactionState.COMMIT_MESSAGE)
        await stage.world.sleep_ms(10)
        callback: list[object] = []
        await producer.send_async(Message(TOPIC, b"y"), lambda sent, error: callback.append((sent, error)))
    assert [context.message_type for _, context in sends.calls[:2]] == [MessageType.HALF] * 2
    (end,) = ends.seen
    assert (end.msg_id, end.transaction_id, end.from_check) == (result.msg_id, result.msg_id, False)
    assert (end.state, end.broker_address) == (LocalTransactionState.COMMIT_MESSAGE, broker.address)
    assert isinstance(end.message, HalfMessage)
    (told,) = broker.requests(RequestCode.END_TRANSACTION)
    assert told.is_one_way
    assert len(callback) == 1, "and plain sends go on as ever"
