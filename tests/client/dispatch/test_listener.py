"""The listener contract: every result or exception becomes one of four statuses."""

import asyncio
import functools
import re
import threading
from typing import Any

import pytest

from lockstep.client import (
    ClientError,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    ConsumerError,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from lockstep.client.consumer.listener import ORDERLY, ListenerCall
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.settings import SettingError
from lockstep.simulation.lab.user.app import AppError, app_of
from tests.client.messages import Panic, messages_at
from tests.remoting.helpers import RecordingLog

SUCCESS, SUSPEND = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
QUEUE = MessageQueue("T", "broker-a", 3)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class AtOnce:
    cancelled = False

    def may_begin(self) -> bool:
        return True


async def call(listener: Any, log: RecordingLog | None = None) -> ConsumeOrderlyStatus:
    pool = AsyncioRuntime().new_worker_pool("listener", 2)
    try:
        outcome = await ListenerCall(listener, pool, log or RecordingLog(), ORDERLY)(
            messages_at(7), ConsumeOrderlyContext(QUEUE), AtOnce()
        )
        return outcome.status
    finally:
        pool.close()


def plain(answer: Any) -> Any:
    return lambda messages, context: answer


def asynchronous(answer: Any) -> Any:
    async def listen(messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        await asyncio.sleep(0)
        return answer

    return listen


def an_object(answer: Any) -> Any:
    class Listener:
        def __call__(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
            return answer

    return Listener()


def an_async_object(answer: Any) -> Any:
    class Listener:
        async def __call__(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
            return answer

    return Listener()


def a_method(answer: Any) -> Any:
    class Service:
        async def on_message(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
            return answer

    return Service().on_message


def a_partial(answer: Any) -> Any:
    async def listen(prefix: str, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        return answer

    return functools.partial(listen, "prefix")


KINDS = [plain, asynchronous, an_object, an_async_object, a_method, a_partial]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_callable_answers(kind: Any) -> None:
    """Functions, objects and methods, async and plain; None is SUCCESS, a status is itself."""
    assert await call(kind(None)) is SUCCESS
    for status in ConsumeOrderlyStatus:
        assert await call(kind(status)) is status


@pytest.mark.parametrize(
    "nonsense",
    [True, False, 0, "SUCCESS", object(), [SUCCESS]],
    ids=["True", "False", "0", "text", "object", "list"],
)
@pytest.mark.parametrize("kind", [plain, asynchronous])
async def test_nonsense_suspends_and_is_named(kind: Any, nonsense: Any) -> None:
    """A wrong result never counts as success; the log names it and the allowed ones."""
    log = RecordingLog()
    assert await call(kind(nonsense), log) is SUSPEND
    ((level, event, fields),) = log.events
    assert (level, event, fields["consequence"]) == ("error", "listener_answer_invalid", "queue suspended")
    assert type(nonsense).__name__ in fields["returned"]
    assert fields["queue"] == "T@broker-a:3"


@pytest.mark.parametrize(
    "error",
    [ValueError("bad order"), StopIteration("x"), TimeoutError(), asyncio.CancelledError(), Panic("in Rust"), Mute()],
    ids=repr,
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_exception_suspends_and_is_logged(error: BaseException, is_async: bool) -> None:
    """Also one that futures cannot carry, a CancelledError of the listener's own making, and one that is no
    Exception."""

    def fail(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        raise error

    async def fail_later(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        await asyncio.sleep(0)
        raise error

    log = RecordingLog()
    assert await asyncio.wait_for(call(fail_later if is_async else fail, log), 100) is SUSPEND
    ((level, event, fields),) = log.events
    assert (level, event, fields["consequence"]) == ("error", "listener_failed", "queue suspended")
    assert (fields["queue"], fields["offset"]) == ("T@broker-a:3", 7)
    assert fields["exc_info"].__traceback__ is not None


@pytest.mark.parametrize("error", [SystemExit(7), KeyboardInterrupt()], ids=repr)
async def test_a_listener_may_end_the_program(error: BaseException) -> None:
    """`sys.exit` in a listener is no failure of a message."""

    async def leave(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        raise error

    with pytest.raises(type(error)):
        call(leave).send(None)


async def test_a_client_that_is_taken_down_is_not_a_failed_listener() -> None:
    """When the consume task itself is cancelled, that goes through; nothing is suspended or logged."""
    log, started = RecordingLog(), asyncio.Event()

    async def listen(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(call(listen, log))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.events == []


async def test_where_a_listener_runs() -> None:
    """An async one on the loop, a plain one on a thread of the consumer's own, which may block."""
    threads: list[str] = []

    def listen(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        threads.append(threading.current_thread().name)

    async def listen_on_the_loop(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        listen(messages, context)

    await call(listen)
    await call(listen_on_the_loop)
    assert threads == ["listener-1", threading.current_thread().name]


async def test_what_a_listener_is_given() -> None:
    """The messages, and a context that names the queue and starts with RocketMQ's defaults."""
    seen: list[tuple[list[int], ConsumeOrderlyContext]] = []

    async def listen(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        seen.append(([message.queue_offset for message in messages], context))

    await call(listen)
    ((offsets, context),) = seen
    assert offsets == [7]
    assert context == ConsumeOrderlyContext(QUEUE, auto_commit=True, suspend_current_queue_time_ms=-1)


class _Clock:
    now_ms = 1_000_000


async def failures(log: RecordingLog, listener: Any, times: int, step_ms: int) -> None:
    """Calls `step_ms` apart."""
    pool = AsyncioRuntime().new_worker_pool("listener", 1)
    calls = ListenerCall(listener, pool, log, ORDERLY, now_ms=lambda: _Clock.now_ms)
    try:
        for _ in range(times):
            assert (await calls(messages_at(7), ConsumeOrderlyContext(QUEUE), AtOnce())).status is SUSPEND
            _Clock.now_ms += step_ms
    finally:
        pool.close()


async def test_a_listener_that_always_fails_says_it_once_a_minute() -> None:
    """With the number of times since the last line; another way to fail is said at once."""
    log, ways = RecordingLog(), [ValueError("order 1"), ValueError("order 2")]

    def raise_them(messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        ways.append(ways[0])
        raise ways.pop(0)

    await failures(log, raise_them, times=481, step_ms=125)
    said = [fields["times"] for level, event, fields in log.events if (level, event) == ("error", "listener_failed")]
    assert said == [1, 480]
    assert sum(event == "listener_failed_again" and level == "debug" for level, event, _ in log.events) == 479

    await failures(log, plain(5), times=8, step_ms=125)
    await failures(log, plain("SUCCESS"), times=8, step_ms=125)
    answers = [fields["returned"] for level, event, fields in log.events if event == "listener_answer_invalid"]
    assert answers == ["int 5", "str 'SUCCESS'"]


async def test_a_plain_listener_that_returns_a_coroutine() -> None:
    """`lambda messages, context: handle(messages)` of an async function: the log says how to write it."""
    log = RecordingLog()
    assert await call(lambda messages, context: asynchronous(None)(messages, context), log) is SUSPEND
    assert "is an `async def` itself" in log.events[0][2]["error"]


async def _generator(messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
    yield messages


def _plain_generator(messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
    yield messages


class _Listener:
    def __call__(self, messages: list[MessageExt]) -> None: ...


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        (5, "a int cannot be called"),
        (lambda messages: None, "it has the parameters (messages); it gets (messages, context)"),
        (lambda messages, context, more: None, "it has the parameters (messages, context, more)"),
        (_Listener(), "it has the parameters (messages: list"),
        (_Listener, "it is a class; give an object of it"),
        (_generator, "it has `yield`"),
        (_plain_generator, "it has `yield`"),
        (functools.partial(_generator), "it has `yield`"),
    ],
)
def test_what_is_no_listener_is_refused_when_it_is_given(listener: Any, why: str) -> None:
    """By the constructor, by register_listener, and by the lab."""
    with pytest.raises(ConsumerError, match=re.escape(why)):
        PushConsumer("g", name_server="127.0.0.1:9876", listener=listener)
    with pytest.raises(ConsumerError, match=re.escape(why)):
        PushConsumer("g", name_server="127.0.0.1:9876").register_listener(listener)
    if callable(listener) and listener is not _Listener:
        with pytest.raises(AppError):
            app_of(lambda: listener).make(None, "c1")  # type: ignore[arg-type]


@pytest.mark.parametrize("function", ["on_acquired", "on_lost"])
def test_functions_of_fenced_locks_are_looked_at_too(function: str) -> None:
    wrong: Any = {function: lambda queue: None}
    with pytest.raises(ConsumerError, match=f"{function} .*it gets .queue, epoch"):
        PushConsumer("g", name_server="127.0.0.1:9876", fenced=True, **wrong)


@pytest.mark.parametrize(
    ("make", "name"),
    [(PushConsumer, "consume_from_where"), (PushConsumer, "consumeFromWhere"), (Producer, "retry_times")],
)
def test_a_setting_as_an_argument_is_told_where_it_belongs(make: Any, name: str) -> None:
    with pytest.raises(SettingError, match=rf"{name} is a setting: write {make.__name__}\(\.\.\., config=\w+Config\("):
        make("g", name_server="127.0.0.1:9876", **{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        make("g", nonsense=1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: PushConsumer(5, name_server="h:1"),  # type: ignore[arg-type]
        lambda: PushConsumer("g", name_server=5),  # type: ignore[arg-type]
        lambda: PushConsumer("g", name_server="h:1", config=ProducerConfig()),  # type: ignore[arg-type]
        lambda: PushConsumer("g", name_server="h:1", strategy=None),  # type: ignore[arg-type]
        lambda: PushConsumer("g", name_server="h:1").subscribe(5),  # type: ignore[arg-type]
        lambda: PushConsumer("g", name_server="h:1", namespace="n").subscribe(5),  # type: ignore[arg-type]
        lambda: PushConsumer("g", name_server="h:1").subscribe("T", None),  # type: ignore[arg-type]
        lambda: ConsumerConfig(pull_batch_size="8"),  # type: ignore[arg-type]
        lambda: ConsumerConfig(fenced=True),  # type: ignore[arg-type]
        lambda: ProducerConfig(linger_ms=1.5),  # type: ignore[arg-type]
        lambda: ProducerConfig(retry_times=True),
    ],
)
def test_wrong_types_of_arguments_are_errors_of_the_client(wrong: Any) -> None:
    with pytest.raises(ClientError, match=r" must be |not "):
        wrong()
